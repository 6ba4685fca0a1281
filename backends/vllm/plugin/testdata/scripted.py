"""A sidecar that does what a test tells it to."""

import json
import mmap
import os
import socket
import threading
import zlib

import frames
import numpy as np

TOKEN, WHOLE, NATIVE, STOP, ILLEGAL, UNKNOWN = range(6)


def token_of(rid, step, vocab):
    return zlib.crc32(f"{rid}:{step}".encode()) % vocab


class Sidecar:
    """Answers each row with token_of unless `answer` says otherwise; keeps what it was told. `greet` and `react` replace its frames."""

    def __init__(self, path, top=4, deadline_ms=2000):
        self.path, self.top, self.deadline_ms = path, top, deadline_ms
        self.hellos, self.begins, self.ended, self.steps, self.live = [], [], [], [], {}
        self.answer = self.greet = self.react = None
        self.sockets, self.threads, self.mappings = [], [], []
        self.start()

    def start(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(8)
        self._spawn(self._accept, self.listener)

    def kill(self):
        """Ends as a process does that is killed."""
        for s in [self.listener, *self.sockets]:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()
        for t in self.threads:
            t.join(30)
            assert not t.is_alive()
        self.sockets, self.threads, self.live = [], [], {}
        if os.path.exists(self.path):
            os.unlink(self.path)

    def _spawn(self, run, *args):
        t = threading.Thread(target=run, args=args)
        self.threads.append(t)
        t.start()

    def _accept(self, listener):
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            self.sockets.append(conn)
            self._spawn(self._serve, conn)

    def _serve(self, conn):
        try:
            self._session(conn)
        except (OSError, EOFError):
            pass
        conn.close()

    def _read(self, conn, n):
        data = bytearray()
        while len(data) < n:
            part = conn.recv(n - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _frame(self, conn):
        size, kind, flags, count, seq = frames.HEADER.unpack(self._read(conn, frames.HEADER.size))
        return kind, flags, count, seq, self._read(conn, size)

    def _hello(self, conn):
        data, fds, _, _ = socket.recv_fds(conn, frames.HEADER.size, 4)
        data += self._read(conn, frames.HEADER.size - len(data)) if len(data) < frames.HEADER.size else b""
        size, kind, _, _, _ = frames.HEADER.unpack(data)
        assert kind == frames.HELLO and len(fds) == 1
        hello = json.loads(self._read(conn, size))
        self.hellos.append(hello)
        m = mmap.mmap(fds[0], hello["stride"] * hello["max_rows"], prot=mmap.PROT_READ)
        os.close(fds[0])
        return hello, np.frombuffer(m, np.float32).reshape(hello["max_rows"], -1)

    def _session(self, conn):
        hello, memory = self._hello(conn)
        if self.greet:
            conn.sendall(self.greet(hello))
        else:
            welcome = {"protocol": 1, "schema": hello["schema"], "sidecar": "scripted", "top": self.top, "deadline_ms": self.deadline_ms}
            conn.sendall(frames.message(frames.WELCOME, welcome))
        live, last = {}, 0
        self.live = live
        while True:
            kind, flags, count, seq, body = self._frame(conn)
            if kind == frames.BEGIN_KIND:
                b = frames.begin(body)
                assert b["handle"] not in live
                live[b["handle"]] = b
                self.begins.append(b)
            elif kind == frames.END:
                self.ended += [live[h]["rid"] for h in frames.unsigned(body)]
                assert len(body) == 4 * count
            else:
                assert kind == frames.STEP and seq == last + (not flags), (kind, seq, last, flags)
                last = seq
                reply = self._step(hello, memory, live, flags, seq, frames.rows(body, count, min(self.top, hello["vocab"])))
                if reply is None:
                    return
                conn.sendall(reply)

    def _step(self, hello, memory, live, flags, seq, rows):
        for r in rows:
            assert r["zero"] == 0
            r["rid"], r["rest"] = live[r["handle"]]["rid"], flags == 1
            if r["form"] == 1:
                r["row"] = memory[r["slot"]][: hello["vocab"]].copy()
        self.steps.append(rows)
        answers = []
        for r in rows:
            own = self.answer(r) if self.answer else None
            answers.append(own or (token_of(r["rid"], r["step"], hello["vocab"]), TOKEN))
        reply = frames.choice(seq, answers)
        return self.react(seq, reply) if self.react else reply
