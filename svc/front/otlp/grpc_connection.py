"""One gRPC connection: what a client sends on it stays on it, and it can be sent away.

Owns the class that stands in for grpclib's connection and the bounds of a call's metadata;
`svc.front.otlp.grpc` serves with it. Whatever goes wrong here ends the connection, never the asyncio loop.
Never looks into a message.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Sequence
from typing import Any, Final, cast

from grpclib.protocol import H2Protocol
from h2.events import RequestReceived, UnknownFrameReceived

from svc.front.server.body_frames import BodyFrames
from svc.front.server.known_heads import remember_heads

log = logging.getLogger(__name__)

#: What the metadata of a call may weigh, counted as HTTP/2 counts (RFC 9113 §6.5.2); twice what gRPC's own
#: servers take. A header block of more than 64 KiB ends its connection before it is unpacked.
METADATA_BYTES: Final = 16 * 1024
_ENTRY_BYTES: Final = 32
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
    """grpclib's connection, which ignores frames it does not know and never raises over what it was sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, GatheredWrites(cast(asyncio.Transport, transport))))
        self.connection._connection.incoming_buffer = BodyFrames(server=True)
        remember_heads(self.connection._connection)
        # RFC 9113 §5.5: unknown frames are discarded. grpclib 0.4.9 raises.
        self.processor.processors[UnknownFrameReceived] = lambda _event: None
        accept: Any = self.processor.processors[RequestReceived]

        def bounded(event: RequestReceived) -> None:
            event.headers = bounded_metadata(event.headers)  # type: ignore[arg-type,assignment]
            accept(event)

        self.processor.processors[RequestReceived] = bounded

    def send_away(self) -> None:
        """Tell the client to make its next calls over a new connection (RFC 9113 §6.8). Calls go on here."""
        if not self.connection.is_closing():
            # By hand: to h2 it would be the end of the connection, after which it sends no more answers.
            self.connection._transport.write(_GOAWAY)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as error:
            log.warning("a gRPC connection was dropped: %s", type(error).__name__)
            self.processor.close("unreadable")


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
