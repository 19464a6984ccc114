"""A stand-in for the encoder service: it scores a text by a word in it, or does what a test tells it to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs

from tests.answering import answering


@attrs.define
class EncoderService:
    """Every call it got, and how it answers: statuses in turn, then scores."""

    url: str = ""
    calls: list[dict[str, Any]] = attrs.field(factory=list)
    keys: list[str | None] = attrs.field(factory=list)
    sizes: list[int] = attrs.field(factory=list)
    statuses: list[int] = attrs.field(factory=list)
    body: bytes | None = None

    def scores(self, call: dict[str, Any]) -> list[float]:
        if "texts" in call:
            return [0.95 if "useless" in text else 0.05 for text in call["texts"]]
        return [0.9 if claim.split()[0] in context else 0.02 for claim, context in call["pairs"]]


@contextmanager
def encoder_service() -> Iterator[EncoderService]:
    """Run it on a free port."""
    service = EncoderService()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            service.sizes.append(len(raw))
            service.keys.append(self.headers.get("authorization"))
            status = service.statuses.pop(0) if service.statuses else 200
            answer = b""
            if status == 200:
                call = json.loads(raw)
                service.calls.append(call)
                answer = service.body or json.dumps({"scores": service.scores(call)}).encode()
            self.send_response(status)
            if status == 429:
                self.send_header("retry-after", "7")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with answering(server) as service.url:
        yield service
