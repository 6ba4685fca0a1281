"""Who is in which row: both runners, whatever happens to the batch."""

import random

import pytest
from runners import END_OF_TEXT, KEPT, MAX_ROWS, VOCAB, params
from scripted import token_of


def want(*names, step=0):
    return {n: token_of(n, step, VOCAB) for n in names}


def test_mixed_rows(make, sidecar, kind, rows):
    r = make(kind, rows)
    r.add("a")
    r.add("plain", ours=False)
    r.add("b")
    assert r.step() == want("a", "b") | {"plain": KEPT}
    assert r.step() == want("a", "b", step=1) | {"plain": KEPT}
    assert [len(s) for s in sidecar.steps] == [2, 2]
    assert {b["rid"]: b["prompt"] for b in sidecar.begins} == {"a": [1, 2, 3], "b": [1, 2, 3]}


def test_only_plain_rows_need_no_sidecar(make, kind):
    r = make(kind)
    r.add("plain", ours=False)
    assert r.step() == {"plain": KEPT}
    assert r.processor.link is None and r.processor.said == {}


def test_rows_are_what_the_model_said(make, sidecar, kind, rows):
    import numpy as np

    r = make(kind, rows)
    r.add("a")
    seen = {}
    r.step(lambda names, x: (x[0].__setitem__(slice(3, 30), -np.inf), seen.update(x=x[0].copy())))
    row, x = sidecar.steps[0][0], seen["x"]
    if rows == "full":
        assert np.array_equal(row["row"], x)
        return
    finite = x[x > -np.inf].astype(np.float64)
    lse = np.log(np.exp(finite).sum())
    p = np.exp(finite - lse)
    assert row["finite"] == 5 and row["max"] == x.max()
    assert abs(row["lse"] - lse) < 1e-5 and abs(row["entropy"] + (p * np.log(p)).sum()) < 1e-4
    assert dict(zip(row["ids"], row["logits"])) == {int(i): x[i] for i in np.argsort(-x)[:4]}


def test_fewer_finite_logits_than_entries(make, sidecar, kind):
    import numpy as np

    r = make(kind)
    r.add("a")
    r.step(lambda names, x: x[0].__setitem__(slice(2, None), -np.inf))
    row = sidecar.steps[0][0]
    assert row["finite"] == 2 and sorted(row["ids"]) == [-1, -1, 0, 1]
    assert [v for i, v in zip(row["ids"], row["logits"]) if i == -1] == [-np.inf, -np.inf]


def test_add_and_move_in_one_step(make, sidecar):
    r = make("v1")
    for name in "abcd":
        r.add(name)
    r.step()
    for name in "bca":
        r.leave(name)
    r.add("e")  # takes row 0; d moves from 3 to 1
    assert [m.name for m in r.batch if m] == ["e", "d"]
    assert r.step() == want("e") | want("d", step=1)
    assert sorted(sidecar.ended) == ["a", "b", "c"]


def test_swap(make, sidecar):
    r = make("v1")
    for name, ours in (("a", True), ("plain", False), ("b", True)):
        r.add(name, ours)
    r.step()
    r.swap(0, 1)
    r.swap(1, 2)
    assert r.step() == want("a", "b", step=1) | {"plain": KEPT}


def test_refill_without_removed(make, sidecar, kind):
    r = make(kind)
    r.add("a")
    r.add("b")
    r.step()
    r.leave("a")
    r.add("plain", ours=False)  # into the same row or slot; V1's update has no "removed"
    assert r.step() == want("b", step=1) | {"plain": KEPT}
    r.leave("plain")
    r.add("c")
    assert r.step() == want("b", step=2) | want("c")
    r.step()
    assert sidecar.ended == ["a"]


def test_preempt_and_resume(make, sidecar, kind):
    r = make(kind)
    r.add("a")
    r.add("b")
    r.step(), r.step()
    gone = r.leave("a")
    r.add("plain", ours=False)
    r.step()
    r.add("a", out=gone.out)
    assert r.step()["a"] == token_of("a", 2, VOCAB)
    again = sidecar.begins[-1]
    assert again["rid"] == "a" and again["step"] == 2 and again["history"] == gone.out
    assert sidecar.ended == ["a"]


def test_placeholders_are_what_was_forced(make, sidecar):
    r = make("v1", placeholders=True)
    r.add("a")
    sidecar.answer = lambda row: (-1, 2) if row["step"] == 1 else None  # vLLM chooses that one
    r.step(), r.step(), r.step()
    gone = r.leave("a")
    assert gone.out == [-1, -1, -1]
    r.step()
    r.add("a", out=gone.out)
    assert r.step()["a"] == token_of("a", 3, VOCAB)
    assert sidecar.begins[-1]["history"] == [token_of("a", 0, VOCAB), -1, token_of("a", 2, VOCAB)]


def test_partial_prefill(make, sidecar, kind):
    r = make(kind)
    r.add("a")
    r.add("b")
    r.requests["a"].computed = 2  # of 3
    got = r.step()
    assert got == (want("b") | {"a": KEPT} if kind == "v2" else want("a", "b"))
    r.requests["a"].computed = None
    assert r.step() == want("a") | want("b", step=1)
    assert [row["step"] for s in sidecar.steps for row in s if row["rid"] == "a"] == ([0] if kind == "v2" else [0, 0])


def test_unknown_slots_are_left_alone(make, sidecar):
    from runners import LogitsContext, V2  # noqa: F401
    import numpy as np
    import torch

    r = make("v2")
    x = np.zeros((MAX_ROWS, VOCAB), np.float32)
    r.processor.apply(torch.from_numpy(x), LogitsContext(np.arange(MAX_ROWS), np.full(MAX_ROWS, 5)))
    assert not x.any() and r.processor.link is None


def test_other_end_of_a_row_is_another_row(make, sidecar, kind):
    """V2's rows come in any order, and some slots are far apart: the choice goes to the row that was asked for."""
    r = make(kind)
    for i in range(MAX_ROWS):
        r.add(f"{i}", ours=i in (0, 3, 7))
    for step in range(5):
        assert {k: v for k, v in r.step().items() if v != KEPT} == want("0", "3", "7", step=step)


@pytest.mark.parametrize("seed", range(12))
def test_any_sequence(make, sidecar, kind, rows, seed):
    """A law: whatever comes, goes, moves and comes back, each row that takes part gets the token of its own request and step."""
    rnd = random.Random(seed)
    r = make(kind, rows, placeholders=kind == "v1" and seed % 2 == 1)
    paused, n = [], 0
    for _ in range(40):
        for name in list(r.requests):
            if rnd.random() < 0.15:
                gone = r.leave(name)
                if rnd.random() < 0.5:
                    paused.append(gone)
        while len(r.requests) < MAX_ROWS and rnd.random() < 0.6:
            if paused and rnd.random() < 0.5:
                back = paused.pop()
                r.add(back.name, out=back.out, params=back.params)
            else:
                n += 1
                r.add(f"r{n}", ours=rnd.random() < 0.6, prompt=range(1, 1 + rnd.randint(1, 5)))
        if kind == "v1" and len(r.requests) == len(r.batch) >= 2 and rnd.random() < 0.3:
            r.swap(*rnd.sample(range(len(r.batch)), 2))
        expected = {m.name: token_of(m.name, len(m.out), VOCAB) if m.params.extra_args else KEPT for m in r.batch if m}
        assert r.step() == expected
    assert r.processor.said == {}


def test_reused_request_id_is_two_to_the_sidecar(make, sidecar):
    r = make("v1")
    r.add("a", params=params("same"))
    r.add("b", params=params("same"))
    assert set(r.step().values()) == {token_of("same", 0, VOCAB)}
    assert len({b["handle"] for b in sidecar.begins}) == 2


def test_the_engine_s_own_stop(make, sidecar, kind):
    """Status stop forces the end of text, from where vLLM takes it."""
    sidecar.answer = lambda row: (-1, 3)
    r = make(kind)
    for name, more in {
        "eos": {},
        "stop": {"eos_token_id": None, "ignore_eos": True},
        "config": {"eos_token_id": None, "stop_token_ids": None},
        "none": {"eos_token_id": None, "stop_token_ids": [], "ignore_eos": True},
        "far": {"eos_token_id": VOCAB},
    }.items():
        r.add(name, params=params(name, **more))
    assert r.step() == {"eos": END_OF_TEXT, "stop": 7, "config": 9, "none": KEPT, "far": KEPT}
