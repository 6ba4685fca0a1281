"""Child processes with a log file and a way to wait for what they promise."""

import os
import signal
import socket
import subprocess
import time

POLL = 0.05


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, check, timeout):
    """Returns the first true result of check(); what and its last result are named when there is none in time."""
    deadline = time.monotonic() + timeout
    while True:
        got = check()
        if got:
            return got
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g}s for {what}; last seen: {got!r}")
        time.sleep(POLL)


class Process:
    """A program in a process group of its own, so that nothing of it outlives the tests."""

    def __init__(self, name, command, log, env=None):
        self.name, self.command, self.log, self.child = name, [str(c) for c in command], log, None
        # Without what is for the tests alone; and Python may keep what it compiles, which is much of a start of vLLM.
        kept = {k: v for k, v in os.environ.items() if not k.startswith("QR_") and k != "PYTHONDONTWRITEBYTECODE"}
        self.env = kept | (env or {})

    def start(self):
        with open(self.log, "ab") as out:
            self.child = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env, start_new_session=True
            )
        return self

    def alive(self):
        return self.child is not None and self.child.poll() is None

    def wait_until(self, what, check, timeout):
        def checked():
            if not self.alive():
                raise AssertionError(f"{self.name} ended with {self.child.returncode}")
            return check()

        try:
            return wait_for(f"{self.name} {what}", checked, timeout)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.tail()}") from None

    def tail(self, lines=40):
        return "\n".join(self.text().splitlines()[-lines:])

    def text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def kill(self):
        """Ends it as a power cut would."""
        self._signal(signal.SIGKILL)
        self.child.wait()

    def stop(self):
        if self.child is None:
            return
        self._signal(signal.SIGTERM)
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            pass
        self._signal(signal.SIGKILL)
        self.child.wait()

    def _signal(self, number):
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:
            pass
