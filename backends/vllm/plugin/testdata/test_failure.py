"""The sidecar is absent, late, wrong, killed or back: vLLM's calls never raise, never wait past the deadline, and do what qr_fail says."""

import os
import struct
import threading
import time

import frames
import numpy as np
import pytest
import qr_vllm
from runners import END_OF_TEXT, KEPT, VOCAB, params
from scripted import ILLEGAL, NATIVE, STOP, TOKEN, UNKNOWN, WHOLE, Sidecar, token_of

FALLBACK = {"a": END_OF_TEXT, "b": KEPT, "plain": KEPT}


def three(runner):
    runner.add("a", fail="stop")
    runner.add("b", fail="native")
    runner.add("plain", ours=False)
    return runner


def right(step):
    return {"a": token_of("a", step, VOCAB), "b": token_of("b", step, VOCAB), "plain": KEPT}


def test_absent_and_then_there(make, path, kind, clock):
    r = three(make(kind))
    assert r.step() == FALLBACK
    assert r.step() == FALLBACK  # within the wait: not tried again
    assert r.processor.wait == 0.05
    waits = []
    for _ in range(9):
        clock[0] += r.processor.wait
        assert r.step() == FALLBACK
        waits.append(r.processor.wait)
    assert waits == sorted(waits) and waits[:2] == [0.1, 0.2] and waits[-1] == 5.0
    s = Sidecar(path)
    try:
        clock[0] += 5
        assert r.step() == right(11)
        assert {b["rid"]: b["step"] for b in s.begins} == {"a": 11, "b": 11}
        assert r.processor.wait == 0
    finally:
        s.kill()


def test_killed_and_back_at_once(make, sidecar, kind, rows):
    """A sidecar that is back before the next step costs nobody a token: it is told again who is there, with what was said."""
    r = three(make(kind, rows))
    assert r.step() == right(0)
    said = {n: list(q.out) for n, q in r.requests.items()}
    sidecar.kill()
    sidecar.start()
    assert r.step() == right(1)
    assert {b["rid"]: b["history"] for b in sidecar.begins[-2:]} == {n: said[n] for n in "ab"}
    assert len({h["session"] for h in sidecar.hellos}) == 1


def test_the_sidecar_is_told_what_a_late_number_comes_to(make, sidecar, kind):
    three(make(kind)).step()
    assert {b["rid"]: b["fail"] for b in sidecar.begins} == {"a": 0, "b": 1}


def test_killed_for_a_while(make, sidecar, kind, clock):
    r = three(make(kind))
    assert r.step() == right(0)
    sidecar.kill()
    assert r.step() == FALLBACK
    clock[0] += 5
    assert r.step() == FALLBACK
    sidecar.start()
    clock[0] += 5
    assert r.step() == right(3)
    again = next(b for b in sidecar.begins[2:] if b["rid"] == "b")
    assert again["step"] == 3 and again["history"] == r.requests["b"].out[:3]


def test_killed_between_the_update_and_the_step(make, sidecar, kind):
    r = three(make(kind))
    r.step()
    sidecar.kill()
    r.add("c")  # is told on a connection that is broken
    sidecar.start()
    assert r.step() == right(1) | {"c": token_of("c", 0, VOCAB)}


@pytest.mark.parametrize("where", ["greet", "react", "hang_up_each_step"])
def test_never_late(make, sidecar, kind, where):
    """A sidecar that says nothing costs one deadline and then nothing, until it is tried again."""
    if where == "greet":
        sidecar.greet = lambda hello: b""
    elif where == "react":
        sidecar.react = lambda seq, reply: b""
    else:
        sidecar.react = lambda seq, reply: None
    r = three(make(kind, deadline="80"))
    began = time.monotonic()
    assert r.step() == FALLBACK
    once = time.monotonic() - began
    assert once < 1.5, once
    assert where == "hang_up_each_step" or once >= 0.075
    assert r.processor.link is None and r.processor.wait == 0.05


def slowest(runner, steps, wait=0.12):
    """The longest step, in seconds. Between steps the sidecar's turn to be tried again comes."""
    spent = []
    for _ in range(steps):
        began = time.monotonic()
        runner.step()
        spent.append(time.monotonic() - began)
        threading.Event().wait(wait)
    return max(spent)


def test_a_sidecar_that_hangs_costs_no_more_than_a_deadline(make, path, kind, monkeypatch):
    """It takes connections and says nothing: no step waits for longer than its last welcome said, connections included."""
    monkeypatch.setattr(qr_vllm, "FIRST_DEADLINE", 30.0)
    s, gate = Sidecar(path, deadline_ms=200), threading.Event()
    try:
        r = three(make(kind, deadline="0"))
        assert r.step() == right(0)
        s.react = lambda seq, reply: gate.wait(60) and None
        s.greet = lambda hello: gate.wait(60) and b""
        assert r.processor.limit == pytest.approx(0.25)
        assert slowest(r, 8) < 5
        assert len(s.hellos) >= 3
    finally:
        gate.set()
        s.kill()


def test_a_step_has_one_deadline(make, sidecar, kind, clock, monkeypatch):
    """What its first call took is missing to its last; what the model took between them is not, and the next step has all of it."""
    sidecar.deadline_ms, left = 950, []
    r = three(make(kind, deadline="0"))
    r.step()
    tell, link_step = qr_vllm.Processor._tell, qr_vllm.Link.step

    def slow_tell(self, items):
        clock[0] += 0.25 * (len(left) == 0 and told.append(1) is None and len(told) == 1)
        tell(self, items)

    def step(self, *args):
        left.append(self.owner.until - clock[0])
        return link_step(self, *args)

    told = []
    monkeypatch.setattr(qr_vllm.Processor, "_tell", slow_tell)
    monkeypatch.setattr(qr_vllm.Link, "step", step)
    r.add("c")
    r.step(lambda names, x: clock.__setitem__(0, clock[0] + 7))
    r.step()
    assert left == pytest.approx([0.75, 1.0])


def test_memory_that_cannot_be_had(make, sidecar, kind, clock, monkeypatch):
    """Each try fails, no file is lost by it, and once there is memory all is well."""
    r = three(make(kind))

    def full(*args):
        raise OSError(28, "No space left on device")

    open_files = []
    with monkeypatch.context() as m:
        m.setattr(qr_vllm.os, "ftruncate", full)
        for _ in range(10):
            clock[0] += 5
            assert r.step() == FALLBACK
            open_files.append(len(os.listdir("/proc/self/fd")))
    assert open_files[0] == open_files[-1]
    clock[0] += 5
    assert r.step() == right(10)


def test_refused_before_the_hello(make, path, kind, caplog):
    """A sidecar that hangs up at once has said why, and that is what the log has."""
    import socket

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(1)
    real = socket.socket.sendmsg

    class Late(socket.socket):
        def sendmsg(self, *args):
            conn, _ = listener.accept()
            conn.sendall(frames.message(frames.REFUSE, {"code": "foreign_peer", "message": "user 7 may not", "hint": "be another"}))
            conn.close()
            return real(self, *args)

    r = three(make(kind))
    with pytest.MonkeyPatch.context() as m:
        m.setattr(qr_vllm.socket, "socket", Late)
        assert r.step() == FALLBACK
    listener.close()
    assert "user 7 may not (foreign_peer) be another" in caplog.text


def test_a_late_answer_is_never_used(make, sidecar, kind, clock, monkeypatch):
    """What comes after the deadline comes to a connection that is closed: the next step gets its own."""
    held = []
    sidecar.react = lambda seq, reply: held.append(reply) or b"" if not held else reply
    monkeypatch.setattr(qr_vllm, "GRACE", 0.0)
    sidecar.deadline_ms = 50
    r = three(make(kind, deadline=""))
    assert r.step() == FALLBACK
    clock[0] += 5
    assert r.step() == right(1)
    assert len(held) == 1 and len(sidecar.hellos) == 2


def answer_of(seq):
    return frames.choice(seq, [(1, TOKEN), (1, TOKEN)])


WRONG = {
    "noise": lambda seq, reply: b"\xff" * 64,
    "another step": lambda seq, reply: answer_of(seq + 1),
    "the step before": lambda seq, reply: answer_of(seq - 1),
    "too few": lambda seq, reply: frames.choice(seq, [(1, TOKEN)]),
    "too many": lambda seq, reply: reply + b"\x00",
    "two answers": lambda seq, reply: reply + reply,
    "another kind": lambda seq, reply: frames.frame(frames.STEP, reply[16:], 0, 2, seq),
    "huge": lambda seq, reply: frames.HEADER.pack(1 << 31, frames.CHOICE_KIND, 0, 2, seq),
    "count lies": lambda seq, reply: frames.HEADER.pack(16, frames.CHOICE_KIND, 0, 3, seq) + reply[16:],
    "refused": lambda seq, reply: frames.message(frames.REFUSE, {"code": "replayed", "message": "seq 1 again", "hint": ""}),
    "refused badly": lambda seq, reply: frames.frame(frames.REFUSE, b"\xff{"),
    "not even a refusal": lambda seq, reply: frames.frame(frames.REFUSE, b"[1]"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_answers(make, sidecar, kind, clock, wrong):
    sidecar.react = WRONG[wrong]
    r = three(make(kind))
    assert r.step() == FALLBACK
    sidecar.react = None
    clock[0] += 5
    assert r.step() == right(1)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31])
def test_truncated_answers(make, sidecar, kind, size, clock):
    """The beginning of an answer, and then the connection ends."""

    def cut(seq, reply):
        sidecar.sockets[-1].sendall(reply[:size])
        return None

    sidecar.react = cut
    r = three(make(kind))
    assert r.step() == FALLBACK
    sidecar.react = None
    clock[0] += 5
    assert r.step() == right(1)


def test_an_answer_in_pieces(make, sidecar, kind):
    def drip(seq, reply):
        for i in range(len(reply) - 1):
            sidecar.sockets[-1].sendall(reply[i : i + 1])
        return reply[-1:]

    sidecar.react = drip
    assert three(make(kind)).step() == right(0)


GREETINGS = {
    "another schema": lambda hello: frames.message(frames.WELCOME, {"protocol": 1, "schema": "0" * 16, "sidecar": "9", "top": 4, "deadline_ms": 9}),
    "another protocol": lambda hello: frames.message(frames.WELCOME, {"protocol": 2, "schema": hello["schema"], "sidecar": "9", "top": 4, "deadline_ms": 9}),
    "refused": lambda hello: frames.message(frames.REFUSE, {"code": "wrong_version", "message": "wrong version", "hint": "install another"}),
    "nothing in it": lambda hello: frames.message(frames.WELCOME, {}),
    "not an object": lambda hello: frames.message(frames.WELCOME, [1]),
    "no JSON": lambda hello: frames.frame(frames.WELCOME, b"\xff\xff"),
    "no number": lambda hello: frames.message(frames.WELCOME, {"protocol": 1, "schema": hello["schema"], "sidecar": "9", "top": "x", "deadline_ms": 9}),
    "a choice": lambda hello: frames.choice(1, [(1, 0)]),
    "noise": lambda hello: bytes(range(256)),
}


@pytest.mark.parametrize("greeting", GREETINGS)
def test_wrong_welcome(make, sidecar, kind, greeting, clock, caplog):
    sidecar.greet = GREETINGS[greeting]
    r = three(make(kind))
    assert r.step() == FALLBACK
    text = caplog.text
    if greeting.startswith("another"):
        assert "schema" in text and "use those of one version" in text and sidecar.hellos[0]["schema"] in text
    if greeting == "refused":
        assert "wrong version (wrong_version) install another" in text
    sidecar.greet = None
    clock[0] += 5
    assert r.step() == right(1)


def test_rows_on_demand(make, sidecar, kind):
    """Status 1 brings the whole row in the same step; the others keep what was chosen."""
    sidecar.answer = lambda row: (-1, WHOLE) if row["rid"] != "b" and not row["rest"] else None
    r = three(make(kind))
    r.add("d")
    seen = {}
    assert r.step(lambda names, x: seen.update(zip(names, x.copy()))) == right(0) | {"d": token_of("d", 0, VOCAB)}
    assert [[row["rest"] for row in s] for s in sidecar.steps] == [[False] * 3, [True] * 2]
    for row in sidecar.steps[1]:
        assert np.array_equal(row["row"], seen[row["rid"]]) and row["form"] == 1 and row["k"] == 0
    assert r.step() == right(1) | {"d": token_of("d", 1, VOCAB)}


def test_whole_rows_asked_for_twice(make, sidecar, kind, rows):
    sidecar.answer = lambda row: (-1, WHOLE)
    assert three(make(kind, rows)).step() == FALLBACK


def test_unknown_handle(make, sidecar, kind):
    sidecar.answer = lambda row: (-1, UNKNOWN) if row["step"] == 0 else None
    r = three(make(kind))
    assert r.step() == FALLBACK
    assert r.step() == right(1)
    assert [b["step"] for b in sidecar.begins] == [0, 0, 1, 1]
    assert len({b["handle"] for b in sidecar.begins}) == 4


@pytest.mark.parametrize("status, got", [(NATIVE, (KEPT, KEPT)), (ILLEGAL, (KEPT, KEPT)), (STOP, (END_OF_TEXT, END_OF_TEXT)), (77, (END_OF_TEXT, KEPT))])
def test_status(make, sidecar, kind, status, got):
    sidecar.answer = lambda row: (5, status)
    assert three(make(kind)).step() == dict(zip("ab", got)) | {"plain": KEPT}


@pytest.mark.parametrize("token", [-1, -(2**31), VOCAB, 2**31 - 1])
def test_tokens_that_there_are_none_of(make, sidecar, kind, token):
    sidecar.answer = lambda row: (token, TOKEN)
    assert three(make(kind)).step() == {"a": KEPT, "b": KEPT, "plain": KEPT}


def test_all_masked_rows(make, sidecar, kind, rows):
    def answer(row):
        masked = row["finite"] == 0 if row["form"] == 0 else not (row["row"] > -np.inf).any()
        return (-1, ILLEGAL) if masked else None

    sidecar.answer = answer
    r = three(make(kind, rows))
    got = r.step(lambda names, x: x[names.index("a")].fill(-np.inf))
    assert got == right(0) | {"a": KEPT}
    row = next(row for row in sidecar.steps[0] if row["rid"] == "a")
    if rows == "compact":
        assert (row["max"], row["lse"], row["entropy"], set(row["ids"])) == (-np.inf, -np.inf, 0, {-1})


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_no_numbers(make, sidecar, kind, rows, bad):
    """The sidecar sees what the model said, and its word counts; the other rows are as ever."""

    def answer(row):
        values = row["row"] if row["form"] == 1 else np.array(row["logits"] + [row["max"]])
        return (-1, STOP) if np.isnan(values).any() or (values == np.inf).any() else None

    sidecar.answer = answer
    r = three(make(kind, rows))
    got = r.step(lambda names, x: x[names.index("a")].fill(bad))
    assert got == right(0) | {"a": END_OF_TEXT}
    got = r.step(lambda names, x: x[names.index("a")].__setitem__(3, bad))
    assert got == right(1) | {"a": END_OF_TEXT}


def test_a_defect_of_ours_ends_no_engine(make, sidecar, kind, monkeypatch):
    r = three(make(kind))
    assert r.step() == right(0)
    monkeypatch.setattr(qr_vllm.Processor, "_items", lambda *a: 1 / 0)
    assert r.step() == {"a": KEPT, "b": KEPT, "plain": KEPT}
    monkeypatch.undo()
    monkeypatch.setattr(qr_vllm.Processor, "_exchange", lambda *a: 1 / 0)
    assert r.step() == FALLBACK
    monkeypatch.setattr(qr_vllm.Processor, "_enter", lambda *a: 1 / 0)
    if kind == "v1":
        r.add("x")
        r.step()
    else:
        assert r.processor.add_request(0, params("x")) is False
        monkeypatch.setattr(qr_vllm.Processor, "_tell", lambda *a: 1 / 0)
        r.processor.apply_staged_writes()


def test_requests_that_nobody_validated(make, sidecar, kind):
    """They don't pass for ours: the sidecar is told, with a configuration that is none, and refuses them."""
    sidecar.answer = lambda row: (-1, STOP) if not sidecar.live[row["handle"]]["cfg"].startswith("{") else None
    r = make(kind)
    r.add("bad", params=params(extra_args={"qr_rid": "bad", "qr_v": 99}))
    r.add("a")
    assert r.step() == {"bad": END_OF_TEXT, "a": token_of("a", 0, VOCAB)}
    assert "qr_v=99" in next(b["cfg"] for b in sidecar.begins if b["rid"] == "bad")


def test_log_is_short(make, kind, clock, caplog):
    r = three(make(kind))
    for _ in range(50):
        clock[0] += 0.5
        r.step()
    assert 1 <= sum(rec.levelname == "WARNING" for rec in caplog.records) <= 4


def test_large_prompts(make, sidecar, kind, monkeypatch):
    r = make("v1")
    r.add("a", prompt=range(300_000))
    assert r.step() == {"a": token_of("a", 0, VOCAB)}
    assert sidecar.begins[0]["prompt"] == list(range(300_000))


def test_a_sidecar_that_does_not_read(make, path, kind):
    """A begin that does not fit into the socket's buffer waits no longer than the deadline."""
    import socket

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(1)
    try:
        r = make("v1", deadline="80")
        r.add("a", prompt=range(2_000_000))
        hello = {"protocol": 1, "schema": None, "sidecar": "x", "top": 4, "deadline_ms": 10}
        import threading

        def serve():
            conn, _ = listener.accept()
            size = struct.unpack("<I", conn.recv(16)[:4])[0]
            import json

            conn.sendall(frames.message(frames.WELCOME, hello | {"schema": json.loads(conn.recv(size))["schema"]}))
            served.append(conn)

        served = []
        t = threading.Thread(target=serve)
        t.start()
        began = time.monotonic()
        assert r.step() == {"a": END_OF_TEXT}
        assert time.monotonic() - began < 3
        t.join(30)
        served[0].close()
    finally:
        listener.close()
