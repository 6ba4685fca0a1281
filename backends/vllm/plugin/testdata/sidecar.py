"""Runs the plugin, in stand-ins of both model runners, against the gateway's own sidecar, whose socket is the argument."""

import logging
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE]
import conftest  # noqa: E402,F401
import numpy as np  # noqa: E402
import runners  # noqa: E402

STEPS = 12


def run(kind, form, cfg, mask=None):
    """What a batch of three that take part and one that doesn't came to: tokens by name, and the rows' own largest."""
    os.environ |= {"QR_SIDECAR": sys.argv[1], "QR_ROWS": form, "QR_DEADLINE_MS": "20000"}
    r = {"v1": runners.V1, "v2": runners.V2}[kind]()
    run.count += 1
    for i in range(3):
        p = runners.params(f"{run.count}-{i}")
        p.extra_args["qr_cfg"] = cfg
        r.add(f"{i}", params=p)
    r.add("plain", ours=False)
    got, largest = [], []
    for _ in range(STEPS):

        def show(names, x):
            # A request's rows are the same wherever they are in the batch.
            for i, name in enumerate(names):
                x[i] = np.random.default_rng([r.steps, ord(name[0])]).normal(0, 3, runners.VOCAB)
            if mask:
                mask(names, x)
            largest.append({n: int(x[i].argmax()) for i, n in enumerate(names)})

        got.append(r.step(show))
    assert r.processor.link, r.processor.said
    assert all(step.pop("plain") == runners.KEPT for step in got)
    r.processor.link.sock.close()
    return got, largest


run.count = 0
ALL = [(k, f) for k in ("v1", "v2") for f in ("compact", "full")]


def greedy():
    for kind, form in ALL:
        got, largest = run(kind, form, '{"qr_temperature": 0}')
        assert got == [{n: t for n, t in step.items() if n != "plain"} for step in largest], (kind, form)


def seeded(cfg):
    """A seed makes one text, whatever the runner and the form of the rows, which are asked for whole where their largest don't do."""
    texts = [run(kind, form, cfg)[0] for kind, form in ALL]
    assert all(t == texts[0] for t in texts), cfg
    assert len({t for step in texts[0] for t in step.values()}) > 3


def masked():
    """A row of which all is forbidden stays as it is, and a row of NaN or one whose configuration is none ends its answer."""
    for kind, form in ALL:
        got, _ = run(kind, form, '{"qr_temperature": 0}', lambda names, x: x[names.index("1")].fill(-np.inf))
        assert {step["1"] for step in got} == {runners.KEPT} and runners.KEPT not in {step["0"] for step in got}
        got, _ = run(kind, form, '{"qr_temperature": 0}', lambda names, x: x[names.index("1")].fill(np.nan))
        assert got[0]["1"] == runners.END_OF_TEXT and got[0]["0"] != runners.KEPT, (kind, form, got[0])
        got, _ = run(kind, form, '{"qr_temprature": 0}')
        assert set(got[0].values()) == {runners.END_OF_TEXT}


logging.basicConfig(level=logging.WARNING)
greedy()
for cfg in ('{"qr_seed": 7}', '{"qr_seed": 7, "qr_top_k": 3}', '{"qr_seed": 7, "qr_top_p": 0.6}', '{"qr_seed": 7, "qr_presence_penalty": 1.5}'):
    seeded(cfg)
masked()
print(run.count, "batches")
