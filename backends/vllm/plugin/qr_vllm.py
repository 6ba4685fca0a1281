"""Lets the sampler of qr-gateway choose the tokens of vLLM: vllm serve MODEL --logits-processors qr_vllm:Processor

A request takes part when its vllm_xargs have qr_rid; all others are left alone. Once a step the rows of those that take part go to the
sidecar over a Unix socket, as their largest logits or whole in shared memory, and each row becomes the one token that was chosen there.
Environment: QR_SIDECAR socket (/run/qr-gateway/sidecar.sock), QR_ROWS auto, compact or full (auto: full on a CPU, else compact),
QR_DEADLINE_MS of a step (what the sidecar says, and 50 more).
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import logging
import os
import socket
import struct
import time
from types import SimpleNamespace

import numpy as np
import torch

PROTOCOL = 1
SCHEMA = """\
qr-sidecar 1
all numbers little-endian; sizes and lengths in bytes; texts UTF-8
frame: header <IBBHQ size of the body (at most 67108864), kind, flags, count, seq; then the body
kind 1 hello, plugin to sidecar, first: JSON object; a memfd sealed F_SEAL_SHRINK comes with it by SCM_RIGHTS
kind 2 welcome, sidecar to plugin: JSON object
kind 3 refuse, sidecar to plugin, then the connection is closed: JSON object code, message, hint
kind 4 begin, plugin to sidecar: <IIIIHHI handle, step, n_prompt, n_history, rid length, fail (0 stop, 1 native: of a row whose number is late), cfg length; rid; cfg; n_prompt x <i; n_history x <i (-1 not known)
kind 5 end, plugin to sidecar: count x <I handle
kind 6 step, plugin to sidecar: count x <IIHBBIfffI handle, step, k, form, 0, slot, max, lse, entropy, finite; then of all rows of form 0 in order k x <i ids; then of these k x <f logits; then of all rows of form 2 in order vocab x <f logits
form 0 compact, k is min(top, vocab); 1 whole row in the memfd at slot x stride, k is 0; 2 whole row in the frame, k is 0; max, lse, entropy and finite are read in form 0 only
logits are float32, -inf is forbidden; in form 0 the entries beyond the finite ones are id -1, logit -inf
step flags bit 0 rest: the seq before again, with the whole rows that were asked for
kind 7 choice, sidecar to plugin: same seq, same count and order; count x <iBBH token (-1 none), status, 0, 0
status 0 token, 1 whole row needed, 2 native, 3 stop, 4 no legal token, 5 unknown handle
flags, count and seq are 0 where nothing is said of them; seq of step rises by one from 1
"""
HEAD, BEGIN, ROW_BYTES, CHOICE_BYTES = struct.Struct("<IBBHQ"), struct.Struct("<IIIIHHI"), 32, 8
KIND_HELLO, KIND_WELCOME, KIND_REFUSE, KIND_BEGIN, KIND_END, KIND_STEP, KIND_CHOICE = range(1, 8)
TOKEN, WHOLE, NATIVE, STOP, ILLEGAL, UNKNOWN = range(6)
REST, ALONE = 1, -1  # flag of a step; in place of a token: the row stays as it is
FIRST_DEADLINE, GRACE, LONGEST_WAIT, LOG_EVERY = 0.5, 0.05, 5.0, 10.0  # seconds
KEYS = ("qr_rid", "qr_v", "qr_cfg", "qr_fail")

log = logging.getLogger("vllm.qr_vllm")  # below "vllm", whose handlers it uses


def parse(extra):
    """Returns (rid, cfg, fail) of a request that takes part and None of others; the ValueError names key, value and remedy."""
    mine = {k: v for k, v in (extra or {}).items() if str(k).startswith("qr_")}
    if not mine:
        return None
    rid, version, cfg, fail = (mine.get(k, d) for k, d in zip(KEYS, (None, None, "{}", "stop")))
    try:
        readable = len(cfg.encode()) <= 65536 and isinstance(json.loads(cfg), dict)
    except (AttributeError, ValueError, RecursionError):
        readable = False
    wrong = [(k, "there is no such key; put parameters into qr_cfg") for k in mine if k not in KEYS]
    wrong += [("qr_rid", "give a text of 1 to 64 bytes, its own for each choice")] * (not isinstance(rid, str) or not 1 <= len(rid.encode()) <= 64)
    wrong += [("qr_v", f"this plugin speaks version {PROTOCOL}; install the one of your gateway")] * (version != PROTOCOL)
    wrong += [("qr_cfg", "give a JSON object as a text of at most 64 KiB")] * (not readable)
    wrong += [("qr_fail", "give stop or native")] * (fail not in ("stop", "native"))
    for key, remedy in wrong:
        raise ValueError(f"vllm_xargs.{key}={mine.get(key)!r:.80}: {remedy}")
    return rid, cfg, fail


def refusal(cfg, rows, wait):
    """What in the settings defeats this processor, by the name of the setting, with the remedy; None where all is well."""
    model, spec, mode = cfg.model_config, cfg.speculative_config, str(getattr(cfg.model_config, "logprobs_mode", ""))
    ours = [e.name for e in importlib.metadata.entry_points(group="vllm.logits_processors") if e.value.split(":")[0] == __name__]
    flags = [p for p in getattr(model, "logits_processors", None) or () if __name__ in (str(p).split(":")[0], getattr(p, "__module__", ""))]
    checks = (
        (spec, f"--speculative-config (method {getattr(spec, 'method', '?')}): tokens are drawn before they are accepted; start without it"),
        (mode.startswith("processed"), f"--logprobs-mode {mode}: it would report the forced rows; use raw_logprobs or raw_logits"),
        (getattr(cfg.parallel_config, "enable_batch_sharded_sampling", 0), "--enable-batch-sharded-sampling: ranks draw apart; start without it"),
        (getattr(model, "runner_type", "") == "pooling", "--runner pooling: no tokens are chosen; leave this processor out"),
        (len(ours) + len(flags) > 1, f"two registrations, entry points {ours} and --logits-processors {flags}; keep one --logits-processors"),
        (rows not in ("auto", "compact", "full"), f"QR_ROWS={rows!r}: give auto, compact or full"),
        (not (wait.isdecimal() and 0 <= int(wait) <= 60000), f"QR_DEADLINE_MS={wait!r}: give 1 to 60000, or 0 for what the sidecar says"),
    )
    return next((why for wrong, why in checks if wrong), None)


class Link:
    """One connection to the sidecar. No call ends later than its owner's `until`; after an exception it is of no more use."""

    def __init__(self, rows, owner):
        self.owner, self.armed, self.seq, self.handles, self.proven = owner, 1e9, 0, 0, False
        self.reply = bytearray(HEAD.size + max(65536, CHOICE_BYTES * rows))
        self.choices = np.frombuffer(self.reply, [("token", "<i4"), ("status", "u1"), ("rest", "V3")], rows, HEAD.size)
        self.heads = bytearray(HEAD.size + ROW_BYTES * rows)
        self.ints = np.frombuffer(self.heads, np.uint32, offset=HEAD.size).reshape(rows, ROW_BYTES // 4)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def open(self, path, hello, memfd):
        self._arm()
        self.sock.connect(path)
        text = json.dumps(hello).encode()
        with contextlib.suppress(BrokenPipeError):  # who hangs up at once has said why
            self.send([HEAD.pack(len(text), KIND_HELLO, 0, 0, 0), text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", memfd))])
        said = json.loads(self.reply[HEAD.size : HEAD.size + self._read(KIND_WELCOME)[0]])
        if (theirs := (said["protocol"], said["schema"])) != (PROTOCOL, hello["schema"]):
            raise RuntimeError(f"the sidecar speaks protocol and schema {theirs}, the plugin {PROTOCOL, hello['schema']}; use those of one version")
        self.k, self.owner.limit = min(max(int(said["top"]), 1), hello["vocab"]), self.owner.deadline or int(said["deadline_ms"]) / 1e3 + GRACE
        log.info("qr_vllm: connected to sidecar %s at %s; %d entries a row", said["sidecar"], path, self.k)

    def _arm(self):
        """Gives the kernel's time-outs what is left, unless they are within 2 ms of it."""
        left = self.owner.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the sidecar is late")
        if abs(self.armed - left) > 2e-3:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self.sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", int(left), max(1, int(left % 1 * 1e6))))
            self.armed = left

    def send(self, parts, rights=()):
        self._arm()
        if self.sock.sendmsg(parts, rights) < sum(memoryview(p).nbytes for p in parts):
            raise TimeoutError("the sidecar doesn't read in time")

    def _read(self, want):
        """Reads one frame into `reply` and returns its size, count and seq."""
        have, need = 0, HEAD.size
        while have < need:
            self._arm()
            have += (got := self.sock.recv_into(memoryview(self.reply)[have:]))
            if not got:
                raise ConnectionResetError("the sidecar closed the connection")
            if have >= HEAD.size:
                size, kind, _, count, seq = HEAD.unpack_from(self.reply)
                need = HEAD.size + size
                if kind not in (want, KIND_REFUSE) or need > len(self.reply) or have > need:
                    raise RuntimeError(f"the sidecar sent a frame of kind {kind} with {size} bytes, which is no answer")
        if kind == KIND_REFUSE:
            said = json.loads(self.reply[HEAD.size : need])
            raise RuntimeError(f"the sidecar refuses: {said.get('message')} ({said.get('code')}) {said.get('hint', '')}")
        return size, count, seq

    def step(self, n, flags, entries):
        """Sends the first n heads and the entries behind them; returns tokens and status."""
        self.seq += not flags
        HEAD.pack_into(self.heads, 0, ROW_BYTES * n + entries.nbytes, KIND_STEP, flags, n, self.seq)
        self.send([memoryview(self.heads)[: HEAD.size + ROW_BYTES * n], entries])
        if self._read(KIND_CHOICE) != (CHOICE_BYTES * n, n, self.seq):
            raise RuntimeError("the sidecar answered another step")
        self.proven = True
        return self.choices["token"][:n].tolist(), self.choices["status"][:n].tolist()


def pick(rows):
    return slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] == len(rows) - 1 else rows  # they rise


def base(module):
    try:
        return (importlib.import_module(module).LogitsProcessor,)
    except Exception:  # this vLLM doesn't have that runner's interface
        return ()


def quiet(call):
    """vLLM ends with all its requests when a processor raises: log it instead, and start afresh."""

    def safe(self, *args):
        last = call.__name__ == "apply"
        self.until = time.monotonic() + (self.left if last else self.limit)
        try:
            return call(self, *args)
        except Exception as e:
            self._drop(e)
            return args[0] if last else False
        finally:  # both calls of a step share its deadline; what the model takes between them is not counted
            self.left = self.limit if last else self.until - time.monotonic()

    return safe


class Processor(*base("vllm.v1.sample.logits_processor"), *base("vllm.v1.worker.gpu.sample.logits_processor")):
    """Serves both model runners: made from (config, device, pin memory) for V1, from (config, request states) for V2."""

    @classmethod
    def validate_params(cls, sampling_params):
        plain = {"n": 1, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1} if parse(sampling_params.extra_args) else {}
        for key, value in plain.items():
            if (given := getattr(sampling_params, key, value)) not in (value, None):
                raise ValueError(f"{key}={given!r}: must be {value} with qr_rid; ask for each choice by itself, and put penalties into qr_cfg")

    def __init__(self, vllm_config, *rest):
        mode, wait = os.environ.get("QR_ROWS") or "auto", os.environ.get("QR_DEADLINE_MS") or "0"
        if why := refusal(vllm_config, mode, wait):
            raise ValueError(f"qr_vllm can't work with {why}")
        self.config, self.states = vllm_config, rest[0] if len(rest) == 1 else None
        self.deadline, self.path = int(wait) / 1e3, os.environ.get("QR_SIDECAR") or "/run/qr-gateway/sidecar.sock"
        self.device = torch.device(self.states.device if self.states else rest[0])
        self.form = {"auto": "full" if self.device.type == "cpu" else "compact"}.get(mode, mode)
        self.max_rows = int(self.states.max_num_reqs if self.states else vllm_config.scheduler_config.max_num_seqs)
        self.ranks, self.runner = vllm_config.parallel_config.tensor_parallel_size, "v2" if self.states else "v1"
        self.rows, self.new, self.ended, self.forced = {}, [], [], {}  # by index (V1) or slot (V2); slots to begin; handles to end; by rid
        self.link = self.hello = self.ring = self.memfd = self.host = self.dev = None
        self.retry_at, self.wait, self.said, self.left, self.limit = 0.0, 0.0, {}, 0.0, self.deadline or FIRST_DEADLINE  # left of a step's limit
        self.version = str(getattr(importlib.import_module("vllm"), "__version__", "unknown"))
        log.info("qr_vllm: vLLM %s, runner %s, %s rows, tensor-parallel %d, %s", self.version, self.runner, self.form, self.ranks, self.path)

    def is_argmax_invariant(self):
        return False

    @quiet
    def update_state(self, batch_update):
        """V1, before the forward pass: removed, added, moved, in this order. What comes to a row that is taken ends the one there."""
        if batch_update is None:
            return
        for i in batch_update.removed:
            self._leave(i)
        for i, params, prompt, out in batch_update.added:
            if r := self._enter(i, params):
                r.prompt, r.out = [] if prompt is None else prompt, out
        for a, b, how in batch_update.moved:
            other = self.rows.pop(b, None) if how.name == "SWAP" else self._leave(b)
            self.rows |= {i: r for i, r in ((b, self.rows.pop(a, None)), (a, other)) if r}
        self._tell([(i, r, len(r.out)) for i, r in self.rows.items()])

    @quiet
    def add_request(self, req_idx, sampling_params):
        """V2: a request enters a slot, whose owner has ended. One that was preempted comes back, perhaps elsewhere."""
        r = self._enter(req_idx, sampling_params)
        self.new.append(req_idx)
        for slot in [s for s, other in self.rows.items() if r and other.rid == r.rid and other is not r]:
            self._leave(slot)
        return r is not None

    @quiet
    def apply_staged_writes(self):
        new, self.new, prefill, prompt = self.new, [], self.states.prefill_len.np, self.states.prompt_len.np  # which are up to date
        self._tell([(slot, self.rows[slot], int(prefill[slot] - prompt[slot])) for slot in new if slot in self.rows])

    @quiet
    def apply(self, logits, ctx=None):
        if self.rows and (items := self._items(logits.shape[0], ctx)):
            group = importlib.import_module("vllm.distributed.parallel_state").get_tp_group() if self.ranks > 1 else None
            tokens = self._ask(logits, items) if not group or group.rank_in_group == 0 else [ALONE] * len(items)
            if group:  # every rank must take the same token
                tokens = group.broadcast(torch.tensor(tokens, dtype=torch.int64, device=self.device), src=0).tolist()
            self._force(logits, items, tokens)
        return logits

    def _enter(self, at, params):
        self._leave(at)
        extra = params.extra_args or {}
        try:
            given = parse(extra)
        except ValueError as e:  # from a frontend that doesn't validate: the sidecar refuses what is no JSON, and keeps the reason
            given = str(extra.get("qr_rid"))[:64], str(e), extra.get("qr_fail")
        if given is None:
            return None
        ids = [getattr(params, "eos_token_id", None), *(getattr(params, "stop_token_ids", None) or ())]  # what ends the answer
        if not getattr(params, "ignore_eos", False):
            ids += np.ravel(getattr(getattr(self.config.model_config, "hf_config", None), "eos_token_id", None)).tolist()
        r = self.rows[at] = SimpleNamespace(rid=given[0], cfg=given[1], at=at, prompt=[], out=[], told=None, handle=0, fail=int(given[2] == "native"))
        r.end = next((t for t in ids if isinstance(t, int) and t >= 0), ALONE)
        r.fallback = ALONE if r.fail else r.end
        r.forced = self.forced[r.rid] = self.forced.pop(r.rid, [])  # the tokens so far; V1 adds anew what it has preempted
        if len(self.forced) > 4 * self.max_rows:
            del self.forced[next(iter(self.forced))]
        return r

    def _leave(self, at):
        r = self.rows.pop(at, None)
        if r and self.link and r.told is self.link:
            self.ended.append(r.handle)

    def _tell(self, items):
        """Tells the sidecar who left, and of the items those that it doesn't know, with all that was said so far."""
        link, ended, self.ended = self.link, self.ended, []
        frames = [HEAD.pack(4 * len(ended), KIND_END, 0, len(ended), 0), np.asarray(ended, "<u4").tobytes()] if ended and link else []
        for _, r, step in (i for i in items if link and i[1].told is not link):
            seen, own = ((ids + [ALONE] * step)[:step] for ids in (r.out, r.forced))
            n, ids = len(r.prompt), [*r.prompt, *(a if a >= 0 else b for a, b in zip(seen, own))]
            if self.states:
                n = int(self.states.prompt_len.np[r.at])
                ids = self.states.all_token_ids.gpu[r.at, : n + step].tolist()
            link.handles += 1
            r.told, r.handle, rid, cfg = link, link.handles, *(t.encode("utf-8", "replace") for t in (r.rid, r.cfg))
            body = BEGIN.pack(r.handle, step, n, step, len(rid), r.fail, len(cfg)) + rid + cfg + np.asarray(ids, "<i4").tobytes()
            frames += HEAD.pack(len(body), KIND_BEGIN, 0, 0, 0), body
        if frames:
            link.send([b"".join(frames)])

    def _items(self, n, ctx):
        """The rows that take part, but for those of prompts that are read in parts: (row, request, step)."""
        if ctx is None:
            return [(i, r, len(r.out)) for i, r in sorted(self.rows.items()) if i < n]
        prompt, prefill, items = self.states.prompt_len.np, self.states.prefill_len.np, []
        for i, (slot, length) in enumerate(zip(ctx.idx_mapping_np.tolist(), ctx.seq_lens_upper_bound_np.tolist())):
            if i < n and (r := self.rows.get(slot)) and length >= prefill[slot]:
                items.append((i, r, length - int(prompt[slot])))
        return items

    def _ask(self, logits, items):
        """Returns a token or ALONE for each item; that of its fallback where the sidecar gives no answer in time."""
        for _ in range(2):  # a sidecar that broke off may be back already
            try:
                if not self.link and time.monotonic() < self.retry_at:
                    break
                if not self.link:
                    self._connect(logits.shape[1])
                return self._exchange(self.link, logits, items)
            except Exception as e:
                self._drop(e)
        return [r.fallback for _, r, _ in items]

    def _connect(self, vocab):
        if self.ring is None:
            stride, model, parallel = -(-4 * vocab // 64) * 64, self.config.model_config, self.config.parallel_config
            self.hello = {"protocol": PROTOCOL, "schema": hashlib.sha256(SCHEMA.encode()).hexdigest()[:16], "session": os.urandom(8).hex()}
            self.hello |= {"vllm": self.version, "runner": self.runner, "rows": self.form, "vocab": vocab, "max_rows": self.max_rows}
            self.hello |= {"stride": stride, "pid": os.getpid(), "tp_rank": 0, "tp_size": self.ranks, "max_model_len": model.max_model_len}
            self.hello |= {"dp_rank": getattr(parallel, "data_parallel_rank", 0), "model": str(np.ravel(model.served_model_name or model.model)[0])}
            self.memfd = self.memfd or os.memfd_create("qr_vllm", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)  # one, however often what follows fails
            os.ftruncate(self.memfd, stride * self.max_rows)
            fcntl.fcntl(self.memfd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self.ring = torch.from_numpy(np.asarray(np.memmap(f"/proc/self/fd/{self.memfd}", np.float32, "r+", shape=(self.max_rows, stride // 4))))
        self.link = Link(self.max_rows, self)
        self.link.open(self.path, self.hello, self.memfd)

    def _drop(self, e):
        """Closes the link, so that a late answer finds nobody. A step makes the next: at once where a good one broke off, else after a while."""
        e = TimeoutError("the sidecar is late") if isinstance(e, BlockingIOError) else e
        again = self.link and self.link.proven and isinstance(e, ConnectionError)
        self.wait = 0.0 if again else min(max(2 * self.wait, 0.05), LONGEST_WAIT)
        self.retry_at = time.monotonic() + self.wait
        if self.link:
            self.link.sock.close()
        self.link = None
        self._say(e)

    def _exchange(self, link, logits, items):
        self._tell(items)
        n, vocab, left = len(items), logits.shape[1], self.until - time.monotonic()
        x, ints, entries = logits[pick([row for row, _, _ in items])], link.ints, np.empty(0, np.float32)
        ints[:n, 0], ints[:n, 1] = [r.handle for _, r, _ in items], [step for _, _, step in items]
        if self.form == "full":
            self.ring[:n, :vocab].copy_(x)
            ints[:n, 2], ints[:n, 3] = 1 << 16, range(n)
        else:
            found = self._measure(x, link.k)
            stats, entries = found[: 4 * n].reshape(4, n), found[4 * n :]
            if stats[3].min() < link.k:
                stats[1:3, stats[0] == -np.inf] = [[-np.inf], [0]]  # all is masked
                entries[: n * link.k].view(np.int32)[entries[n * link.k :] == -np.inf] = -1
            ints[:n, 2], ints[:n, 3], ints[:n, 4:7], ints[:n, 7] = link.k, 0, stats[:3].view(np.uint32).T, stats[3]
        self.until = time.monotonic() + left  # what the device takes is not the sidecar's delay
        tokens, status = link.step(n, 0, entries)
        if rest := [j for j in range(n) if status[j] == WHOLE and self.form != "full"]:
            for at, j in enumerate(rest):
                self.ring[at, :vocab].copy_(x[j])
                ints[at] = items[j][1].handle, items[j][2], 1 << 16, at, 0, 0, 0, 0
            for j, token, what in zip(rest, *link.step(len(rest), REST, entries[:0])):
                tokens[j], status[j] = token, what
        for j, (_, r, _) in enumerate(items):
            r.told = None if status[j] == UNKNOWN else link
            tokens[j] = {TOKEN: tokens[j], NATIVE: ALONE, ILLEGAL: ALONE, STOP: r.end}.get(status[j], r.fallback)
        self.wait = 0.0
        return tokens

    @torch.inference_mode()
    def _measure(self, x, k):
        """Of n rows, on the host: n largest logits, logarithms of sums, entropies, counts of the finite; n*k ids as int32; n*k logits."""
        size = x.shape[0] * (4 + 2 * k)
        if self.dev is None or self.dev.numel() < size:
            self.dev = torch.empty(self.max_rows * (4 + 2 * k), dtype=torch.float32, device=self.device)
            self.host = self.dev if self.device.type == "cpu" else torch.empty(self.dev.shape, dtype=torch.float32, pin_memory=True)
        p, (top, ids) = torch.softmax(x, 1), torch.topk(x, k, 1, sorted=False)
        lse = (largest := top.amax(1)) - p.amax(1).log()
        stats = largest, lse, lse - torch.linalg.vecdot(p, x.clamp(min=-1e30)), (x > -torch.inf).sum(1).float()
        torch.cat((*stats, ids.int().view(torch.float32).reshape(-1), top.reshape(-1)), out=self.dev[:size])
        self.host[:size].copy_(self.dev[:size])
        return self.host[:size].numpy()

    def _force(self, logits, items, tokens):
        """Makes each row that has a token all -inf but for it."""
        chosen = [(row, t) for (row, _, _), t in zip(items, tokens) if 0 <= t < logits.shape[1]]
        for (row, r, step), t in zip(items, tokens):
            r.forced[step:] = [ALONE] * (step - len(r.forced)) + [t if (row, t) in chosen else ALONE]
        if chosen:
            logits[pick([row for row, _ in chosen])] = -torch.inf
            rows, tokens = torch.tensor(chosen, dtype=torch.int64, device=logits.device).T
            logits[rows, tokens] = 0.0

    def _say(self, e):
        now, (last, missed) = time.monotonic(), self.said.get(type(e), (-LOG_EVERY, 0))
        self.said[type(e)] = (now, 0) if (due := now - last >= LOG_EVERY) else (last, missed + 1)
        if due:
            log.warning("qr_vllm: sidecar at %s: %s: %s (%d more like it since the last)", self.path, type(e).__name__, e, missed)
