"""Runs the plugin against stand-ins of both model runners and a scripted sidecar, with torch where there is one and else with a shim."""

import importlib.util
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "fake"), os.path.dirname(HERE), HERE]
if importlib.util.find_spec("torch") is None:
    sys.path.insert(0, os.path.join(HERE, "shim"))

import runners  # noqa: E402
import scripted  # noqa: E402


@pytest.fixture
def path(tmp_path_factory):
    return str(tmp_path_factory.mktemp("s") / "s.sock")


@pytest.fixture
def sidecar(path):
    s = scripted.Sidecar(path)
    yield s
    s.kill()


@pytest.fixture
def clock(monkeypatch):
    """The plugin's clock: stands still until a test moves it."""
    import qr_vllm

    now = [1000.0]
    monkeypatch.setattr(qr_vllm.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture(params=["v1", "v2"])
def kind(request):
    return request.param


@pytest.fixture(params=["compact", "full"])
def rows(request):
    return request.param


@pytest.fixture
def make(path, monkeypatch):
    """Makes runners whose processors ask the sidecar at path."""
    made = []

    def build(kind, rows="compact", deadline="20000", **settings):
        for key, value in {"QR_SIDECAR": path, "QR_ROWS": rows, "QR_DEADLINE_MS": deadline}.items():
            monkeypatch.setenv(key, value)
        made.append({"v1": runners.V1, "v2": runners.V2}[kind](**settings))
        return made[-1]

    yield build
    for runner in made:
        if runner.processor.link:
            runner.processor.link.sock.close()
