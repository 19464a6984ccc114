"""A terminator for tests: shows a service under a path of its host, and another application everywhere else.

Takes the path off or hands it on, as `strips` says. `strayed` are the paths that were asked of the other one.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import attrs

#: Of one connection only (RFC 9110 §7.6.1).
_HOPS = {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer"}


@attrs.frozen
class Terminator:
    """Where it is reached, with the path, and what was asked outside of it."""

    url: str
    strayed: list[str]


@contextmanager
def terminated(port: int, path: str, *, strips: bool) -> Iterator[Terminator]:
    """A terminator before a port of this machine."""
    strayed: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the service has its own log."""

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            below = self.path.split("?")[0]
            if below != path and not below.startswith(path + "/"):
                # Browsers ask for this by themselves.
                if below != "/favicon.ico":
                    strayed.append(self.path)
                self._answer(404, [("content-type", "text/plain")], b"the other application")
                return
            target = self.path.removeprefix(path) or "/" if strips else self.path
            target = target if target.startswith("/") else "/" + target
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOPS}
            connection.request(self.command, target, body or None, headers)
            answer = connection.getresponse()
            received = answer.read()
            connection.close()
            self._answer(answer.status, answer.getheaders(), received)

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in _HOPS | {"content-length"}:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _forward

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Terminator(f"http://127.0.0.1:{server.server_address[1]}{path}", strayed)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
