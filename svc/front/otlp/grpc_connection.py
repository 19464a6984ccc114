"""One gRPC connection: what a client sends on it stays on it, and it can be sent away.

Owns the class that stands in for grpclib's connection and the bounds of a call's metadata;
`svc.front.otlp.grpc` serves with it. Whatever goes wrong here ends the connection, never the asyncio loop.
Never looks into a message.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from grpclib.config import Configuration
from grpclib.protocol import H2Protocol, Stream
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamReset, UnknownFrameReceived
from h2.exceptions import ProtocolError

from svc.front.server.body_frames import BodyFrames
from svc.front.server.connection import SEND_TIMEOUT_S
from svc.front.server.connection_limiter import ConnectionLimiter
from svc.front.server.frame_steps import FREE_RESETS, FrameSteps, FrameTooLong, lift_stream_limit
from svc.front.server.hypercorn import HANDSHAKE_TIMEOUT_S
from svc.front.server.known_heads import remember_heads

log = logging.getLogger(__name__)

#: What the metadata of a call may weigh, counted as HTTP/2 counts (RFC 9113 §6.5.2); twice what gRPC's own
#: servers take. A header block of more than 64 KiB ends its connection before it is unpacked.
METADATA_BYTES: Final = 16 * 1024
_ENTRY_BYTES: Final = 32
#: Calls at once on one connection, those included that were reset and have not ended yet. The settings frame
#: promises a hundred.
MOST_CALLS: Final = 128
#: What every request says of itself (RFC 9113 §8.3.1); of one that does not grpclib makes an ERROR and no
#: answer.
_REQUIRED: Final = frozenset({":method", ":path"})
_ROUTING: Final = frozenset({":method", ":path", ":scheme", ":authority", "content-type", "te"})
#: Entries of our own between the connection and the call; no client can send one.
_OURS: Final = "svc-grpc-"
OVERSIZED: Final = _OURS + "oversized"
TIMEOUT: Final = _OURS + "timeout"
ENCODING: Final = _OURS + "encoding"
_RENAMED: Final = {"grpc-timeout": TIMEOUT, "grpc-encoding": ENCODING}
#: GOAWAY: no error, and every call that was begun is answered, whatever its number (RFC 9113 §6.8).
_GOAWAY: Final = struct.pack(">HBBBLLL", 0, 8, 7, 0, 0, (1 << 31) - 1, 0)


class GatheredWrites:
    """A transport that sends in one piece what is written before the loop's next turn.

    grpclib writes an answer in three pieces, each of which is a system call here and wakes the client.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send it with what is written beside it."""
        if not self._pieces:
            self._loop.call_soon(self._send)
        self._pieces.append(data)

    def close(self) -> None:
        """Send what was written, and close."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._pieces:
            self._transport.write(b"".join(self._pieces))
            self._pieces.clear()


class GrpcConnection(H2Protocol):
    """grpclib's connection, which bounds what a client may have under way and never raises over what it sent.

    What came together is read in steps, with a turn of the loop for others between two, and nothing more is
    taken from the socket meanwhile, nor while the client does not take what is sent to it.
    """

    def __init__(
        self,
        handler: Any,
        config: Configuration,
        frames: H2Configuration,
        limiter: ConnectionLimiter,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(handler, config, frames)
        self._limiter, self._tls = limiter, tls
        self._raw: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._is_open = False
        self._steps = FrameSteps()
        self._unread: deque[memoryview] = deque()
        self._is_full = False
        self._patience: asyncio.TimerHandle | None = None
        self._resets = self._answered = 0
        #: Calls that were reset and have not ended yet.
        self._given_up: set[int] = set()

    @property
    def _frames(self) -> H2Connection:
        return self.connection._connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        if not self._limiter.enter(self):
            self.leave()
        elif self._tls is None:
            self._open()
        else:
            self._handshake = asyncio.get_running_loop().create_task(self._shake_hands(self._raw, self._tls))

    async def _shake_hands(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        # Not by the server, which tells of a connection only when this is over: silent ones would count for
        # nothing until then.
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
            if secured is not None and not secured.is_closing():
                self._raw = secured
                self._open()
                self._read_on()
        except OSError as error:
            log.info("a handshake on the gRPC port failed: %s", type(error).__name__)
        finally:
            if not self._is_open:
                # asyncio does not tell of the end of a connection that has shaken no hands.
                self.leave()
                self._limiter.gone(self)

    def _open(self) -> None:
        """Begin to speak HTTP/2."""
        assert self._raw is not None
        super().connection_made(cast(asyncio.Transport, GatheredWrites(self._raw)))
        self._is_open = True
        self._frames.incoming_buffer = BodyFrames(server=True)
        remember_heads(self._frames)
        lift_stream_limit(self._frames)
        processors: dict[Any, Any] = self.processor.processors
        # RFC 9113 §5.5: unknown frames are discarded. grpclib 0.4.9 raises.
        processors[UnknownFrameReceived] = lambda _event: None
        processors[RequestReceived] = partial(self._begin, processors[RequestReceived])
        processors[StreamReset] = partial(self._reset, processors[StreamReset])
        processors[DataReceived] = partial(self._take, processors[DataReceived])

    def _begin(self, accept: Callable[[RequestReceived], None], event: RequestReceived) -> None:
        headers = cast(Sequence[tuple[str, str]], event.headers)
        if not {name for name, _value in headers} >= _REQUIRED:
            self._refuse(event, ErrorCodes.PROTOCOL_ERROR)
            return
        if len(self.processor.streams) >= MOST_CALLS:
            # Those that were reset and have not ended yet count as well; the client may try again.
            self._refuse(event, ErrorCodes.REFUSED_STREAM)
            return
        self._limiter.busy(self)
        event.headers = bounded_metadata(headers)  # type: ignore[assignment]
        accept(event)
        call = self.processor.streams[event.stream_id]
        self.handler._tasks[call].add_done_callback(partial(self._over, call))  # type: ignore[attr-defined]

    def _refuse(self, event: RequestReceived, reason: ErrorCodes) -> None:
        # The client may have reset it already.
        with suppress(ProtocolError):
            self._frames.reset_stream(event.stream_id, reason)

    def _over(self, call: Stream, _task: object) -> None:
        """A call has ended, in whatever way."""
        assert call.id is not None
        if self.processor.streams.get(call.id) is call:
            # It was reset before its first turn, and grpclib would count it for ever.
            del self.processor.streams[call.id]
            if not self.connection.is_closing():
                self.connection.ack(call.id, call.buffer.unacked_size())
        if call.id in self._given_up:
            self._given_up.remove(call.id)
        else:
            self._answered += 1
        if not self.processor.streams:
            self._limiter.silent(self)

    def _reset(self, end: Callable[[StreamReset], None], event: StreamReset) -> None:
        if event.stream_id in self.processor.streams:
            self._given_up.add(event.stream_id)
        end(event)
        self._resets += 1
        if self._resets > FREE_RESETS + self._answered:
            log.warning("a gRPC connection was closed: it reset %d calls", self._resets)
            self._end(ErrorCodes.ENHANCE_YOUR_CALM)

    def _take(self, take: Callable[[DataReceived], None], event: DataReceived) -> None:
        # To grpclib a piece without a byte is the end of the message.
        if event.data:
            take(event)
        else:
            self.connection.ack(event.stream_id, event.flow_controlled_length)

    def leave(self) -> None:
        """Close at once."""
        assert self._raw is not None
        self._raw.abort()

    def send_away(self) -> None:
        """Tell the client to make its next calls over a new connection (RFC 9113 §6.8). Calls go on here."""
        if self._is_open and not self.connection.is_closing():
            # By hand: to h2 it would be the end of the connection, after which it sends no more answers.
            self.connection._transport.write(_GOAWAY)

    def data_received(self, data: bytes) -> None:
        try:
            self._unread.extend(self._steps.cut(memoryview(data)))
        except FrameTooLong:
            self._end(ErrorCodes.FRAME_SIZE_ERROR)
            return
        # What comes right behind the handshake waits for its end.
        if self._is_open:
            self._read_on()

    def _read_on(self) -> None:
        """The next step of what has come."""
        if not self._unread or self.connection.is_closing():
            self._unread.clear()
            return
        try:
            self._read(self._unread.popleft())
        except Exception as error:
            log.warning("a gRPC connection was dropped: %s", type(error).__name__)
            self.processor.close("unreadable")
            return
        if self._unread:
            asyncio.get_running_loop().call_soon(self._read_on)
        self._take_turns()

    def _read(self, step: memoryview) -> None:
        try:
            events = self.connection.feed(step)  # type: ignore[arg-type]
        except ProtocolError:
            # h2 has written why.
            self.connection.flush()
            self.processor.close("Protocol error")
            return
        self.connection.flush()
        for event in events:
            self.processor.process(event)
        if not self.connection.is_closing():
            self.connection.flush()

    def _end(self, reason: ErrorCodes) -> None:
        """End the connection, and say why."""
        if not self._is_open:
            self.leave()
        elif not self.connection.is_closing():
            self._frames.close_connection(reason)
            self.connection.flush()
            self.processor.close(reason.name)

    def _take_turns(self) -> None:
        """Read the socket only while nothing is left to read here and the client reads what it is sent."""
        assert self._raw is not None
        if self._raw.is_closing():
            return
        if self._unread or self._is_full:
            self._raw.pause_reading()
        else:
            self._raw.resume_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._is_full = True
        self._patience = asyncio.get_running_loop().call_later(SEND_TIMEOUT_S, self.leave)
        self._take_turns()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_full = False
        self._be_patient()
        self._take_turns()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._limiter.gone(self)
        self._be_patient()
        if self._is_open:
            super().connection_lost(exc)

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def bounded_metadata(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers of a call as grpclib may have them.

    Of more than `METADATA_BYTES` only what routes the call is left, and `OVERSIZED` says so. Binary ones go,
    for nothing here reads one: of one that is no base64 grpclib makes an ERROR and no answer. The deadline
    and the compression get names of ours: grpclib logs an ERROR over a deadline that passes, and keeps the
    name of the compression to itself.
    """
    size_bytes = sum(len(name) + len(value) + _ENTRY_BYTES for name, value in headers)
    if size_bytes > METADATA_BYTES:
        return [*(entry for entry in headers if entry[0] in _ROUTING), (OVERSIZED, str(size_bytes))]
    return [
        (_RENAMED.get(name, name), value)
        for name, value in headers
        if not name.endswith("-bin") and not name.startswith(_OURS)
    ]
