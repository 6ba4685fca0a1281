"""Entropy sources of all manners, for the tests of the host."""

import os
import signal
import subprocess
import sys
import time


class Good:
    name = "lab_good"
    is_available = True
    device_id = "bench 7"

    def get_random_bytes(self, n):
        return os.urandom(n)

    def close(self):
        print("lab closed", file=sys.stderr, flush=True)


class Configured(Good):
    """As the reference makes its own: one argument, called config."""

    def __init__(self, config):
        self._config = config

    @property
    def name(self):
        return f"lab_{self._config.label}"


class Keywords(Good):
    def __init__(self, value=0, *, size=1):
        self._byte = bytes([value]) * size

    def get_random_bytes(self, n):
        return (self._byte * n)[:n]


class Prints(Good):
    """Writes to standard output in every way there is, and reads standard input."""

    def __init__(self):
        print("in the constructor")

    def get_random_bytes(self, n):
        print("a print", flush=True)
        sys.__stdout__.write("the old stdout\n")
        sys.__stdout__.flush()
        os.write(1, b"the descriptor\n")
        subprocess.run(["echo", "a child process"], check=True)
        if sys.stdin.read() != "" or os.read(0, 10) != b"":
            raise RuntimeError("standard input is not empty")
        return os.urandom(n)


class OnSize(Good):
    """Misbehaves when 13 bytes are asked."""

    def get_random_bytes(self, n):
        return self.misbehave(n) if n == 13 else os.urandom(n)


class Raises(OnSize):
    def misbehave(self, n):
        raise ValueError("the diode is cold: ünïcode")


class Short(OnSize):
    def misbehave(self, n):
        return os.urandom(n - 1)


class Long(OnSize):
    def misbehave(self, n):
        return bytearray(n + 1)


class Text(OnSize):
    def misbehave(self, n):
        return "x" * n


class Nothing(OnSize):
    def misbehave(self, n):
        return None


class Sleeps(OnSize):
    def misbehave(self, n):
        time.sleep(10**6)


class Deaf(OnSize):
    """Sleeps, and won't be told to end."""

    def misbehave(self, n):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(10**6)


class Swallows(OnSize):
    """Takes every exception for its own."""

    def misbehave(self, n):
        while True:
            try:
                time.sleep(10**6)
            except Exception:
                pass


class Dies(OnSize):
    def misbehave(self, n):
        print("dying", file=sys.stderr, flush=True)
        os._exit(9)


class Exits(OnSize):
    def misbehave(self, n):
        sys.exit("out of luck")


class Forks(OnSize):
    """Leaves a copy of the host behind, which goes on as if it were the host."""

    def misbehave(self, n):
        os.fork()
        return os.urandom(n)


class Spawns(Good):
    """Starts a child process that outlives it."""

    def __init__(self):
        child = subprocess.Popen(["sleep", "100000"])
        self.device_id = str(child.pid)


class Absent(Good):
    def is_available(self):
        return False


class Moody(Good):
    @property
    def is_available(self):
        raise OSError("nobody knows")


class Bare:
    """Has only what is needed."""

    def get_random_bytes(self, n):
        return memoryview(os.urandom(n))

    def close(self):
        raise RuntimeError("close failed")


class NoMethods:
    name = "none"


class Broken:
    def __init__(self):
        raise OSError("no such port")


def factory():
    return Good()


constant = 7
