"""Which of many spans hold a text anywhere in what they said: payloads are inflated, looked into and let go.

Called by `svc.store.reads.payload_scan`. A message that spans of a day share is looked into once for all that
refer to it. Never opens a span, and holds no more than `ROOM_BYTES` of payloads at once, or one that is
larger.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

from protocol.inflate import Unreadable
from svc.domain.intake.packing import Frame, inflated_bytes, unpack_messages
from svc.store.postgres.database import Connection
from svc.store.postgres.threads import in_thread
from svc.store.spans.loop_turn import LoopTurn
from svc.store.spans.payloads import (
    Place,
    SpanKey,
    by_place,
    opened_frame,
    place_of,
    stored_frames,
    stored_messages,
)

#: Inflated frames, or messages, that are held at once.
ROOM_BYTES: Final = 16 * 1024 * 1024
#: What is longer is looked into beside the loop: 1 MB of Chinese with each character escaped takes 40 ms.
_LARGE_BYTES: Final = 128 * 1024

_Key = TypeVar("_Key")
#: The day and the hash of a message.
_Message = tuple[datetime, bytes]
_Holds = Callable[[bytes], bool]


async def spans_holding(
    connection: Connection, project_id: int, keys: Sequence[SpanKey], holds: _Holds, *, by_trace: bool = False
) -> list[SpanKey]:
    """Those of these spans whose payload `holds` something, in their order; what aged out holds nothing.

    `by_trace` one of each trace is enough.
    """
    span_ids = by_place((place_of(key), key[1]) for key in keys)
    heads = await stored_frames(connection, project_id, span_ids, heads=True)
    sizes = {location: inflated_bytes(head) for location, head in heads.items()}
    holding: set[tuple[bytes, bytes]] = set()
    traces: set[bytes] = set()
    for locations in _portions(sizes):
        of_places = {location: span_ids[location] for location in locations if location[0] not in traces}
        holding |= await _of_frames(connection, project_id, of_places, holds)
        if by_trace:
            traces.update(trace_id for trace_id, _ in holding)
    return [key for key in keys if (key[0], key[1]) in holding]


async def _of_frames(
    connection: Connection, project_id: int, span_ids: Mapping[Place, Sequence[bytes]], holds: _Holds
) -> set[tuple[bytes, bytes]]:
    """By trace and span id. Literals first: whoever holds it there needs no messages."""
    holding: set[tuple[bytes, bytes]] = set()
    referring: dict[_Message, list[tuple[bytes, bytes]]] = {}
    turn = LoopTurn()
    for location, body in (await stored_frames(connection, project_id, span_ids)).items():
        await turn.rest()
        frame = opened_frame(body)
        for span_id in () if frame is None else span_ids[location]:
            await turn.rest()
            assert frame is not None
            if await _look(_literals(frame, span_id), holds):
                holding.add((location[0], span_id))
                continue
            for digest in frame.needed([span_id]):
                referring.setdefault((location[1], digest), []).append((location[0], span_id))
    async for message in _messages_holding(connection, project_id, referring, holds):
        holding.update(referring[message])
    return holding


async def _messages_holding(
    connection: Connection, project_id: int, messages: Mapping[_Message, object], holds: _Holds
) -> AsyncIterator[_Message]:
    heads = await stored_messages(connection, project_id, _by_day(messages), heads=True)
    sizes = {
        (day, digest): inflated_bytes(head)
        for day, of_day in heads.items()
        for digest, head in of_day.items()
    }
    turn = LoopTurn()
    for portion in _portions(sizes):
        for day, bodies in (await stored_messages(connection, project_id, _by_day(portion))).items():
            for digest, body in bodies.items():
                await turn.rest()
                for text in unpack_messages({digest: body}).values():
                    if await _look(text, holds):
                        yield day, digest


def _literals(frame: Frame, span_id: bytes) -> bytes:
    try:
        # Nothing is found across two of them: a message stands in between.
        return b"\0".join(frame.literals(span_id))
    except Unreadable:
        return b""


async def _look(data: bytes, holds: _Holds) -> bool:
    return await in_thread(holds, data) if len(data) > _LARGE_BYTES else holds(data)


def _by_day(messages: Mapping[_Message, object] | Sequence[_Message]) -> dict[datetime, set[bytes]]:
    digests: dict[datetime, set[bytes]] = {}
    for day, digest in messages:
        digests.setdefault(day, set()).add(digest)
    return digests


def _portions(sizes: Mapping[_Key, int]) -> Iterator[list[_Key]]:
    """All of these in portions that fit the room together, or one by itself."""
    portion: list[_Key] = []
    room = ROOM_BYTES
    for key, size in sizes.items():
        if portion and size > room:
            yield portion
            portion, room = [], ROOM_BYTES
        portion.append(key)
        room -= size
    if portion:
        yield portion
