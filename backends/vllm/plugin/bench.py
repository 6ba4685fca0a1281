"""What a step costs with the plugin: its parts, beside vLLM's own sampling of the same rows, in rounds that take turns.

    python bench.py [--socket PATH] [--rounds N] [--rows 1,32] [--vocab 151936] [--json FILE]

Needs a Python that has vLLM. Without --socket it asks a sidecar of its own that answers at once, so that what is measured is the plugin and
the way there and back. Times are in microseconds. "added" is what a step takes with the plugin and vLLM's greedy sampling of the forced
rows behind it, less what vLLM's own sampling takes: at temperature 0 (argmax), and at 1 without and with top-k 40 and top-p 0.95.
"""

import argparse
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from types import SimpleNamespace

HEAD = struct.Struct("<IBBHQ")
CFG = '{"qr_seed": 1, "qr_top_k": 50, "qr_top_p": 0.95}'


def serve(path):
    """A sidecar that chooses token 5 for every row."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(8)
    print("ready", flush=True)
    while True:
        threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()


def talk(conn):
    buffer = bytearray(1 << 22)
    view = memoryview(buffer)
    have = 0
    while True:
        got = conn.recv_into(view[have:])
        if not got:
            return
        have += got
        while have >= 16 and have >= 16 + HEAD.unpack_from(buffer)[0]:
            size, kind, _, count, seq = HEAD.unpack_from(buffer)
            if kind == 1:
                hello = json.loads(bytes(view[16 : 16 + size]))
                text = json.dumps({"protocol": 1, "schema": hello["schema"], "sidecar": "bench", "top": 256, "deadline_ms": 5000}).encode()
                conn.sendall(HEAD.pack(len(text), 2, 0, 0, 0) + text)
            elif kind == 6:
                conn.sendall(HEAD.pack(8 * count, 7, 0, count, seq) + struct.pack("<iBBH", 5, 0, 0, 0) * count)
            left = have - 16 - size
            view[:left] = bytes(view[16 + size : have])
            have = left


class Parts:
    """Times the parts of a step, by wrapping what does them."""

    def __init__(self):
        self.times = {}

    def wrap(self, owner, name, label):
        call = getattr(owner, name)

        def timed(*args):
            began = time.perf_counter()
            try:
                return call(*args)
            finally:
                self.times[label] = self.times.get(label, 0.0) + time.perf_counter() - began

        setattr(owner, name, timed)


def processor(qr_vllm, torch, n, vocab, form):
    os.environ["QR_ROWS"] = form
    model = SimpleNamespace(served_model_name="bench", model="bench", max_model_len=4096, logprobs_mode="raw_logprobs", hf_config=None)
    model.logits_processors, model.runner_type = ["qr_vllm:Processor"], "generate"
    parallel = SimpleNamespace(tensor_parallel_size=1, data_parallel_rank=0, enable_batch_sharded_sampling=False)
    cfg = SimpleNamespace(model_config=model, parallel_config=parallel, speculative_config=None, scheduler_config=SimpleNamespace(max_num_seqs=n))
    p = qr_vllm.Processor(cfg, torch.device("cpu"), False)
    outs = [[] for _ in range(n)]
    params = [SimpleNamespace(extra_args={"qr_rid": f"{form}-{os.urandom(4).hex()}-{i}", "qr_v": 1, "qr_cfg": CFG}, eos_token_id=2) for i in range(n)]
    p.update_state(SimpleNamespace(removed=[], added=[(i, params[i], [1, 2, 3], outs[i]) for i in range(n)], moved=[]))
    return p, outs


def rows_of(torch, n, vocab):
    """Rows with a head, as models have it: what is compact of them decides."""
    x = torch.randn(n, vocab)
    for row in x:
        row[torch.randperm(vocab)[:200]] = 14 - torch.arange(200) / 20
    return x


def metadata(torch, n, temperature, cut=False):
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata

    greedy, zero = temperature == 0, torch.zeros(n)
    return SamplingMetadata(
        temperature=None if greedy else torch.full((n,), temperature), all_greedy=greedy, all_random=not greedy,
        top_p=torch.full((n,), 0.95) if cut else None, top_k=torch.full((n,), 40, dtype=torch.int32) if cut else None,
        generators={}, max_num_logprobs=None, no_penalties=True, prompt_token_ids=None, frequency_penalties=zero, presence_penalties=zero,
        repetition_penalties=zero, output_token_ids=[[] for _ in range(n)], allowed_token_ids_mask=None, bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )  # fmt: skip


def measure(qr_vllm, torch, n, vocab, rounds):
    """Medians of one number of rows."""
    from vllm.v1.sample.sampler import Sampler

    sampler, base = Sampler(), rows_of(torch, n, vocab)
    native = {"argmax": metadata(torch, n, 0), "sampled": metadata(torch, n, 1.0), "cut": metadata(torch, n, 1.0, True)}
    times, ours = {}, {}
    for form in ("compact", "full"):
        p, outs = processor(qr_vllm, torch, n, vocab, form)
        p.apply(base.clone())
        if p.link is None:
            sys.exit(f"no sidecar: {p.said}")
        parts = Parts()
        parts.wrap(p.link, "step", "round trip")
        parts.wrap(p, "_measure", "torch: measure")
        parts.wrap(p, "_force", "torch: force")
        ours[form] = p, outs, parts

    def note(key, seconds):
        times.setdefault(key, []).append(1e6 * seconds)

    with torch.inference_mode():
        for _ in range(rounds):
            for name, m in native.items():
                x = base.clone()
                began = time.perf_counter()
                sampler(x, m)
                note(f"native {name}", time.perf_counter() - began)
            for form, (p, outs, parts) in ours.items():
                x = base.clone()
                parts.times.clear()
                [o.append(5) for o in outs]
                began = time.perf_counter()
                p.apply(x)
                done = time.perf_counter()
                sampler(x, native["argmax"])
                note(f"{form} with sampling", time.perf_counter() - began)
                note(f"{form} apply", done - began)
                for part, took in parts.times.items():
                    note(f"{form} {part}", took)
                note(f"{form} rest", done - began - sum(parts.times.values()))
                assert p.link and int(x[-1].argmax()) >= 0, p.said
    got = {k: round(statistics.median(v), 1) for k, v in times.items()}
    for form in ours:
        for name in native:
            pairs = zip(times[f"{form} with sampling"], times[f"native {name}"])
            got[f"{form} added to {name}, a row"] = round(statistics.median(a - b for a, b in pairs) / n, 1)
    for p, _, _ in ours.values():
        p.link.sock.close()
    return got


def trips(qr_vllm, torch, n, vocab, count=2000):
    """Medians of the way to the sidecar and back alone, and of the plugin's own work beside it, with rows of 256 entries that lie ready."""
    p, outs = processor(qr_vllm, torch, n, vocab, "compact")
    x = rows_of(torch, n, vocab)
    p.apply(x.clone())
    link = p.link
    ready = p._measure(x, link.k).copy()
    p._measure = lambda x, k: ready
    p._force = lambda *args: None
    alone, whole = [], []
    for _ in range(count):
        [o.append(5) for o in outs]
        p.until, link.ints[:n, 1] = time.monotonic() + 5, len(outs[0])
        began = time.perf_counter()
        _, status = link.step(n, 0, ready[4 * n :])
        alone.append(1e6 * (time.perf_counter() - began))
        assert not any(status), status
        [o.append(5) for o in outs]
        began = time.perf_counter()
        p.apply(x)
        whole.append(1e6 * (time.perf_counter() - began))
    link.sock.close()
    return {"round trip alone": round(statistics.median(alone), 1), "step without torch": round(statistics.median(whole), 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", default="")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--rows", default="1,32")
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--json", default="")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import qr_vllm
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    with tempfile.TemporaryDirectory() as folder:
        path = args.socket or os.path.join(folder, "s.sock")
        child = None if args.socket else subprocess.Popen([sys.executable, __file__, "--serve", path], stdout=subprocess.PIPE)
        try:
            if child:
                child.stdout.readline()
            os.environ |= {"QR_SIDECAR": path, "QR_DEADLINE_MS": "5000"}
            result = {}
            for n in map(int, args.rows.split(",")):
                result[f"{n} rows"] = trips(qr_vllm, torch, n, args.vocab) | measure(qr_vllm, torch, n, args.vocab, max(4, args.rounds // n if n > 1 else args.rounds))
        finally:
            if child:
                child.kill()
                child.wait()
    text = json.dumps(result, indent=1)
    print(text)
    if args.json:
        with open(args.json, "w") as f:
            f.write(text)


if __name__ == "__main__":
    main()
