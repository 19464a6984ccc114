"""`TraceService/Export`: OTLP over gRPC, on grpclib behind the asyncio border; logs and metrics the same way
where they are accepted.

Owns the server on the gRPC port, its count of requests in flight and the gRPC side of the credential-error
table. Bodies stay bytes: grpclib never decodes them, `Intake` does.

grpclib has no compression of its own (0.4.9), so the message frame is read here: the flag says compressed,
`grpc-encoding` says how. A frame longer than the limit is refused before it is read.

Cancellation: a client that cancels its call cancels the handler; as over HTTP nothing is awaited between
`Intake.take` and the answer. On a stop, `close` refuses new calls, waits for those inside, then closes the
sockets; `wait_closed` of grpclib can hang on an idle client, so it is never waited for without a bound.
`leave` is the stop in favour of a successor on the same socket.

Danger: an exception that escapes into the asyncio loop ends the loop, and with it the database and the
service. What a client sends is therefore contained where it arrives (`svc.front.otlp.grpc_connection`).
"""

from __future__ import annotations

import asyncio
import io
import logging
import re
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from weakref import WeakSet

import trio_asyncio
from grpclib.const import Cardinality, Handler, Status
from grpclib.encoding.base import CodecBase, StatusDetailsCodecBase
from grpclib.server import Server, Stream
from multidict import MultiDict

from actors.keys import Answered, Busy, Grant, Keys, WasRevoked
from actors.spool.memory import Reservation
from protocol import rpc
from protocol.refusals import (
    BAD_GRPC_TIMEOUT,
    BODY_TIMEOUT,
    DEADLINE_PASSED,
    GRPC_COMPRESSION,
    GRPC_NO_PROJECT,
    GRPC_NO_TOKEN,
    GRPC_OTHER_SIGNALS,
    GRPC_SCOPE,
    GRPC_SIGNALS,
    GRPC_UNKNOWN,
    INGEST_SCOPE,
    METADATA_TOO_LARGE,
    NO_TENANT,
    PAYLOAD_TOO_LARGE,
    REVOKED_KEY,
    STOPPING,
    TWO_AUTHORIZATIONS,
    UNAVAILABLE,
    UNKNOWN_KEY,
    Refusal,
)
from protocol.tokens import bearer
from svc.front.auth.callers import Callers
from svc.front.otlp.grpc_answers import GrpcFailure, fail, failure_of, send
from svc.front.otlp.grpc_connection import (
    ENCODING,
    OVERSIZED,
    TIMEOUT,
    GrpcConnection,
)
from svc.front.otlp.intake import Held, Intake, Large
from svc.front.otlp.signals import Signal, success
from svc.front.server.connection_limiter import ConnectionLimiter
from svc.front.server.hypercorn import MOMENT_S

log = logging.getLogger(__name__)

METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
MESSAGE_TIMEOUT_S: Final = 60.0
CLOSE_TIMEOUT_S: Final = 2.0
_TIMEOUT_FORM: Final = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNITS_S: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
#: What `grpc-encoding` may name; a message that is gzip needs no name.
COMPRESSIONS: Final = frozenset({"gzip", "snappy", "zstd"})
READ_STEP_BYTES: Final = 1024 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b"
#: Connections that wait to be accepted, as at the HTTP door.
BACKLOG: Final = 1024


_CUT_SHORT: Final = GrpcFailure(Status.INVALID_ARGUMENT, "the message is shorter than its frame says")


class _Bytes(CodecBase):
    """Passes messages on as they are."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        assert isinstance(message, bytes)
        return message

    def decode(self, data: bytes, message_type: Any) -> Any:
        return data


class _Details(StatusDetailsCodecBase):
    """Writes `google.rpc.Status` into `grpc-status-details-bin`."""

    def encode(self, status: Status, message: str | None, details: Any) -> bytes:
        return bytes(rpc.Status(code=status.value, message=message or "", details=list(details or ())))

    def decode(self, status: Status, message: str | None, data: bytes) -> Any:
        return rpc.Status.parse(data)


class _Methods(dict[str, Handler]):
    """The methods by their path; of one that is not there `get` returns a handler that refuses it.

    grpclib 0.4.9 answers an unknown method without a content type, which clients report in place of its text.
    """

    #: Hears of each call with another signal.
    note_signal: Callable[[str], None] | None = None

    def get(self, path: str, default: Any = None) -> Handler:
        handler = super().get(path)
        if handler is not None:
            return handler
        signal = GRPC_OTHER_SIGNALS.get(path)
        if signal is not None and self.note_signal is not None:
            self.note_signal(signal)
        failure = GrpcFailure(Status.UNIMPLEMENTED, GRPC_UNKNOWN if signal is None else GRPC_SIGNALS[signal])
        return Handler(partial(fail, failure=failure), Cardinality.UNARY_UNARY, bytes, bytes)


class _Server(Server):
    """grpclib's server on our connections."""

    def __init__(self, service: OtlpGrpc, limiter: ConnectionLimiter, tls: ssl.SSLContext | None) -> None:
        super().__init__([service], codec=_Bytes(), status_details_codec=_Details())
        self._limiter, self._tls = limiter, tls
        # In it any byte is a character: what is no ASCII is the fault of its call, not of its connection.
        self._h2_config.header_encoding = "latin-1"
        methods = _Methods(self._mapping)
        methods.note_signal = service.note_signal
        self._mapping = methods
        self._connections: WeakSet[GrpcConnection] = WeakSet()

    def _protocol_factory(self) -> GrpcConnection:
        protocol = super()._protocol_factory()
        parts = protocol.handler, protocol.config, protocol.h2_config
        connection = GrpcConnection(*parts, self._limiter, self._tls)
        self._connections.add(connection)
        return connection

    def send_away(self) -> None:
        """Accept no more connections, and tell the clients of those there are to make new ones."""
        assert self._server is not None
        self._server.close()
        for connection in list(self._connections):
            connection.send_away()


class OtlpGrpc:
    """The gRPC door. `open` and `close` are called by the wiring, from Trio."""

    def __init__(self, *, intake: Intake, keys: Keys, callers: Callers, limiter: ConnectionLimiter) -> None:
        self._intake, self._keys, self._callers, self._limiter = intake, keys, callers, limiter
        self.note_signal = intake.tally.signals.note
        self._server: _Server | None = None
        self._closing = False
        self._emptied = asyncio.Event()
        self.in_flight = 0

    def __mapping__(self) -> Mapping[str, Handler]:
        """The methods of this service, as grpclib asks for them."""
        signals: dict[str, Signal] = {METHOD: "traces"}
        signals |= {
            path: signal for path, signal in GRPC_OTHER_SIGNALS.items() if signal in self._intake.others
        }
        return {
            path: Handler(partial(self._export, signal=signal), Cardinality.UNARY_UNARY, bytes, bytes)
            for path, signal in signals.items()
        }

    async def open(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a bound socket, under TLS where there is a context for it. Raises `OSError`."""

        async def start() -> _Server:
            server = _Server(self, self._limiter, tls)
            # It closes what it is given, and so do we.
            await server.start(sock=sock.dup(), backlog=BACKLOG)
            return server

        self._server = await trio_asyncio.aio_as_trio(start)()

    async def leave(self, timeout_s: float) -> bool:
        """As `close`, in favour of a successor: accept no more, and let nobody be refused who hears of it."""

        async def tell() -> None:
            if self._server is not None:
                self._server.send_away()
                await asyncio.sleep(MOMENT_S)

        await trio_asyncio.aio_as_trio(tell)()
        return await self.close(timeout_s)

    async def close(self, timeout_s: float) -> bool:
        """Refuse new calls, wait for those inside, close. Returns whether all of them ended in time."""

        async def stop() -> bool:
            self._closing = True
            if self.in_flight:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._emptied.wait(), timeout_s)
            drained = not self.in_flight
            if self._server is not None:
                self._server.close()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._server.wait_closed(), CLOSE_TIMEOUT_S)
            return drained

        drained: bool = await trio_asyncio.aio_as_trio(stop)()
        return drained

    async def _export(self, stream: Stream[bytes, bytes], signal: Signal) -> None:
        self.in_flight += 1
        try:
            await send(stream, await self._answer_in_time(stream, signal))
        finally:
            self.in_flight -= 1
            if self._closing and not self.in_flight:
                self._emptied.set()

    async def _answer_in_time(self, stream: Stream[bytes, bytes], signal: Signal) -> bytes | GrpcFailure:
        """The answer within the deadline of the call, if it has one.

        Cancellation: a batch that was offered when the deadline passed may be stored all the same; the client
        sends it again, and spans are known by their ids.
        """
        metadata: Mapping[str, object] = stream.metadata or {}
        if OVERSIZED in metadata:
            return failure_of(self._intake.tally.refuse(METADATA_TOO_LARGE))
        timeout = str(metadata.get(TIMEOUT, ""))
        if not timeout:
            return await self._answer(stream, signal)
        form = _TIMEOUT_FORM.fullmatch(timeout)
        if form is None:
            return failure_of(self._intake.tally.refuse(BAD_GRPC_TIMEOUT))
        try:
            async with asyncio.timeout(int(form[1]) * _UNITS_S[form[2]]):
                return await self._answer(stream, signal)
        except TimeoutError:
            return failure_of(self._intake.tally.refuse(DEADLINE_PASSED))

    async def _answer(self, stream: Stream[bytes, bytes], signal: Signal) -> bytes | GrpcFailure:
        if self._closing:
            return failure_of(STOPPING)
        grant = await self._grant(stream)
        if isinstance(grant, GrpcFailure):
            return grant
        pressure = self._intake.pressure()
        if pressure is not None:
            return failure_of(pressure)
        with self._intake.spool.reservation() as room:
            try:
                async with asyncio.timeout(MESSAGE_TIMEOUT_S):
                    message = await self._message(stream, room)
            except TimeoutError:
                return failure_of(self._intake.tally.refuse(BODY_TIMEOUT))
            if isinstance(message, GrpcFailure):
                return message
            body, encoding = message
            intake = self._intake.take(grant, body, encoding, "protobuf", room, signal)
            if isinstance(intake, Held | Large):
                intake = await trio_asyncio.trio_as_aio(self._intake.settled)(intake)
                _end_if_given_up()
        if isinstance(intake, Refusal):
            return failure_of(intake)
        return success(intake.screening, "protobuf", signal)

    async def _grant(self, stream: Stream[bytes, bytes]) -> Grant | GrpcFailure:
        metadata: Mapping[str, object] = stream.metadata or {}
        headers = {name: value for name, value in metadata.items() if isinstance(value, str)}
        if isinstance(metadata, MultiDict) and len(metadata.getall("authorization", ())) > 1:
            return failure_of(self._intake.tally.refuse(TWO_AUTHORIZATIONS))
        token = bearer(headers.get("authorization"))
        if token is None:
            self._intake.tally.refuse(NO_TENANT)
            has_key = await trio_asyncio.trio_as_aio(self._callers.without_project)(headers)
            return GrpcFailure(Status.UNAUTHENTICATED, GRPC_NO_PROJECT if has_key else GRPC_NO_TOKEN)
        answer: Answered = self._keys.granted(token)
        if answer is None:
            address = stream.peer.addr() if stream.peer is not None else None
            came_from = self._callers.place(address[0] if address else None, headers)
            answer = await trio_asyncio.trio_as_aio(partial(self._keys.verify, place=came_from))(token)
        match answer:
            case Grant(scope="write" | "admin") as grant:
                return grant
            case Grant():
                self._intake.tally.refuse(INGEST_SCOPE)
                return GrpcFailure(Status.PERMISSION_DENIED, GRPC_SCOPE)
            case Busy():
                return failure_of(self._intake.tally.refuse(UNAVAILABLE))
            case WasRevoked():
                self._intake.tally.refuse(REVOKED_KEY)
                return GrpcFailure(Status.UNAUTHENTICATED, GRPC_NO_TOKEN)
            case _:
                self._intake.tally.refuse(UNKNOWN_KEY)
                return GrpcFailure(Status.UNAUTHENTICATED, GRPC_NO_TOKEN)

    async def _message(
        self, stream: Stream[bytes, bytes], room: Reservation
    ) -> tuple[bytes, str] | GrpcFailure:
        """The one message of the call, as sent, and its encoding."""
        raw = stream._stream
        try:
            head = await raw.recv_data(5)
        except AssertionError:
            head = b""
        if not head:
            return GrpcFailure(Status.INVALID_ARGUMENT, "the call carries no message")
        compressed, length = struct.unpack(">BI", head)
        if length > self._intake.max_body_bytes:
            return failure_of(self._intake.tally.refuse(PAYLOAD_TOO_LARGE))
        if refusal := self._intake.hold(room, length):
            return failure_of(self._intake.tally.refuse(refusal))
        buffer = io.BytesIO()
        try:
            # In steps: grpclib keeps a copy of what it is asked for until it has all of it.
            while missing := length - buffer.tell():
                piece = await raw.recv_data(min(missing, READ_STEP_BYTES))
                if not piece:
                    return _CUT_SHORT
                buffer.write(piece)
            body = buffer.getvalue()
        except AssertionError:
            return _CUT_SHORT
        if not compressed:
            return body, "identity"
        metadata: Mapping[str, object] = stream.metadata or {}
        encoding = str(metadata.get(ENCODING, "")).strip().lower()
        if not encoding and body.startswith(_GZIP_MAGIC):
            encoding = "gzip"
        if compressed != 1 or encoding not in COMPRESSIONS:
            return GrpcFailure(Status.UNIMPLEMENTED, GRPC_COMPRESSION)
        return body, encoding


def _end_if_given_up() -> None:
    """Raise `CancelledError` where a call was given up during Trio work that went on to its end."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
