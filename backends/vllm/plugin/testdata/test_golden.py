"""The frames that the wire's own tests wrote: read and written here byte for byte, by the plugin where it reads or writes that kind."""

import glob
import json
import os
import socket
import time
from types import SimpleNamespace

import frames
import numpy as np
import pytest
import qr_vllm

FOLDER = os.path.join(os.path.dirname(qr_vllm.__file__), "..", "wire", "testdata")
NAMES = sorted(os.path.basename(p)[:-5] for p in glob.glob(os.path.join(FOLDER, "*.json")))


def load(name):
    with open(os.path.join(FOLDER, name + ".bin"), "rb") as f, open(os.path.join(FOLDER, name + ".json")) as g:
        data = f.read()
        size, kind, flags, count, seq = frames.HEADER.unpack_from(data)
        assert len(data) == frames.HEADER.size + size
        return data, SimpleNamespace(kind=kind, flags=flags, count=count, seq=seq, body=data[frames.HEADER.size :]), json.load(g)


def number(v):
    return float(v) if isinstance(v, str) else v


def test_schema():
    assert qr_vllm.SCHEMA == open(os.path.join(FOLDER, "schema.txt")).read()


def test_there_are_frames_of_each_kind():
    assert {load(n)[1].kind for n in NAMES} == set(range(1, 8))


@pytest.mark.parametrize("name", NAMES)
def test_decode(name):
    data, f, said = load(name)
    assert (f.kind, f.flags, f.count, f.seq) == (said["kind"], said["flags"], said["count"], said["seq"])
    if f.kind == frames.BEGIN_KIND:
        want = {"prompt": [], "history": []} | {k: v if v is not None else [] for k, v in said["begin"].items()}
        assert frames.begin(f.body) == want
    elif f.kind == frames.STEP:
        compact = [r for r in said["rows"] if r["form"] == 0]
        whole = sum(r["form"] == 2 for r in said["rows"]) * said["shape"]["vocab"] * 4
        for got, want in zip(frames.rows(f.body[: len(f.body) - whole], f.count, said["shape"]["k"]), said["rows"]):
            keys = set(want) & set(got) - ({"logits"} if want["form"] == 2 else set())
            assert {"handle", "step", "k", "form", "slot"} <= keys
            for k in keys:
                np.testing.assert_equal(np.array(got[k], np.float32), np.array([number(v) for v in np.ravel(want[k])], np.float32).reshape(np.shape(got[k])))
        assert compact or whole or all(r["form"] == 1 for r in said["rows"])


def pair():
    """A link, and the other end of its connection."""
    link = qr_vllm.Link(8, SimpleNamespace(until=time.monotonic() + 30))
    link.sock.close()
    link.sock, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return link, other


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("begin")])
def test_the_plugin_s_begin(name):
    data, f, said = load(name)
    g = said["begin"]
    link, other = pair()
    r = SimpleNamespace(rid=g["rid"], fail=g["fail"], cfg=g["cfg"], prompt=g.get("prompt") or [], out=g.get("history") or [], forced=[], told=None, handle=0)
    link.handles = g["handle"] - 1
    if len(r.out) != g["step"]:
        pytest.skip("the plugin knows the length of every history")
    qr_vllm.Processor._tell(SimpleNamespace(link=link, ended=[], states=None), [(0, r, g["step"])])
    assert other.recv(1 << 16) == data
    link.sock.close(), other.close()


def test_the_plugin_s_end():
    data, f, _ = load("end")
    link, other = pair()
    qr_vllm.Processor._tell(SimpleNamespace(link=link, ended=frames.unsigned(f.body), states=None), [])
    assert other.recv(1 << 16) == data
    link.sock.close(), other.close()


def plugin_steps():
    """Steps that the plugin itself could send: all rows in one form, none in the frame whole."""
    return [n for n in NAMES if load(n)[1].kind == frames.STEP and {r["form"] for r in load(n)[2]["rows"]} in ({0}, {1})]


@pytest.mark.parametrize("name", plugin_steps())
def test_the_plugin_s_step_and_choice(name):
    data, f, said = load(name)
    link, other = pair()
    heads = np.frombuffer(f.body, np.uint32, 8 * f.count).reshape(f.count, 8)
    link.ints[: f.count] = heads
    link.seq = f.seq - (not f.flags)
    other.sendall(frames.choice(f.seq, [(5, 0)] * f.count))
    assert link.step(f.count, f.flags, np.frombuffer(f.body[32 * f.count :], np.float32)) == ([5] * f.count, [0] * f.count)
    assert other.recv(1 << 16) == data
    link.sock.close(), other.close()


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("choice")])
def test_the_plugin_reads_choices(name):
    data, f, _ = load(name)
    link = qr_vllm.Link(f.count, SimpleNamespace(until=time.monotonic() + 30))
    link.sock.close()
    link.sock, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    link.seq = f.seq - 1
    other.sendall(data)
    tokens, status = link.step(f.count, 0, np.empty(0, np.float32))
    assert frames.choice(f.seq, list(zip(tokens, status))) == data
    link.sock.close(), other.close()


def test_the_plugin_reads_refusals():
    data, f, _ = load("refuse")
    link, other = pair()
    other.sendall(data)
    with pytest.raises(RuntimeError, match="the sidecar refuses: ") as e:
        link.step(1, 0, np.empty(0, np.float32))
    assert json.loads(f.body)["message"] in str(e.value)
    link.sock.close(), other.close()
