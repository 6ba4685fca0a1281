"""The frames of the protocol, read and written without the plugin's help."""

import json
import struct

HEADER, BEGIN, ROW, CHOICE = struct.Struct("<IBBHQ"), struct.Struct("<IIIIHHI"), struct.Struct("<IIHBBIfffI"), struct.Struct("<iBBH")
HELLO, WELCOME, REFUSE, BEGIN_KIND, END, STEP, CHOICE_KIND = range(1, 8)


def frame(kind, body=b"", flags=0, count=0, seq=0):
    return HEADER.pack(len(body), kind, flags, count, seq) + body


def message(kind, value):
    return frame(kind, json.dumps(value).encode())


def ints(b):
    return list(struct.unpack(f"<{len(b) // 4}i", b))


def unsigned(b):
    return list(struct.unpack(f"<{len(b) // 4}I", b))


def floats(b):
    return list(struct.unpack(f"<{len(b) // 4}f", b))


def begin(body):
    handle, step, n_prompt, n_history, n_rid, fail, n_cfg = BEGIN.unpack_from(body)
    rest = body[BEGIN.size :]
    rid, cfg, rest = rest[:n_rid].decode(), rest[n_rid : n_rid + n_cfg].decode(), rest[n_rid + n_cfg :]
    assert len(rest) == 4 * (n_prompt + n_history)
    return {"handle": handle, "step": step, "fail": fail, "rid": rid, "cfg": cfg, "prompt": ints(rest[: 4 * n_prompt]), "history": ints(rest[4 * n_prompt :])}


def rows(body, count, k):
    """The rows of a step, with their entries where they are compact."""
    out, names = [], ("handle", "step", "k", "form", "zero", "slot", "max", "lse", "entropy", "finite")
    for i in range(count):
        out.append(dict(zip(names, ROW.unpack_from(body, ROW.size * i))))
    rest, compact = body[ROW.size * count :], [r for r in out if r["form"] == 0]
    assert len(rest) == 8 * k * len(compact)
    half = 4 * k * len(compact)
    for i, r in enumerate(compact):
        part = slice(4 * k * i, 4 * k * (i + 1))
        r["ids"], r["logits"] = ints(rest[:half][part]), floats(rest[half:][part])
    return out


def choice(seq, answers):
    return frame(CHOICE_KIND, b"".join(CHOICE.pack(token, status, 0, 0) for token, status in answers), 0, len(answers), seq)
