"""`{p}/spans/{trace_id}/{span_id}/payload`: everything one span said, whole, however long it is.

Owns the way of a payload from its envelope to the wire: field by field, and events and links some at a time,
so that no more than one field of it is encoded at once, in a thread. Answers of the tools are cut
(`svc.front.mcp.cut`) and name this route.

Cost: as much as the span that was sent. Few at once for the process, one for each caller, and a client that
reads slowly is left after `STREAM_TIMEOUT_S`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import msgspec
import trio

from protocol.inflate import Unreadable
from protocol.refusals import NO_PAYLOAD, PAYLOAD_HOLDS_TOO_MUCH, TOO_MANY_PAYLOADS, Refusal, Refused
from protocol.rest.answers import SpanPayload
from protocol.rest.query import jsonable
from svc.domain.intake.envelope_size import fields_within
from svc.front.api.routes import PROJECT, ApiStream, Route
from svc.front.auth.calls import Call
from svc.store.reads.payloads import said_in
from svc.store.reads.traces.spans import SpanReads

PAYLOAD_PATH: Final = PROJECT + "/spans/{trace_id}/{span_id}/payload"

#: Bodies are bounded far below this at the doors (`SVC_INGEST_MAX_BODY_BYTES`).
MOST_BYTES: Final = 256 * 1024 * 1024
#: What a span may hold when it comes is bounded too; an earlier release took more.
MOST_FIELDS: Final = 4_000_000
STREAM_TIMEOUT_S: Final = 120.0
#: Payloads of this process that are on their way out at once.
MOST_AT_ONCE: Final = 4
PIECE_BYTES: Final = 256 * 1024
#: Events or links encoded at once.
_SOME: Final = 256

_TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{32}", re.ASCII)
_SPAN_ID: Final = re.compile(r"[0-9a-fA-F]{16}", re.ASCII)

_lanes: Final = trio.CapacityLimiter(MOST_AT_ONCE)
_openers: Final = trio.CapacityLimiter(1)


async def get_payload(call: Call[None]) -> ApiStream | Refusal:
    """Everything one span said: input, output, attributes, usage, events, links, resource and scope."""
    trace_id, span_id = call.path["trace_id"], call.path["span_id"]
    if not _TRACE_ID.fullmatch(trace_id) or not _SPAN_ID.fullmatch(span_id):
        return NO_PAYLOAD
    pieces = _stream_payload(call, bytes.fromhex(trace_id), bytes.fromhex(span_id))
    # It begins here: from now on whoever drops it gives its lane and slot back.
    await anext(pieces)
    return ApiStream(pieces, STREAM_TIMEOUT_S)


async def _stream_payload(call: Call[None], trace_id: bytes, span_id: bytes) -> AsyncIterator[bytes]:
    """Nothing at first, once the payload is in hand; then the envelope of contract §1 around it.

    Raises `Refused` before that. Holds its lane to the end: what is not sent yet is in memory.
    """
    lane = object()
    try:
        _lanes.acquire_on_behalf_of_nowait(lane)
    except trio.WouldBlock:
        raise Refused(TOO_MANY_PAYLOADS) from None
    try:
        async with call.means.concurrency.slot(f"payload:{call.caller.label}"):
            envelope = await SpanReads(call.means.history).envelope(
                call.project.id, trace_id, span_id, MOST_BYTES
            )
            if not isinstance(envelope, bytes):
                raise Refused(NO_PAYLOAD if envelope is None else PAYLOAD_HOLDS_TOO_MUCH)
            pieces = _pieces(await trio.to_thread.run_sync(_decode, envelope, limiter=_openers))
            del envelope
            yield b""
            while (piece := await trio.to_thread.run_sync(next, pieces, None)) is not None:
                for start in range(0, len(piece), PIECE_BYTES):
                    yield piece[start : start + PIECE_BYTES]
    finally:
        _lanes.release_on_behalf_of(lane)


def _decode(envelope: bytes) -> dict[str, Any]:
    if fields_within(envelope, MOST_FIELDS) is None:
        raise Refused(PAYLOAD_HOLDS_TOO_MUCH)
    try:
        return said_in(envelope)
    except Unreadable:
        raise Refused(NO_PAYLOAD) from None


def _pieces(envelope: dict[str, Any]) -> Iterator[bytes]:
    separator = b'{"ok":true,"data":{'
    for name in list(envelope):
        # What is sent is let go.
        value = envelope.pop(name)
        yield separator + msgspec.json.encode(name) + b":"
        separator = b","
        if not isinstance(value, list):
            yield msgspec.json.encode(value, enc_hook=jsonable)
            continue
        opening = b"["
        for start in range(0, len(value), _SOME):
            slice_ = msgspec.json.encode(value[start : start + _SOME], enc_hook=jsonable)
            yield opening + slice_[1:-1]
            opening = b","
        yield b"]" if value else b"[]"
    yield b"}}"


ROUTES: Final = (
    Route(
        "GET",
        PAYLOAD_PATH,
        "ORG_VIEW",
        get_payload,
        SpanPayload,
        refusals=(NO_PAYLOAD, PAYLOAD_HOLDS_TOO_MUCH, TOO_MANY_PAYLOADS),
    ),
)
