"""Answers of a gRPC call: the statuses of refusals, and how an answer is sent in time.

Owns `GrpcFailure` and what makes one of a refusal; `svc.front.otlp.grpc` answers with it. Never decides what
the answer is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import attrs
from grpclib.const import Status
from grpclib.server import Stream
from h2.exceptions import ProtocolError

from protocol import rpc
from protocol.refusals import Refusal
from svc.front.server.connection import SEND_TIMEOUT_S

#: Before each message: whether it is compressed, and its length.
_PREFIX_BYTES: Final = 5


@attrs.frozen
class GrpcFailure:
    """A gRPC answer that is not OK, with seconds to wait where waiting helps."""

    status: Status
    message: str
    retry_after_s: int | None = None


_STATUSES: Final = {
    400: Status.INVALID_ARGUMENT,
    401: Status.UNAUTHENTICATED,
    403: Status.PERMISSION_DENIED,
    408: Status.DEADLINE_EXCEEDED,
    413: Status.RESOURCE_EXHAUSTED,
    # With the seconds to wait, which makes an exporter send again.
    429: Status.RESOURCE_EXHAUSTED,
    431: Status.RESOURCE_EXHAUSTED,
    504: Status.DEADLINE_EXCEEDED,
    503: Status.UNAVAILABLE,
}


def failure_of(refusal: Refusal) -> GrpcFailure:
    """The answer that a refusal is."""
    other = Status.INVALID_ARGUMENT if refusal.status < 500 else Status.INTERNAL
    return GrpcFailure(_STATUSES.get(refusal.status, other), refusal.message, refusal.retry_after_s)


async def send(stream: Stream[bytes, bytes], answer: bytes | GrpcFailure) -> None:
    """Answer a call; end it where the client takes none of the answer for `SEND_TIMEOUT_S`.

    The limit costs 20 µs (measured 2026-12), so only an answer that has to wait has it.
    """
    if _has_room(stream, answer):
        await _send(stream, answer)
        return
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await _send(stream, answer)
    except TimeoutError:
        with suppress(ProtocolError):
            stream._stream.reset_nowait()
        stream._cancel_done = True


def _has_room(stream: Stream[bytes, bytes], answer: bytes | GrpcFailure) -> bool:
    """Whether an answer can be sent without waiting for the client to take some of it."""
    raw = stream._stream
    assert raw.id is not None
    if raw.id not in raw._h2_connection.streams or not raw.connection.write_ready.is_set():
        return False
    size_bytes = 0 if isinstance(answer, GrpcFailure) else _PREFIX_BYTES + len(answer)
    return raw._h2_connection.local_flow_control_window(raw.id) >= size_bytes


async def _send(stream: Stream[bytes, bytes], answer: bytes | GrpcFailure) -> None:
    if isinstance(answer, GrpcFailure):
        await fail(stream, answer)
    else:
        await stream.send_message(answer)


async def fail(stream: Stream[bytes, bytes], failure: GrpcFailure) -> None:
    """Answer with trailers only; an overload carries RetryInfo in both places where clients look."""
    details, metadata = None, None
    if failure.retry_after_s is not None:
        info = rpc.retry_after(failure.retry_after_s)
        details = [rpc.as_any(info)]
        metadata = {"google.rpc.retryinfo-bin": bytes(info)}
    await stream.send_trailing_metadata(
        status=failure.status, status_message=failure.message, status_details=details, metadata=metadata
    )
