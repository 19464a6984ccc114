"""A receiver of webhooks in a thread: it keeps what it is sent, and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
import msgspec

from tests.answering import answering


@attrs.frozen
class Taken:
    """One request: its path, its headers in lower case, its body."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """Of a Standard Webhook."""
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        """The body, read."""
        return msgspec.json.decode(self.body)


@attrs.define(eq=False)
class Receiver:
    """What came, and what is answered: a status and headers, or silence while `open` is not set."""

    url: str = ""
    status: int = 204
    answers: dict[str, str] = attrs.field(factory=dict)
    taken: list[Taken] = attrs.field(factory=list)
    open: threading.Event = attrs.field(factory=threading.Event)

    def ids(self) -> list[str]:
        """The ids of what came, in order."""
        return [one.id for one in self.taken]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a port of this machine."""
    found = Receiver()
    found.open.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.taken.append(Taken(self.path, headers, body))
            found.open.wait(60)
            try:
                self.send_response(found.status)
                for name, value in found.answers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()
            except (BrokenPipeError, ConnectionResetError):
                # Who asked is gone.
                pass

        def log_message(self, *_arguments: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_arguments: Any) -> None:
            # A service that was killed reads no answer.
            pass

    server = Server(("127.0.0.1", 0), Handler)
    with answering(server) as found.url:
        try:
            yield found
        finally:
            found.open.set()
