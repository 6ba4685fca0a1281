"""The programs of the project that the tests run: the gateway, the sidecar alone, and an entropy server."""

import json
import os
import secrets
import subprocess
from pathlib import Path

import httpx

from engine import ROOT
from processes import Process, free_port

PROGRAM = Path(os.environ.get("QR_TEST_GATEWAY", ROOT / "bin" / "qr-gateway"))
DEADLINE = "5s"  # of a step: a machine that is busy with other things is no failure


def written(folder, name, config):
    """The file of a configuration; JSON is YAML."""
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps({**config, "log": {"format": "json", "level": "debug"}}, indent=2))
    return file


def write_plugin(folder):
    """The folder with the plugin for vLLM, as a user gets it."""
    subprocess.run([PROGRAM, "sidecar", "plugin", "--out", folder], check=True, capture_output=True, timeout=60)
    return folder


class EntropyServer:
    """`qr-gateway entropy serve`, at the same address after each start."""

    def __init__(self, folder):
        self.address = f"127.0.0.1:{free_port()}"
        command = [PROGRAM, "entropy", "serve", "--source", "system", "--listen", self.address]
        self.process = Process("entropy", command, folder / "entropy.log")

    def start(self):
        self.process.start()
        return self

    def kill(self):
        self.process.kill()

    def stop(self):
        self.process.stop()

    def section(self):
        """The entropy section of a configuration, with one source for each policy."""
        lab = {"type": "grpc", "address": self.address, "recover_min": "100ms", "recover_max": "200ms"}
        return {
            "sources": [
                {"name": "lab-strict", **lab, "policy": "strict"},
                {"name": "lab-fallback", **lab, "policy": "fallback", "fallback": "system"},
                {"name": "lab-observe", **lab, "policy": "observe"},
            ]
        }


class Sidecar:
    """`qr-gateway sidecar` alone: plugins dial its socket, gateways its address."""

    def __init__(self, folder, socket, config):
        self.socket, self.address = socket, f"127.0.0.1:{free_port()}"
        self.secret = folder / "secret"
        self.secret.write_text(secrets.token_urlsafe(24))
        self.secret.chmod(0o600)
        section = {"socket": str(socket), "listen": self.address, "secret_file": str(self.secret), "deadline": DEADLINE}
        file = written(folder, "sidecar", {"sidecar": section, **config})
        self.process = Process("sidecar", [PROGRAM, "sidecar", "--config", file], folder / "sidecar.log")

    def start(self):
        self.process.start()
        self.process.wait_until("has its socket", self.socket.exists, 60)
        return self

    def kill(self):
        self.process.kill()
        self.socket.unlink(missing_ok=True)

    def stop(self):
        self.process.stop()


class Gateway:
    """`qr-gateway serve`, with a sidecar inside whose socket is `socket`."""

    def __init__(self, folder, socket, config):
        self.port, self.socket = free_port(), socket
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=300, trust_env=False)
        section = {"socket": str(socket), "deadline": DEADLINE} | config.pop("sidecar")
        file = written(folder, "gateway", {"sidecar": section, **config})
        command = [PROGRAM, "serve", "--config", file, "--listen", f"127.0.0.1:{self.port}"]
        self.process = Process("gateway", command, folder / "gateway.log")

    def start(self):
        self.process.start()
        self.process.wait_until("is ready", lambda: self.status("/readyz") == 200, 120)
        return self

    def kill(self):
        self.process.kill()

    def stop(self):
        self.process.stop()

    def status(self, path):
        try:
            return self.http.get(path).status_code
        except httpx.TransportError:
            return 0

    def model(self, name):
        """What /v1/models says of a model."""
        return self.http.get(f"/v1/models/{name}").json()["qr"]

    def wait_models(self, timeout):
        """Until every model is served, and those on vLLM have their tokens chosen here."""
        waiting = {}

        def served():
            said = {m["id"]: m["qr"] for m in self.http.get("/v1/models").json()["data"]}
            waiting.clear()
            waiting.update({k: q for k, q in said.items() if q["state"] != "ready" or q.get("unsampled")})
            return not waiting

        try:
            self.process.wait_until("serves its models", served, timeout)
        except AssertionError as e:
            raise AssertionError(f"not served: {waiting}\n{e}") from None
