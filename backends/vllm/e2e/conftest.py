"""What the tests share: three vLLMs, the gateway with its sidecar, a sidecar alone, and an entropy server.

small  SmolLM2 on runner V1, whole rows; chosen by the gateway's own sidecar
tiny   a tiny model on runner V1, compact rows; chosen by the sidecar alone
new    the tiny model on runner V2, whole rows; chosen by the sidecar alone
"""

import os
import shutil
from pathlib import Path

import openai
import pytest

from engine import CONTEXT, INTERPRETED, JOINED, ROOT, Engine
from gateway import EntropyServer, Gateway, Sidecar, write_plugin

ARTIFACTS = Path(os.environ.get("QR_E2E_ARTIFACTS", ROOT / "artifacts" / "vllm")).resolve()


@pytest.fixture(scope="session")
def artifacts():
    """The folder of logs and configurations, without those of an earlier run."""
    shutil.rmtree(ARTIFACTS, ignore_errors=True)
    ARTIFACTS.mkdir(parents=True)
    return ARTIFACTS


@pytest.fixture(scope="session")
def sockets(tmp_path_factory):
    """A folder whose path is short enough for a socket's."""
    return tmp_path_factory.mktemp("s")


@pytest.fixture(scope="session")
def engines(artifacts, sockets, tmp_path_factory):
    """All of them start at once, which takes as long as the slowest."""
    plugin = write_plugin(tmp_path_factory.mktemp("plugin"))
    inside, alone = sockets / "inside.sock", sockets / "alone.sock"
    started = [
        Engine(artifacts, "small", "v1", "smollm2", plugin, inside),
        Engine(artifacts, "tiny", "v1", "tiny", plugin, alone, seqs=64, extra={"QR_ROWS": "compact", **JOINED}),
        Engine(artifacts, "new", "v2", "tiny", plugin, alone, extra={**INTERPRETED, **JOINED}),
    ]
    try:
        yield {e.name: e.start() for e in started}
    finally:
        for e in started:
            e.stop()


@pytest.fixture(scope="session")
def small(engines):
    return engines["small"].ready()


@pytest.fixture(scope="session")
def tiny(engines):
    return engines["tiny"].ready()


@pytest.fixture(scope="session")
def new(engines):
    return engines["new"].ready()


@pytest.fixture(params=["tiny", "new"])
def engine(request):
    """Each of the engines whose tokens the sidecar alone chooses."""
    return request.getfixturevalue(request.param)


@pytest.fixture(autouse=True)
def engines_live(engines, request):
    """No test may cost an engine that it uses, whatever it does."""
    yield
    used = {
        *request.fixturenames,
        getattr(request.node, "callspec", None) and request.node.callspec.params.get("engine"),
    }
    for name in used & engines.keys():
        engines[name].check()


@pytest.fixture(scope="session")
def entropy(artifacts):
    server = EntropyServer(artifacts).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def sidecar(artifacts, sockets, entropy):
    alone = Sidecar(artifacts, sockets / "alone.sock", {"entropy": entropy.section()})
    try:
        yield alone.start()
    finally:
        alone.stop()


@pytest.fixture(scope="session")
def gateway(artifacts, sockets, entropy, engines, sidecar):
    """Its models are named as the engines; tiny-native goes on where nobody chooses, llama is SmolLM2 on llama.cpp, and
    small-asked and tiny-asked are looked ahead on over vLLM's own API."""

    def on(engine, **vllm):
        return {
            "backend": "vllm",
            "url": engines[engine].url,
            "upstream_model": engine,
            "context": CONTEXT,
            "vllm": vllm,
        }

    def asked(engine):
        server = {"url": engines[engine].url + "/v1", "upstream_model": engine, "context": CONTEXT}
        return {"id": engine + "-asked", "backend": "peek", **server}

    alone = {"sidecar": sidecar.address}
    models = [
        {"id": "small", **on("small")},
        {"id": "tiny", **on("tiny", **alone)},
        {"id": "tiny-native", **on("tiny", fail="native", **alone)},
        {"id": "new", **on("new", **alone)},
        asked("small"),
        asked("tiny"),
        {"id": "llama", "path": os.environ["QR_E2E_GGUF"], "workers": 1, "context": CONTEXT},
    ]
    config = {"models": models, "entropy": entropy.section(), "sidecar": {"secret_file": str(sidecar.secret)}}
    gateway = Gateway(artifacts, sockets / "inside.sock", config)
    try:
        yield gateway.start()
    finally:
        gateway.stop()


@pytest.fixture(scope="session")
def client(gateway, small, tiny, new):
    """The stock client, once the gateway takes requests for all of its models."""
    gateway.wait_models(120)
    return openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0, http_client=gateway.http)
