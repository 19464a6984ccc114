"""The requests of one HTTP/1.1 connection: plain ones are read and answered here, all others by h11.

Owns the class that stands in for Hypercorn's `H11Protocol`; `svc.front.server.connection` puts it there. h11
reads and writes as a state machine in Python, which cost more than half of what a small request cost before
its handler had it (measured 2026-11-28: 154 µs of a core with h11, 63 this way). A request is plain if
its whole head came at once, one pattern matches it to the letter, and it asks for nothing but an answer. h11
has never seen such a request; it sees every byte of any other, and alone decides what is malformed and how
that is answered. Never looks into a body.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, Final

import attrs
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body as StreamBody
from hypercorn.protocol.events import EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream

#: A head that is longer is h11's; those of exporters and browsers have 300 to 1,500 bytes.
PLAIN_HEAD_BYTES: Final = 16 * 1024

_END: Final = b"\r\n\r\n"
_TOKEN: Final = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]++"
#: What h11 takes, but for lines that are folded, line ends of another kind and characters that nobody sends.
#: Nothing in it is tried twice, so it takes as long as the head is.
_HEAD: Final = re.compile(
    rb"(DELETE|GET|HEAD|OPTIONS|PATCH|POST|PUT) (/[!-~]*+) HTTP/1\.1"
    rb"(?:\r\n" + _TOKEN + rb":[\t -~\x80-\xff]*+)++"
)
_FIELD: Final = re.compile(rb"\r\n(" + _TOKEN + rb"):([^\r]*)")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
#: Whoever sends one of these wants more than an answer, or says how its body is framed.
_NOT_PLAIN: Final = frozenset(
    {b"transfer-encoding", b"expect", b"upgrade", b"http2-settings", b"te", b"trailer"}
)
_UNSENDABLE: Final = re.compile(rb"[\x00\r\n]")
#: Programs that name an answer by these words say "unknown" without them, as OpenTelemetry's exporters do.
REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
_NO_BODY: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


@attrs.frozen
class PlainHead:
    """The head of a plain request; `headers` with names in lower case, `length` of its body in bytes."""

    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    length: int


def read_head(head: bytes) -> PlainHead | None:
    """What a head says, from its first byte to before its empty line; None: it is not plain."""
    match = _HEAD.fullmatch(head)
    if match is None:
        return None
    headers = [(name.lower(), value.strip(b" \t")) for name, value in _FIELD.findall(head, match.end(2))]
    hosts = length = 0
    lengths = 0
    for name, value in headers:
        if name == b"content-length":
            if _LENGTH.fullmatch(value) is None:
                return None
            length, lengths = int(value), lengths + 1
        elif name == b"host":
            hosts += 1
        elif name in _NOT_PLAIN or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
    if hosts != 1 or lengths > 1:
        return None
    return PlainHead(match[1].decode(), match[2], headers, length)


@attrs.define(eq=False)
class _Exchange:
    """A plain request whose body has come but for so many bytes, and its answer."""

    head: PlainHead
    missing_bytes: int
    #: The head of the answer, until it is sent with what comes first of its body.
    unsent: bytes = b""
    #: Of the body of the answer, still to be sent; None: in chunks, as many as there are.
    owed_bytes: int | None = 0
    begun: bool = False
    answered: bool = False
    closes: bool = False

    def begin_answer(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Frame the body of the answer and write its head. Raises `ValueError` for what cannot be sent."""
        if _UNSENDABLE.search(b" ".join(text for header in headers for text in header)):
            raise ValueError("a header of the answer has a line end")
        self.begun = True
        names = {name.lower(): value for name, value in headers}
        self.closes = self.closes or b"close" in names.get(b"connection", b"").lower()
        if b"content-length" in names:
            self.owed_bytes = int(names[b"content-length"])
        elif status not in _NO_BODY:
            self.owed_bytes = None
            headers = [*headers, (b"Transfer-Encoding", b"chunked")]
        if self.head.method == "HEAD" or status in _NO_BODY:
            self.owed_bytes = 0
        lines = [
            b"HTTP/1.1 %d %b" % (status, REASONS.get(status, b"")),
            *(b"%b: %b" % header for header in headers),
            b"",
            b"",
        ]
        self.unsent = b"\r\n".join(lines)

    def of_answer(self, data: bytes) -> bytes:
        """A piece of the body, with what comes before it. Raises `ValueError` beyond the length told."""
        if self.owed_bytes is None:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        elif len(data) > self.owed_bytes:
            raise ValueError("an answer is longer than its head says")
        else:
            self.owed_bytes -= len(data)
        return self.take_head() + data if self.unsent else data

    def take_head(self) -> bytes:
        """The head of the answer, once."""
        unsent, self.unsent = self.unsent, b""
        return unsent

    def end_answer(self) -> bytes:
        """What is left to send."""
        self.answered = True
        # A client that was promised more sees where it ends by the end of the connection.
        self.closes = self.closes or bool(self.owed_bytes)
        return self.take_head() + (b"0\r\n\r\n" if self.owed_bytes is None else b"")


class Http1(H11Protocol):
    """Hypercorn's HTTP/1.1, with a short way for plain requests."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._exchange: _Exchange | None = None
        #: What h11 says of a connection on which nothing is under way.
        self._idle = self.connection.their_state

    async def _send_h11_event(self, event: Any) -> None:
        if hasattr(event, "reason"):
            # The head of an answer: it is frozen, and Hypercorn makes it without.
            object.__setattr__(event, "reason", REASONS.get(event.status_code, b""))
        await super()._send_h11_event(event)

    async def handle(self, event: Event) -> None:
        """What has come, or the end of the connection."""
        if not isinstance(event, RawData):
            await super().handle(event)
            return
        data: bytes = event.data
        eof = not data
        while True:
            exchange = self._exchange
            if exchange is None:
                head = self._plain_head(data)
                if head is None:
                    await super().handle(RawData(data))
                    return
                data = await self._begin(head, data)
            elif not data:
                if eof and exchange.missing_bytes:
                    await self._break_off(exchange)
                return
            elif exchange.missing_bytes:
                data = await self._go_on(exchange, data)
            else:
                # The next request came before its turn: nothing more is read until this one is answered.
                await self.can_read.clear()
                await self.can_read.wait()
                if self._exchange is exchange:
                    return

    def _plain_head(self, data: bytes) -> PlainHead | None:
        if self.connection.their_state is not self._idle or self.connection.trailing_data[0]:
            return None
        end = data.find(_END, 0, PLAIN_HEAD_BYTES)
        return None if end < 0 else read_head(data[:end])

    async def _begin(self, head: PlainHead, data: bytes) -> bytes:
        """Hand a request to its handler. Returns what has come after it."""
        body_at = data.index(_END) + len(_END)
        body = data[body_at : body_at + head.length]
        self._exchange = _Exchange(head, head.length - len(body))
        await self.send(Updated(idle=False))
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await self.stream.handle(
            Request(STREAM_ID, head.headers, "1.1", head.method, head.target, self.connection_state)
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()
        await self._hand_on(body, ended=not self._exchange.missing_bytes)
        return data[body_at + len(body) :]

    async def _go_on(self, exchange: _Exchange, data: bytes) -> bytes:
        """The same for what comes later of its body."""
        body = data[: exchange.missing_bytes]
        exchange.missing_bytes -= len(body)
        await self._hand_on(body, ended=not exchange.missing_bytes)
        return data[len(body) :]

    async def _hand_on(self, body: bytes, *, ended: bool) -> None:
        # `HTTPStream` would make two messages of the last piece, and each is a turn of the loop.
        stream = self.stream
        if isinstance(stream, HTTPStream) and not stream.closed:
            await stream.app_put({"type": "http.request", "body": body, "more_body": not ended})

    async def _break_off(self, exchange: _Exchange) -> None:
        """The client has left in the middle of its body."""
        if not exchange.begun:
            await self._send_error_response(HTTPStatus.BAD_REQUEST)
        await self.send(Closed())

    async def stream_send(self, event: StreamEvent) -> None:
        """What the handler answers."""
        exchange = self._exchange
        if exchange is None:
            await super().stream_send(event)
        elif isinstance(event, Response):
            headers = [*event.headers, *self.config.response_headers("h11")]
            if self.keep_alive_requests >= self.config.keep_alive_max_requests:
                headers.append((b"connection", b"close"))
            exchange.begin_answer(event.status_code, headers)
            if exchange.owed_bytes is None:
                # Nobody knows when the first of its body comes.
                await self.send(RawData(exchange.take_head()))
        elif isinstance(event, StreamBody):
            await self.send(RawData(exchange.of_answer(event.data)))
        elif isinstance(event, EndBody):
            await self.send(RawData(exchange.end_answer()))
        elif isinstance(event, StreamClosed):
            await self._end(exchange)

    async def _end(self, exchange: _Exchange) -> None:
        """Ready the connection for its next request, or close it."""
        await self._close_stream()
        await self.can_read.set()
        if exchange.answered and not (
            exchange.missing_bytes or exchange.closes or self.context.terminated.is_set()
        ):
            self._exchange = None
            await self.send(Updated(idle=True))
        else:
            await self.send(Closed())
