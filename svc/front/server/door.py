"""The HTTP door: the one ASGI application that Hypercorn serves.

Owns what concerns every request: counting what is in flight, so that a stop can wait for it, refusing what
is ambiguous on the wire, and sending the paths of OTLP, the one hot route among them, and `/mcp` straight to
their handlers, while everything else goes through Quart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import trio

from protocol.refusals import (
    BAD_REQUEST,
    GRPC_ELSEWHERE,
    GRPC_OFF,
    NOT_FOUND,
    STOPPING,
    USE_HTTPS,
    Refusal,
)
from svc.domain.lazy_numpy import is_loaded, load
from svc.front.otlp.lately import GRPC_OVER_HTTP, RefusedLately
from svc.front.server.plain import PlainPort
from svc.front.server.sub_path import SubPath

AsgiScope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, Receive, Send], Awaitable[None]]

_JSON: Final = b"application/json"

#: Said over TLS only: over a plain connection it means nothing.
STRICT_TRANSPORT: Final = (b"strict-transport-security", b"max-age=31536000")

#: What asks for these asks again and again, whether or not anybody is there.
PROBES: Final = "/actuator/"

_TWO_LENGTHS: Final = BAD_REQUEST.saying("the request has both a Content-Length and a Transfer-Encoding")


class Door:
    """Routes requests and knows how many are inside."""

    def __init__(
        self,
        *,
        otlp: Mapping[str, AsgiApp],
        mcp: AsgiApp,
        app: AsgiApp,
        grpc_port: int | None = None,
        plain: PlainPort | None = None,
        sub_path: SubPath | None = None,
        lately: RefusedLately | None = None,
    ) -> None:
        self._lately = lately
        self._sub_path = sub_path
        self._otlp, self._mcp, self._app, self._plain = otlp, mcp, app, plain
        self._no_grpc = GRPC_OFF if grpc_port is None else GRPC_ELSEWHERE.format(port=grpc_port)
        self._closing = False
        self._emptied = trio.Event()
        self.in_flight = 0
        #: Requests so far, but for those of probes and of monitoring.
        self.arrived = 0

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """One ASGI connection scope."""
        if scope["type"] == "websocket":
            await _refuse_websocket(send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        arrived = scope
        if self._sub_path is not None:
            scope, send = self._sub_path.inward(scope), self._sub_path.outward(send)
        if self._plain is not None and scope["scheme"] == "https":
            send = _strictly(send)
        self.in_flight += 1
        self.arrived += not scope["path"].startswith(PROBES)
        try:
            if self._closing:
                await Body(receive).drain()
                await refuse(send, STOPPING, close=True)
            elif _has_two_lengths(scope):
                await Body(receive).drain()
                await refuse(send, _TWO_LENGTHS, close=True)
            elif self._plain is not None and scope["scheme"] == "http" and not self._plain.lets_in(scope):
                await Body(receive).drain()
                await _send_away(send, scope, self._plain, arrived)
            elif _is_grpc(scope):
                await Body(receive).drain()
                await self._refuse_grpc(send, trailed=scope.get("http_version") == "2")
            elif (otlp := self._otlp.get(scope["path"])) is not None:
                await otlp(scope, receive, send)
            elif scope["path"] == "/mcp":
                await _handed_on(self._mcp, scope, receive, send)
            else:
                exchange = _Exchange(receive, send)
                await _handed_on(self._app, scope, exchange.receive, exchange.send)
        except HungUp:
            return
        finally:
            self.in_flight -= 1
            if self._closing and not self.in_flight:
                self._emptied.set()

    async def _refuse_grpc(self, send: Send, *, trailed: bool) -> None:
        """An answer without a message, as gRPC has it: clients show its text, and of a 404 nothing."""
        if self._lately is not None:
            self._lately.note(GRPC_OVER_HTTP, self._no_grpc)
        headers = [(b"content-type", b"application/grpc")]
        trailers = [(b"grpc-status", b"12"), (b"grpc-message", quote(self._no_grpc, safe=" ;=_").encode())]
        if not trailed:
            # Over HTTP/1.1 nobody speaks gRPC; whoever tries can read it in the head.
            headers, trailers = [*headers, *trailers], []
        await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": trailed})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        if trailed:
            await send({"type": "http.response.trailers", "headers": trailers})

    async def close(self, timeout_s: float) -> bool:
        """Refuse new requests and wait for those inside. Returns whether all of them ended in time."""
        self._closing = True
        if not self.in_flight:
            return True
        with trio.move_on_after(timeout_s):
            await self._emptied.wait()
        return not self.in_flight


async def _handed_on(app: AsgiApp, scope: AsgiScope, receive: Receive, send: Send) -> None:
    """To what may draw or measure. Whoever comes first waits until numpy is there, and nobody else does."""
    if not is_loaded() and not scope["path"].startswith(PROBES):
        await trio.to_thread.run_sync(load)
    await app(scope, receive, send)


async def _send_away(send: Send, scope: AsgiScope, plain: PlainPort, arrived: AsgiScope) -> None:
    """Answer an authority's question, lead a reader to TLS, and tell a sender that its token was exposed."""
    if plain.asks_for_proof(scope):
        proof = await plain.proof(scope)
        if proof is None:
            await refuse(send, NOT_FOUND)
        else:
            await respond(send, 200, b"application/octet-stream", proof.encode())
        return
    location = plain.location(arrived)
    if location is None:
        await refuse(send, USE_HTTPS, close=True)
    else:
        await respond(send, 308, b"text/plain; charset=utf-8", b"", [(b"location", location)])


def _strictly(send: Send) -> Send:
    """Every answer says that this name is to be reached over TLS alone (RFC 6797)."""

    async def strict(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], STRICT_TRANSPORT]}
        await send(message)

    return strict


def _is_grpc(scope: AsgiScope) -> bool:
    return any(
        name == b"content-type" and value.startswith(b"application/grpc") for name, value in scope["headers"]
    )


def _has_two_lengths(scope: AsgiScope) -> bool:
    """Whether two readers could see two bodies (RFC 9112 §6.3); a proxy before us may have read the other."""
    names = [name for name, _ in scope["headers"]]
    return b"transfer-encoding" in names and b"content-length" in names


def has_two_authorizations(scope: AsgiScope) -> bool:
    """Whether two readers could see two credentials."""
    names: list[bytes] = [name for name, _ in scope["headers"]]
    return names.count(b"authorization") > 1


#: What is read and thrown away so that a refused client can hear its answer on a living connection.
DRAIN_BYTES: Final = 80 * 1024 * 1024
DRAIN_TIMEOUT_S: Final = 5.0


class HungUp(Exception):
    """The client went away before its body was complete; there is nobody to answer."""


class Body:
    """The body of one request: read it, or drain what is left of it, but never leave it lying.

    An unread body would block Hypercorn's connection for ever, and an exporter that is still sending would
    see a broken connection instead of its answer.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = False

    async def chunk(self) -> bytes | None:
        """The next piece, or None after the last. Raises `HungUp`."""
        if self._ended:
            return None
        message = await self._receive()
        if message["type"] != "http.request":
            self._ended = True
            raise HungUp
        self._ended = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece

    async def drain(self) -> bool:
        """Throw away what is left. Returns whether the end was reached within the bounds."""
        drained = 0
        with trio.move_on_after(DRAIN_TIMEOUT_S):
            while drained < DRAIN_BYTES:
                piece = await self.chunk()
                if piece is None:
                    return True
                drained += len(piece)
        return self._ended


class _Exchange:
    """Receive and send of one request that Quart answers, which neither overtake nor cut off each other.

    Quart goes on reading while it answers. An answer that overtakes its body spoils the connection: over
    HTTP/1.1 Hypercorn then closes it without a word, over HTTP/2 it has forgotten the stream that the rest
    belongs to. So an answer waits for the end of its body. And the disconnect that Hypercorn tells after the
    last of an answer makes quart-trio cancel the very send that is still readying the connection for its next
    request, or closing it. So once the last is on its way, Quart hears no more.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._over = trio.Event()
        self._size, self._ended, self._answered = 0, False, False

    async def receive(self) -> dict[str, Any]:
        """The next message of the request."""
        message = await self._receive()
        if message["type"] != "http.request" and self._answered:
            await trio.sleep_forever()
        self._ended = not message.get("more_body", False)
        self._size += len(message.get("body", b""))
        if self._ended or self._size > DRAIN_BYTES:
            self._over.set()
        return message

    async def send(self, message: dict[str, Any]) -> None:
        """The next message of the answer, its start not before the body is in (within the bounds)."""
        if message["type"] == "http.response.start":
            with trio.move_on_after(DRAIN_TIMEOUT_S):
                await self._over.wait()
            if not self._ended:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        else:
            self._answered = not message.get("more_body", False)
        await self._send(message)


async def respond(
    send: Send, status: int, content_type: bytes, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send one complete response."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", content_type),
                (b"content-length", str(len(body)).encode()),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def refuse(
    send: Send,
    refusal: Refusal,
    *,
    close: bool = False,
    headers: Iterable[tuple[bytes, bytes]] = (),
    content: tuple[bytes, bytes] | None = None,
) -> None:
    """Send a refusal as the failure envelope, or as other content: its type and bytes."""
    extra = list(headers)
    if refusal.retry_after_s is not None:
        extra.append((b"retry-after", str(refusal.retry_after_s).encode()))
    if close:
        extra.append((b"connection", b"close"))
    content_type, body = content or (_JSON, refusal.body())
    await respond(send, refusal.status, content_type, body, extra)


async def _refuse_websocket(send: Send) -> None:
    body = NOT_FOUND.body()
    headers = [
        (b"content-type", _JSON),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "websocket.http.response.start", "status": NOT_FOUND.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body, "more_body": False})
