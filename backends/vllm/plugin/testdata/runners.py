"""Stand-ins of vLLM's two model runners: they keep a batch as vLLM does, and show the processor what vLLM shows it."""

import random
from types import SimpleNamespace

import numpy as np
import qr_vllm
import torch
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, RequestStates

VOCAB, MAX_ROWS, END_OF_TEXT = 32, 8, 2
KEPT = "kept"  # in place of a token: the row is as it was


def settings(**changes):
    model = {"served_model_name": ["m"], "model": "path/m", "max_model_len": 512, "logprobs_mode": "raw_logprobs", "runner_type": "generate"}
    model |= {"logits_processors": ["qr_vllm:Processor"], "hf_config": SimpleNamespace(eos_token_id=[9, 10])}
    parallel = {"tensor_parallel_size": 1, "data_parallel_rank": 0, "enable_batch_sharded_sampling": False}
    cfg = SimpleNamespace(model_config=SimpleNamespace(**model), parallel_config=SimpleNamespace(**parallel), speculative_config=None)
    cfg.scheduler_config = SimpleNamespace(max_num_seqs=MAX_ROWS)
    for key, value in changes.items():
        for part in (cfg, cfg.model_config, cfg.parallel_config):
            if hasattr(part, key):
                setattr(part, key, value)
                break
        else:
            raise KeyError(key)
    return cfg


def params(rid=None, fail=None, **more):
    p = {"extra_args": None, "eos_token_id": END_OF_TEXT, "stop_token_ids": [7], "ignore_eos": False, "n": 1}
    p |= {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}
    if rid is not None:
        p["extra_args"] = {"qr_rid": rid, "qr_v": 1, "qr_cfg": '{"temperature": 0.5}', "other": 1} | ({"qr_fail": fail} if fail else {})
    return SimpleNamespace(**(p | more))


def logits(n, seed):
    return np.random.default_rng(seed).normal(0, 3, (n, VOCAB)).astype(np.float32)


def outcome(before, after):
    """The token that a row was forced to, or KEPT."""
    if np.array_equal(before, after, equal_nan=True):
        return KEPT
    finite = np.flatnonzero(after != -np.inf)
    assert len(finite) == 1 and after[finite[0]] == 0, after
    return int(finite[0])


class Runner:
    """What both have: requests by name, with params, prompt and the tokens so far."""

    def __init__(self, placeholders=False, **changes):
        self.requests, self.steps, self.placeholders, self.batch = {}, 0, placeholders, []
        self.processor = self._make(settings(**changes))

    def add(self, name, ours=True, out=(), prompt=(1, 2, 3), **more):
        p = more.pop("params", None) or params(name if ours else None, **more)
        self.requests[name] = SimpleNamespace(name=name, params=p, prompt=list(prompt), out=list(out), computed=None)
        self._enter(self.requests[name])

    def step(self, change=None):
        """One step of all requests in the batch; returns what became of each one's row, and takes over the tokens."""
        rows = self._prepare()
        self.steps += 1
        before = logits(len(rows), self.steps)
        if change:
            change([r.name for r in rows], before)
        x = torch.from_numpy(before.copy())
        after = self._apply(x, rows)
        assert after is x
        got = {}
        for i, r in enumerate(rows):
            got[r.name] = outcome(before[i], np.asarray(after[i]))
            if r.computed is None:  # else the prompt isn't read yet, and the token is thrown away
                token = int(np.asarray(after[i]).argmax()) if got[r.name] == KEPT else got[r.name]
                r.out.append(-1 if self.placeholders else token)
        return got


class V1(Runner):
    """The first: a dense batch that is condensed, and told as an update."""

    def _make(self, cfg):
        self.removed, self.added, self.moved, self.changed = [], [], [], False
        return qr_vllm.Processor(cfg, torch.device("cpu"), False)

    def _enter(self, r):
        at = min(self.removed, default=len(self.batch))
        if self.removed:
            self.removed.remove(at)
            self.batch[at] = r
        else:
            self.batch.append(r)
        self.added.append((at, r.params, r.prompt, r.out))

    def leave(self, name):
        at = next(i for i, r in enumerate(self.batch) if r and r.name == name)
        self.batch[at] = None
        self.removed.append(at)
        return self.requests.pop(name)

    def swap(self, a, b):
        self.batch[a], self.batch[b] = self.batch[b], self.batch[a]
        self.moved.append((a, b, MoveDirectionality.SWAP))

    def _condense(self):
        for hole in sorted(self.removed):
            while self.batch and self.batch[-1] is None:
                self.batch.pop()
            if hole < len(self.batch):
                last = len(self.batch) - 1
                self.batch[hole] = self.batch.pop()
                self.moved.append((last, hole, MoveDirectionality.UNIDIRECTIONAL))
        while self.batch and self.batch[-1] is None:
            self.batch.pop()

    def _prepare(self):
        removed = sorted(self.removed, reverse=True)
        self._condense()
        update = BatchUpdate(len(self.batch), removed, self.added, self.moved) if removed or self.added or self.moved else None
        self.processor.update_state(update)
        self.removed, self.added, self.moved = [], [], []
        return list(self.batch)

    def _apply(self, x, rows):
        return self.processor.apply(x)


class V2(Runner):
    """The second: slots that are used again without notice, and rows in another order each step."""

    def _make(self, cfg):
        def ints(*shape):
            a = np.zeros(shape, np.int32)
            return SimpleNamespace(np=a, gpu=torch.from_numpy(a))

        self.free, self.random = list(range(MAX_ROWS)), random.Random(1)
        self.states = RequestStates(torch.device("cpu"), MAX_ROWS, VOCAB, ints(MAX_ROWS, 64), ints(MAX_ROWS), ints(MAX_ROWS), ints(MAX_ROWS))
        self.staged = []
        return qr_vllm.Processor(cfg, self.states)

    def _enter(self, r):
        r.slot = self.free.pop()
        self.batch.append(r)
        self.states.prompt_len.np[r.slot] = len(r.prompt)
        self.states.prefill_len.np[r.slot] = len(r.prompt) + len(r.out)
        self.staged.append(r)
        assert self.processor.add_request(r.slot, r.params) is (r.params.extra_args is not None)

    def leave(self, name):
        r = self.requests.pop(name)
        self.batch.remove(r)
        self.free.append(r.slot)
        return r

    def _prepare(self):
        for r in self.batch:
            self.states.all_token_ids.np[r.slot, : len(r.prompt) + len(r.out)] = r.prompt + r.out
        self.processor.apply_staged_writes()
        self.random.shuffle(self.batch)
        return list(self.batch)

    def _apply(self, x, rows):
        length = [len(r.prompt) + len(r.out) if r.computed is None else r.computed for r in rows]
        return self.processor.apply(x, LogitsContext(np.array([r.slot for r in rows]), np.array(length)))
