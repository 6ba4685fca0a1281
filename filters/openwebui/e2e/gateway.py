"""The gateway under test, and what its log says about the requests that came."""

import json
import os
import signal
from pathlib import Path

import httpx

from processes import Process, free_port, wait_for

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "bin" / "qr-gateway"


class Gateway:
    def __init__(self, folder, config, name="gateway"):
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=30, trust_env=False)
        self.log = folder / f"{name}.log"
        file = folder / f"{name}.yaml"
        # JSON is YAML.
        file.write_text(json.dumps({**config, "log": {"format": "json"}}, indent=2))
        command = [PROGRAM, "serve", "--config", file, "--listen", f"127.0.0.1:{self.port}"]
        self.process = Process(name, command, self.log, cwd=folder)

    def start(self):
        self.process.start()
        self.process.wait_until("is ready", lambda: self._status("/readyz") == 200, 90)
        return self

    def stop(self):
        self.process.stop()

    def _status(self, path):
        try:
            return self.http.get(path).status_code
        except httpx.TransportError:
            return 0

    def models(self):
        return {m["id"]: m for m in self.http.get("/v1/models").json()["data"]}

    def model(self, name):
        return self.http.get(f"/v1/models/{name}").json()["qr"]

    def wait_idle(self, name, timeout=2.0):
        """Waits until no worker of the model is taken; two seconds is what Stop may take."""
        wait_for(f"model {name} to be idle", lambda: self.model(name)["busy"] == 0, timeout)

    def wait_busy(self, name, workers=1, timeout=10.0):
        wait_for(f"{workers} busy workers of {name}", lambda: self.model(name)["busy"] >= workers, timeout)

    def engines(self):
        """Process ids of the engines that this gateway started."""
        wanted = str(self.process.child.pid)
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(") ")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if fields[1] == wanted and "qr-engine" in (stat.parent / "comm").read_text():
                found.append(int(stat.parent.name))
        return found

    def kill_engines(self):
        for pid in self.engines():
            os.kill(pid, signal.SIGKILL)

    def mark(self):
        """The log's end: records after it are those of what is done next."""
        return self.log.stat().st_size

    def records(self, mark, message="request"):
        with open(self.log, "rb") as f:
            f.seek(mark)
            lines = f.read().split(b"\n")[:-1]
        found = [json.loads(line) for line in lines if line.startswith(b"{")]
        return [r for r in found if r.get("msg") == message]

    def chats(self, mark):
        """Records of completions that were no tasks."""
        return [r for r in self.completions(mark) if not r.get("task")]

    def tasks(self, mark):
        return [r for r in self.completions(mark) if r.get("task")]

    def completions(self, mark):
        return [r for r in self.records(mark) if r["path"].endswith("/chat/completions")]

    def wait_chat(self, mark, timeout=30.0):
        """The record of the first chat after the mark."""
        return wait_for("a chat in the gateway's log", lambda: self.chats(mark), timeout)[0]
