"""What may stand where a gateway should: a web page, and a server that takes its time."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b"<!doctype html><html><head><title>Sign in</title></head><body><h1>Sign in to the proxy</h1></body></html>"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._page(200)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/slow"):
            self._slow()
        else:
            self._page(200 if self.path.startswith("/html200") else 404)
            self.server.standin.shown.set()

    def _page(self, status):
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def _slow(self):
        """Headers and comments, and the answer only when the test says so."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            while not self.server.standin.released.wait(0.2):
                self.wfile.write(b": queued, position 1\n\n")
                self.server.standin.waiting.set()
            self.wfile.write(b'data: {"choices":[{"index":0,"delta":{"content":"At last."}}]}\n\ndata: [DONE]\n\n')
        except (BrokenPipeError, ConnectionResetError):
            pass  # its client went away

    def log_message(self, *_):
        pass


class StandIn:
    def __init__(self):
        self.released = threading.Event()  # set by a test: the slow answer may come
        self.shown = threading.Event()  # a page came as an answer
        self.waiting = threading.Event()  # a request waits
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.standin = self
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
