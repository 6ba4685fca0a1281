"""What is refused at start and at admission, what is said, and what the file may be."""

import ast
import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import frames
import numpy as np
import pytest
import qr_vllm
import runners
import torch
from scripted import token_of
from vllm.distributed import parallel_state

SOURCE = qr_vllm.__file__


def test_size_and_imports():
    text = open(SOURCE).read()
    assert len(text.splitlines()) < 400
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.split(".")[0])
    assert names - set(sys.stdlib_module_names) == {"numpy", "torch"}


def test_import_is_light():
    """The API server imports it too: no sockets, no threads, no CUDA, no files."""
    code = "import sys, threading, os; sys.path[:0] = sys.argv[1:]; import torch, numpy; n = len(os.listdir('/proc/self/fd'))\n"
    code += "import qr_vllm; assert threading.active_count() == 1 and len(os.listdir('/proc/self/fd')) == n\n"
    code += "cuda = getattr(torch, 'cuda', None); assert not (cuda and cuda.is_initialized())\n"
    subprocess.run([sys.executable, "-c", code, *[p for p in sys.path if p]], check=True)


def test_without_either_interface():
    """Outside vLLM it can be read, and is no logits processor."""
    code = "import sys; sys.path[:0] = sys.argv[1:]; sys.modules['vllm'] = None; import qr_vllm; assert qr_vllm.Processor.__bases__ == (object,)"
    subprocess.run([sys.executable, "-c", code, *[p for p in sys.path if p]], check=True)


def test_both_interfaces():
    from vllm.v1.sample import logits_processor as one
    from vllm.v1.worker.gpu.sample import logits_processor as two

    assert issubclass(qr_vllm.Processor, one.LogitsProcessor) and issubclass(qr_vllm.Processor, two.LogitsProcessor)


REFUSED = {
    "--speculative-config (method eagle)": {"speculative_config": SimpleNamespace(method="eagle")},
    "--logprobs-mode processed_logits": {"logprobs_mode": "processed_logits"},
    "--logprobs-mode processed_logprobs": {"logprobs_mode": "processed_logprobs"},
    "--enable-batch-sharded-sampling": {"enable_batch_sharded_sampling": True},
    "--runner pooling": {"runner_type": "pooling"},
    "two registrations": {"logits_processors": ["qr_vllm:Processor", qr_vllm.Processor]},
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_defeat_it(make, kind, name):
    with pytest.raises(ValueError, match=name.replace("(", r"\(").replace(")", r"\)")):
        make(kind, **REFUSED[name])


def test_entry_point_and_flag(make, kind, monkeypatch):
    entry = SimpleNamespace(name="qr", value="qr_vllm:Processor")
    monkeypatch.setattr(qr_vllm.importlib.metadata, "entry_points", lambda group: [entry] if group == "vllm.logits_processors" else [])
    with pytest.raises(ValueError, match="two registrations.*'qr'.*keep one --logits-processors"):
        make(kind)
    make(kind, logits_processors=None)


@pytest.mark.parametrize("key, value", [("rows", "some"), ("deadline", "-1"), ("deadline", "x"), ("deadline", "60001")])
def test_bad_environment(make, kind, key, value):
    with pytest.raises(ValueError, match=f"QR_(ROWS|DEADLINE_MS)='{value}': give"):
        make(kind, **{key: value})


def test_says_once_what_it_runs_in(make, sidecar, kind, caplog):
    caplog.set_level(logging.INFO, "vllm")
    r = make(kind, "")
    r.add("a")
    r.step(), r.step()
    lines = [rec.getMessage() for rec in caplog.records if "runner" in rec.getMessage()]
    assert len(lines) == 1 and f"vLLM 0.32.0, runner {kind}, full rows, tensor-parallel 1" in lines[0]


def test_hello(make, sidecar, kind, rows):
    r = make(kind, rows)
    r.add("a")
    r.step()
    hello = sidecar.hellos[0]
    schema = open(os.path.join(os.path.dirname(SOURCE), "..", "wire", "testdata", "schema.txt")).read()
    want = {"protocol": 1, "schema": hashlib.sha256(schema.encode()).hexdigest()[:16], "vllm": "0.32.0", "runner": kind, "rows": rows}
    want |= {"vocab": runners.VOCAB, "max_rows": runners.MAX_ROWS, "stride": 128, "pid": os.getpid(), "tp_rank": 0, "tp_size": 1, "dp_rank": 0}
    assert hello == want | {"model": "m", "max_model_len": 512, "session": hello["session"]}


GOOD = {"qr_rid": "r", "qr_v": 1, "qr_cfg": "{}", "qr_fail": "native"}
BAD = {
    "qr_rid": ["", "x" * 65, "ä" * 33, 5, None, ["a"]],
    "qr_v": [2, 0, "1", None],
    "qr_cfg": ["", "[]", "{", "1", 7, '{"a":"' + "x" * 65536 + '"}', "[" * 60000],
    "qr_fail": ["", "no", 1],
    "qr_temperature": [0.7],
}


@pytest.mark.parametrize("key, value", [(k, v) for k, values in BAD.items() for v in values])
def test_bad_arguments(key, value):
    with pytest.raises(ValueError, match=rf"^vllm_xargs\.{key}=.{{1,82}}: \w+") as e:
        qr_vllm.Processor.validate_params(runners.params(extra_args=GOOD | {key: value}))
    assert type(e.value) is ValueError


@pytest.mark.parametrize("missing", ["qr_rid", "qr_v"])
def test_missing_arguments(missing):
    with pytest.raises(ValueError, match=missing):
        qr_vllm.Processor.validate_params(runners.params(extra_args={k: v for k, v in GOOD.items() if k != missing}))


@pytest.mark.parametrize("extra", [None, {}, {"kv": 1}, GOOD, GOOD | {"kv": [1]}, {"qr_rid": "r", "qr_v": 1.0}, {"qr_rid": "ä" * 32, "qr_v": 1}])
def test_good_arguments(extra):
    qr_vllm.Processor.validate_params(runners.params(extra_args=extra))


@pytest.mark.parametrize("key, value", [("n", 2), ("presence_penalty", 0.5), ("frequency_penalty", -1), ("repetition_penalty", 1.1)])
def test_what_vllm_must_not_do_as_well(key, value):
    with pytest.raises(ValueError, match=f"^{key}={value}: must be"):
        qr_vllm.Processor.validate_params(runners.params("r", **{key: value}))
    qr_vllm.Processor.validate_params(runners.params(**{key: value}))


def test_two_ranks(make, sidecar, kind, rows):
    """Rank 0 asks; all ranks force the same, also where the sidecar is gone."""
    group, got, errors = parallel_state.Group(2), {}, []
    ranks = [make(kind, rows, tensor_parallel_size=2) for _ in range(2)]

    def run(n):
        try:
            parallel_state.enter(group.rank(n))
            r = ranks[n]
            r.add("a", fail="stop")
            r.add("plain", ours=False)
            r.add("b", fail="native")
            got[n] = [r.step(), r.step()]
            group.barrier.wait()
            if n == 0:
                sidecar.kill()
            group.barrier.wait()
            got[n].append(r.step())
        except BaseException as e:
            errors.append(e)
            group.barrier.abort()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert not errors, errors
    both = [{n: token_of(n, step, runners.VOCAB) for n in "ab"} | {"plain": runners.KEPT} for step in range(2)]
    assert got[0] == got[1] == [*both, {"a": runners.END_OF_TEXT, "b": runners.KEPT, "plain": runners.KEPT}]
    assert ranks[1].processor.link is None and len(sidecar.hellos) == 1 and sidecar.hellos[0]["tp_size"] == 2
