"""Tests of the host without a gateway: frames in, frames out."""

import io
import json
import os
import signal
import struct
import subprocess
import sys
import unittest

from qr_exec_source import Config, LoadError, SourceError, Status, load, serve
from qr_exec_source.frames import FrameError, read_request, write_error, write_hello, write_reply
from qr_exec_source.loading import instantiate


class Source:
    name = "unit"
    is_available = True

    def __init__(self, give=None):
        self.give = give or os.urandom

    def get_random_bytes(self, n):
        return self.give(n)

    def close(self):
        pass


def ask(*requests):
    return io.BytesIO(b"".join(struct.pack("<4sQI", b"QRXQ", *r) for r in requests))


def replies(data):
    out = []
    while data:
        _, sequence, status, n_device, size, _ = struct.unpack_from("<4sQHHIq", data)
        device, data = data[28 : 28 + n_device], data[28 + n_device :]
        out.append((sequence, status, device.decode(), data[:size]))
        data = data[size:]
    return out


def served(source, *requests):
    out = io.BytesIO()
    serve(source, ask(*requests), out)
    return replies(out.getvalue())


class Frames(unittest.TestCase):
    def test_hello(self):
        out = io.BytesIO()
        write_hello(out, {"name": "x"})
        self.assertEqual(out.getvalue()[:12], b"QRXH" + struct.pack("<II", 1, 13))
        self.assertEqual(json.loads(out.getvalue()[12:]), {"name": "x"})

    def test_end_of_input(self):
        self.assertIsNone(read_request(io.BytesIO()))

    def test_half_a_request(self):
        with self.assertRaises(FrameError):
            read_request(io.BytesIO(b"QRXQ1"))

    def test_no_request(self):
        with self.assertRaises(FrameError):
            read_request(io.BytesIO(b"x" * 16))

    def test_long_text_is_cut_between_characters(self):
        out = io.BytesIO()
        write_error(out, 1, Status.FAILED, "ü" * 5000)
        self.assertEqual(replies(out.getvalue())[0][3].decode(), "ü" * 2048)

    def test_largest_numbers(self):
        out = io.BytesIO()
        write_reply(out, 2**64 - 1, b"", device="d" * 300, time_ns=2**63 - 1)
        self.assertEqual(replies(out.getvalue()), [(2**64 - 1, 0, "d" * 256, b"")])


class Serve(unittest.TestCase):
    def test_bytes(self):
        source = Source()
        source.device_id = "d"
        (reply,) = served(source, (5, 100))
        self.assertEqual((reply[0], reply[1], reply[2], len(reply[3])), (5, 0, "d", 100))

    def test_bytes_like(self):
        for kind in (bytearray, memoryview):
            (reply,) = served(Source(lambda n, kind=kind: kind(os.urandom(n))), (1, 9))
            self.assertEqual((reply[1], len(reply[3])), (0, 9))

    def test_wrong_results(self):
        for give in (lambda n: os.urandom(n - 1), lambda n: os.urandom(n + 1), lambda n: "x" * n, lambda n: list(range(n)), lambda n: None):
            (reply,) = served(Source(give), (1, 9))
            self.assertEqual(reply[1], Status.BROKEN)

    def test_source_error(self):
        def give(n):
            raise SourceError("used up", Status.QUOTA)

        self.assertEqual(served(Source(give), (1, 9))[0][1:], (Status.QUOTA, "", b"used up"))

    def test_exception_is_one_reply(self):
        def give(n):
            if n == 1:
                raise KeyError("k")
            return bytes(n)

        stderr, sys.stderr = sys.stderr, io.StringIO()
        try:
            got = served(Source(give), (1, 1), (2, 2))
        finally:
            sys.stderr = stderr
        self.assertEqual([r[1] for r in got], [Status.FAILED, Status.OK])
        self.assertEqual(got[0][3], b"KeyError: 'k'")

    def test_ping(self):
        source = Source()
        self.assertEqual(served(source, (1, 0))[0][1], Status.OK)
        source.is_available = False
        self.assertEqual(served(source, (1, 0))[0][1], Status.UNAVAILABLE)


class Load(unittest.TestCase):
    def test_config_argument(self):
        class Takes(Source):
            def __init__(self, config):
                super().__init__()
                self.config = config

        made = instantiate(Takes, {"port": "x", "deep": {"a": 1}})
        self.assertEqual((made.config.port, made.config["port"], made.config.deep["a"]), ("x", "x", 1))
        self.assertEqual(instantiate(Takes, None).config, Config())
        with self.assertRaises(AttributeError):
            _ = made.config.missing

    def test_annotated_argument(self):
        def factory(settings: "QRSamplerConfig"):  # noqa: F821
            return settings

        self.assertEqual(instantiate(factory, {"a": 1}).a, 1)

    def test_no_argument(self):
        self.assertIsInstance(instantiate(Source, None), Source)

    def test_keywords(self):
        self.assertEqual(instantiate(Source, {"give": len}).give, len)
        with self.assertRaises(TypeError):
            instantiate(Source, {"unknown": 1})

    def test_config_shows_no_values(self):
        self.assertNotIn("secret", repr(Config({"key": "secret"})))

    def test_bad_names(self):
        for spec in ("", "x", ":", "x:", ":y", "no_such_module:X", "os:NoSuch", "os:sep", "os:getcwd"):
            with self.assertRaises(LoadError):
                load(spec, None, None)

    def test_bad_entry_point(self):
        with self.assertRaises(LoadError):
            load(None, "no such point", None)


SLOW = """
import os, sys, time
class Slow:
    def get_random_bytes(self, n):
        time.sleep(1e6)
    def close(self):
        print("closed", file=sys.stderr, flush=True)
"""


class Process(unittest.TestCase):
    def start(self, *args, code=SLOW):
        env = dict(os.environ, PYTHONPATH=os.pathsep.join([*sys.path]))
        program = f"import sys, types; m = types.ModuleType('slow'); exec({code!r}, m.__dict__); sys.modules['slow'] = m; "
        program += f"from qr_exec_source.__main__ import main; sys.exit(main({list(args)!r}))"
        return subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, stderr=-1, env=env)

    def hello(self, process):
        _, _, size = struct.unpack("<4sII", process.stdout.read(12))
        return json.loads(process.stdout.read(size))

    def test_end_of_input_closes(self):
        process = self.start("slow:Slow", "--class", "jit", "--max-draw", "9")
        hello = self.hello(process)
        self.assertEqual((hello["name"], hello["class"], hello["max_draw"]), ("Slow", "jit", 9))
        out, err = process.communicate()
        self.assertEqual((process.returncode, out, err), (0, b"", b"closed\n"))

    def test_sigterm_in_a_draw_closes(self):
        process = self.start("slow:Slow")
        self.hello(process)
        process.stdin.write(struct.pack("<4sQI", b"QRXQ", 1, 10))
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        process.wait()
        self.assertEqual((process.returncode, process.stderr.read()), (0, b"closed\n"))
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()

    def test_bad_arguments(self):
        for args in ((), ("slow:Slow", "--entry-point", "x"), ("slow:Slow", "--config", "["), ("slow:Slow", "--config", "1"), ("slow:None",)):
            process = self.start(*args)
            out, err = process.communicate()
            self.assertEqual((process.returncode, out), (2, b""), err)


if __name__ == "__main__":
    unittest.main()
