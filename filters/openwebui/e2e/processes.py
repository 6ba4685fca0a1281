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


def wait_for(what, check, timeout=30.0):
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
    """A program in a process group of its own, so that nothing of it outlives the test."""

    def __init__(self, name, command, log, env=None, cwd=None):
        self.name, self.command, self.log = name, [str(c) for c in command], log
        self.env, self.cwd, self.child = env, cwd, None

    def start(self):
        with open(self.log, "ab") as out:
            self.child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **(self.env or {})},
                cwd=self.cwd,
                start_new_session=True,
            )
        return self

    def wait_until(self, what, check, timeout):
        def alive_and_checked():
            if self.child.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.child.returncode}:\n{self.tail()}")
            return check()

        try:
            return wait_for(f"{self.name} {what}", alive_and_checked, timeout)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.tail()}") from None

    def tail(self, lines=30):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def kill(self):
        """Ends it as a power cut would."""
        self._signal(signal.SIGKILL)
        self.child.wait()

    def stop(self):
        if self.child is None:
            return
        self._signal(signal.SIGTERM)
        try:
            self.child.wait(15)
        except subprocess.TimeoutExpired:
            pass
        self._signal(signal.SIGKILL)
        self.child.wait()

    def _signal(self, number):
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:
            pass
