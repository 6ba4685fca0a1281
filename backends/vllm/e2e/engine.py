"""A real vLLM with the plugin, started as the profile in configs/profiles says."""

import json
import os
import re
import uuid
from pathlib import Path

import httpx

from processes import Process, free_port, wait_for

ROOT = Path(__file__).resolve().parents[3]
CONTEXT = 512  # tokens
# Nothing is fetched, nobody is told; and one thread, as two that wait for each other on a busy machine are far slower.
ALONE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
}
# The V2 runner's kernels run in Triton's interpreter.
INTERPRETED = {"VLLM_USE_V2_MODEL_RUNNER": "1", "TRITON_INTERPRET": "1", "TRITON_DEFAULT_BACKEND": "cpu"}


# The engine and its worker in one process: one start less.
JOINED = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


def profile():
    """(flags, environment) of the profile for a CPU, as a command line has them."""
    said = json.loads(os.environ["QR_E2E_PROFILE"])
    parts = [said["serve"], next(v for v in said["variants"] if v["device"] == "cpu")]
    flags = [word for part in parts for f in part["flags"] for word in (f["flag"], f.get("value")) if word]
    return flags, {v["name"]: v["value"] for part in parts for v in part["environment"]}


class Engine:
    """One vLLM. `plugin` is the plugin's folder, `socket` the sidecar's, `extra` more of the environment."""

    def __init__(self, folder, name, runner, model, plugin, socket, seqs=8, extra=None):
        self.name, self.runner, self.port = name, runner, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=300, trust_env=False)
        flags, environment = profile()
        program = Path(os.environ[f"QR_E2E_{runner.upper()}"]) / "bin" / "vllm"
        command = [program, "serve", Path(os.environ["QR_E2E_MODELS"]) / model, *flags, "--served-model-name", name]
        command += ["--host", "127.0.0.1", "--port", self.port, "--max-model-len", CONTEXT, "--max-num-seqs", seqs]
        command += ["--kv-cache-memory-bytes", 128 << 20, "--max-logprobs", 1000]
        env = {k: v.format(plugin=plugin, socket=socket) for k, v in environment.items()} | ALONE | (extra or {})
        self.process = Process(name, command, folder / f"{name}.log", env)

    def start(self):
        self.process.start()
        return self

    def ready(self, timeout=600):
        self.process.wait_until("is ready", self.healthy, timeout)
        return self

    def healthy(self):
        try:
            return self.http.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self):
        self.process.stop()

    def check(self):
        """It lives, serves, and nothing was raised in it."""
        assert self.process.alive() and self.healthy(), f"{self.name} is dead:\n{self.process.tail()}"
        assert "Traceback" not in self.process.text(), f"{self.name} raised an exception; see {self.process.log}"

    def metric(self, name, **labels):
        """The sum of a metric's series that have these labels."""
        total = 0.0
        for line in self.http.get("/metrics").text.splitlines():
            if m := re.match(rf"{re.escape(name)}(?:{{(.*)}})? (\S+)$", line):
                if all(f'{k}="{v}"' in (m[1] or "") for k, v in labels.items()):
                    total += float(m[2])
        return total

    def wait_idle(self, timeout=30):
        """Until it runs no request."""
        wait_for(
            f"{self.name} to be idle",
            lambda: self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting") == 0,
            timeout,
        )

    def complete(self, prompt, cfg=None, fail="stop", rid=None, **more):
        """A completion as the gateway asks for one, or a plain one where cfg is None; the choice of the answer."""
        body = {"model": self.name, "prompt": prompt, "max_tokens": 16, "return_token_ids": True} | more
        if cfg is not None:
            body |= opt_in(cfg, fail, rid)
        answer = self.http.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]

    def top(self, prompt, n=1000):
        """The n most probable next tokens of a prompt with their log-probabilities, by vLLM's own account."""
        got = self.complete(prompt, max_tokens=1, temperature=0, logprobs=n, return_tokens_as_token_ids=True)
        return {int(k.removeprefix("token_id:")): v for k, v in got["logprobs"]["top_logprobs"][0].items()}


def opt_in(cfg, fail="stop", rid=None):
    """What makes a request ours: nothing is left to vLLM's own sampling."""
    xargs = {"qr_rid": rid or uuid.uuid4().hex, "qr_v": 1, "qr_cfg": json.dumps(cfg), "qr_fail": fail}
    return {"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0, "vllm_xargs": xargs}
