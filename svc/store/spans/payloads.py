"""Payloads: the whole spans as they came, in frames, and the messages that payloads of a day share.

A frame holds spans of one trace and one day that were written together; the row of a span names its frame.
Written within the transaction that writes the spans, read one by one or a page at a time. A payload that has
aged out, or whose messages have, is absent, which is no error (spec, "Semantics that must hold").

A re-sent span names the frame of its new payload. The old one goes when no span names its frame any more.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import date, datetime
from typing import Final

import attrs

from protocol.inflate import Unreadable
from protocol.otlp.reading import WireSpan
from svc.domain.calendar import day_of
from svc.domain.intake.batches import StoredSpan
from svc.domain.intake.packing import HEAD_BYTES, Frame, frames, inflated_bytes, pack_message, unpack_messages
from svc.store.postgres.database import Connection
from svc.store.postgres.partitions import midnight
from svc.store.spans.loop_turn import LoopTurn

_KNOWN_BOUND: Final = 200_000

#: Project, hash, and day; messages and frames carry its midnight as their `started_at`.
MessageKey = tuple[int, bytes, date]
#: Trace, span, when it started, and the frame that its row names.
SpanKey = tuple[bytes, bytes, datetime, int]
#: Project, trace, midnight of the day, and the number of the frame, which is unique among those of the three.
FrameKey = tuple[int, bytes, datetime, int]

FRAME_COLUMNS: Final = ("project_id", "trace_id", "started_at", "frame", "body")
_FIRST_FRAME_BOUND: Final = 2**62


@attrs.frozen
class Framed:
    """Spans on their way into the database, each beside the key of its frame, and the frames."""

    of_span: dict[tuple[int, bytes, bytes], FrameKey]
    bodies: dict[FrameKey, bytes] = attrs.field(repr=False)


def frame_up(spans: Iterable[StoredSpan]) -> Framed:
    """Put spans, each identity once, into frames.

    The number is random: another write may be adding to the same trace at the same time.
    """
    grouped: dict[tuple[int, bytes, date], list[StoredSpan]] = {}
    for span in spans:
        grouped.setdefault((span.project_id, span.row.trace_id, span.day), []).append(span)
    framed = Framed({}, {})
    number = secrets.randbelow(_FIRST_FRAME_BOUND)
    for (project_id, trace_id, day), group in grouped.items():
        for span_ids, body in frames((span.row.span_id, span.payload) for span in group):
            number += 1
            key = (project_id, trace_id, midnight(day), number)
            framed.bodies[key] = body
            for span_id in span_ids:
                framed.of_span[project_id, trace_id, span_id] = key
    return framed


async def copy_frames(connection: Connection, framed: Framed, wanted: Collection[FrameKey]) -> None:
    """Copy these frames into their table."""
    await connection.copy_records_to_table(
        "span_payload", columns=FRAME_COLUMNS, records=[(*key, framed.bodies[key]) for key in wanted]
    )


async def drop_unnamed_frames(connection: Connection, frames_left: Iterable[FrameKey]) -> None:
    """Delete those of these frames that no span names any more."""
    keys = sorted(set(frames_left))
    # A look at the spans of the trace and day for each.
    await connection.execute(
        "delete from span_payload p using"
        " unnest($1::bigint[], $2::bytea[], $3::timestamptz[], $4::bigint[])"
        " as seen (project_id, trace_id, started_at, frame)"
        " where p.project_id = seen.project_id and p.trace_id = seen.trace_id"
        " and p.started_at = seen.started_at and p.frame = seen.frame"
        " and not exists (select from span s where s.project_id = p.project_id and s.trace_id = p.trace_id"
        " and s.frame = p.frame and s.started_at >= p.started_at"
        " and s.started_at < p.started_at + interval '24 hours')",
        *(list(column) for column in zip(*keys, strict=True)),
    )


@attrs.define(eq=False)
class Messages:
    """Stores messages once. Owns a bounded memory of the committed ones, so that each costs one insert."""

    #: By project and day, so that a look at each of a span's texts hashes the digest alone.
    _known: dict[tuple[int, date], set[bytes]] = attrs.field(factory=dict)
    _known_count: int = 0

    async def insert_new(self, connection: Connection, spans: Iterable[StoredSpan]) -> list[MessageKey]:
        """Store the messages of these spans that this process has not stored yet. Returns their keys.

        Ordering: rows go in by the order of their keys, so that writers cannot deadlock.
        """
        new: dict[MessageKey, bytes] = {}
        for span in spans:
            if span.payload.messages:
                day = span.day
                stored_digests = self._known.get((span.project_id, day), ())
                for digest, text in span.payload.messages.items():
                    if digest not in stored_digests:
                        new[span.project_id, digest, day] = text
        if not new:
            return []
        keys = sorted(new)
        # Another writer may have stored the same; its row is as good.
        await connection.execute(
            "insert into span_message (project_id, hash, started_at, body)"
            " select * from unnest($1::bigint[], $2::bytea[], $3::timestamptz[], $4::bytea[])"
            " on conflict do nothing",
            [project_id for project_id, _, _ in keys],
            [digest for _, digest, _ in keys],
            [midnight(day) for _, _, day in keys],
            [pack_message(new[key]) for key in keys],
        )
        return keys

    def forget(self) -> None:
        """Store everything anew: some of it may have been deleted."""
        self._known.clear()
        self._known_count = 0

    def remember(self, keys: Iterable[MessageKey]) -> None:
        """The write is committed: these are stored."""
        if self._known_count > _KNOWN_BOUND:
            self.forget()
        for project_id, digest, day in keys:
            self._known.setdefault((project_id, day), set()).add(digest)
            self._known_count += 1


#: By trace and span id: the span as it came, or how long it is when it was left where it is.
Envelopes = dict[tuple[bytes, bytes], bytes | int]
#: A trace, the midnight of a day, and the number of a frame.
Place = tuple[bytes, datetime, int]


def place_of(key: SpanKey) -> Place:
    """Where the payload of a span lies."""
    trace_id, _, started_at, frame = key
    return trace_id, day_of(started_at), frame


@attrs.frozen(eq=False)
class PackedSpans:
    """Frames with the messages they refer to. A span opened when its turn comes is still in caches then."""

    frames: Mapping[Place, Frame] = attrs.field(repr=False)
    messages: Mapping[datetime, Mapping[bytes, bytes]] = attrs.field(repr=False)

    def lean_envelope(self, location: Place, span_id: bytes) -> bytes | None:
        """A lean span, not opened; None where it aged out or cannot be read."""
        frame, messages = self.of(location)
        try:
            return None if frame is None else frame.lean_envelope(span_id, messages)[0]
        except Unreadable:
            return None

    def span(self, location: Place, span_id: bytes) -> WireSpan | None:
        """A whole span; None where it aged out or cannot be read."""
        frame, messages = self.of(location)
        try:
            return None if frame is None else frame.span(span_id, messages)
        except Unreadable:
            return None

    def of(self, location: Place) -> tuple[Frame | None, Mapping[bytes, bytes]]:
        """The frame of a place, and the messages of its day; no frame where it aged out or cannot be read."""
        return self.frames.get(location), self.messages.get(location[1], {})


def opened_frame(body: bytes) -> Frame | None:
    """A stored frame; None where it is damaged and nothing can be read from it."""
    try:
        return Frame(body)
    except Unreadable:
        return None


async def read_packed(
    connection: Connection, project_id: int, span_ids: Mapping[Place, Sequence[bytes]], *, lean: bool = False
) -> PackedSpans:
    """What it takes to open these spans, lean ones perhaps; what aged out is absent."""
    opened = await _opened(connection, project_id, span_ids)
    digests = await _needed(opened, span_ids, lean=lean)
    # Each once, however many spans of the trace repeat it.
    stored = await stored_messages(connection, project_id, digests)
    return PackedSpans(opened, {day: unpack_messages(messages) for day, messages in stored.items()})


async def read_payloads(
    connection: Connection, project_id: int, spans: Sequence[SpanKey]
) -> dict[tuple[bytes, bytes], WireSpan]:
    """The whole spans behind these keys, by trace and span id; those that aged out are absent."""
    locations = [(place_of(key), key[1]) for key in spans]
    packed = await read_packed(connection, project_id, by_place(locations))
    payloads: dict[tuple[bytes, bytes], WireSpan] = {}
    for location, span_id in locations:
        if (span := packed.span(location, span_id)) is not None:
            payloads[location[0], span_id] = span
    return payloads


def by_place(locations: Iterable[tuple[Place, bytes]]) -> dict[Place, list[bytes]]:
    """The ids of spans by the frame that they lie in."""
    span_ids: dict[Place, list[bytes]] = {}
    for location, span_id in locations:
        span_ids.setdefault(location, []).append(span_id)
    return span_ids


async def _opened(
    connection: Connection, project_id: int, locations: Collection[Place]
) -> dict[Place, Frame]:
    opened: dict[Place, Frame] = {}
    turn = LoopTurn()
    for location, body in (await stored_frames(connection, project_id, locations)).items():
        await turn.rest()
        if (frame := opened_frame(body)) is not None:
            opened[location] = frame
    return opened


async def _needed(
    opened: Mapping[Place, Frame], asked_ids: Mapping[Place, Sequence[bytes]], *, lean: bool = False
) -> dict[datetime, set[bytes]]:
    """The hashes of the messages that these spans refer to, by day."""
    needed: dict[datetime, set[bytes]] = {}
    turn = LoopTurn()
    for location, span_ids in asked_ids.items():
        await turn.rest()
        if (frame := opened.get(location)) is not None:
            needed.setdefault(location[1], set()).update(frame.needed(span_ids, lean=lean))
    return needed


async def read_envelopes(
    connection: Connection, project_id: int, spans: Sequence[SpanKey], most_bytes: int | None = None
) -> Envelopes:
    """The spans behind these keys as they came, not opened, together at most `most_bytes` long.

    Those named first come first. Of what does not fit only the length is told, and nothing of it is fetched
    or inflated; of a frame that is longer than all that is asked for, its own length. Those that aged out are
    absent.
    """
    span_ids = by_place((place_of(key), key[1]) for key in spans)
    envelopes: Envelopes = {}
    fitting: Collection[Place] = span_ids
    if most_bytes is not None:
        heads = await stored_frames(connection, project_id, span_ids, heads=True)
        fitting, envelopes = _openable(heads, span_ids, _FRAMES_FOR_ONE * most_bytes)
    opened = await _opened(connection, project_id, fitting)
    digests = await _needed(opened, span_ids)
    if most_bytes is None:
        chosen = [(location, span_id) for location in opened for span_id in span_ids[location]]
    else:
        sizes = {
            day: {digest: inflated_bytes(head) for digest, head in heads.items()}
            for day, heads in (await stored_messages(connection, project_id, digests, heads=True)).items()
        }
        chosen, too_long = await _fitting(opened, span_ids, sizes, most_bytes)
        envelopes |= too_long
        digests = await _needed(opened, by_place(chosen))
    # Each once, however many spans of the trace repeat it.
    stored = {
        day: unpack_messages(messages)
        for day, messages in (await stored_messages(connection, project_id, digests)).items()
    }
    turn = LoopTurn()
    for location, span_id in chosen:
        await turn.rest()
        try:
            envelopes[location[0], span_id] = opened[location].envelope(span_id, stored.get(location[1], {}))
        except Unreadable:
            continue
    return envelopes


#: A frame holds other spans beside those that are asked for, so frames may be longer than what is read of
#: them, by this factor.
_FRAMES_FOR_ONE: Final = 2


def _openable(
    heads: Mapping[Place, bytes], span_ids: Mapping[Place, Sequence[bytes]], most_bytes: int
) -> tuple[list[Place], Envelopes]:
    """The frames that may be inflated together, and of the spans in the others the length of their frame."""
    chosen: list[Place] = []
    too_long: Envelopes = {}
    for location, head in heads.items():
        length = inflated_bytes(head)
        if length <= most_bytes:
            most_bytes -= length
            chosen.append(location)
        else:
            too_long |= {(location[0], span_id): length for span_id in span_ids[location]}
    return chosen, too_long


async def _fitting(
    opened: Mapping[Place, Frame],
    asked_ids: Mapping[Place, Sequence[bytes]],
    sizes: Mapping[datetime, Mapping[bytes, int]],
    most_bytes: int,
) -> tuple[list[tuple[Place, bytes]], Envelopes]:
    """The spans that fit together, and the lengths of the others."""
    chosen: list[tuple[Place, bytes]] = []
    too_long: Envelopes = {}
    turn = LoopTurn()
    for location, frame in opened.items():
        await turn.rest()
        for span_id in asked_ids[location]:
            try:
                length = frame.envelope_bytes(span_id, sizes.get(location[1], {}))
            except Unreadable:
                continue
            if length <= most_bytes:
                most_bytes -= length
                chosen.append((location, span_id))
            else:
                too_long[location[0], span_id] = length
    return chosen, too_long


async def stored_frames(
    connection: Connection, project_id: int, locations: Collection[Place], *, heads: bool = False
) -> dict[Place, bytes]:
    """The stored frames of these places, in their order, or the beginning of each."""
    if not locations:
        return {}
    body = f"substring(p.body for {HEAD_BYTES})" if heads else "p.body"
    # The frames, each once; the bounds let the planner skip all other days.
    rows = await connection.fetch(
        f"select p.trace_id, p.started_at, p.frame, {body} as body"
        " from unnest($2::bytea[], $3::timestamptz[], $4::bigint[]) as asked (trace_id, started_at, frame)"
        " join span_payload p using (trace_id, started_at, frame)"
        " where p.project_id = $1 and p.started_at between $5 and $6",
        project_id,
        *(list(column) for column in zip(*locations, strict=True)),
        min(day for _, day, _ in locations),
        max(day for _, day, _ in locations),
    )
    stored = {(row["trace_id"], row["started_at"], row["frame"]): row["body"] for row in rows}
    return {location: stored[location] for location in locations if location in stored}


async def stored_messages(
    connection: Connection, project_id: int, digests_of: Mapping[datetime, Set[bytes]], *, heads: bool = False
) -> dict[datetime, dict[bytes, bytes]]:
    """The stored messages of these hashes, or the beginning of each, by day."""
    body = f"substring(m.body for {HEAD_BYTES})" if heads else "m.body"
    days = sorted(day for day, digests in digests_of.items() if digests)
    if not days:
        return {}
    bodies: dict[datetime, dict[bytes, bytes]] = {}
    if len(days) == 1:
        # The shared messages of a day, each by its key: nearly always there is one day.
        rows = await connection.fetch(
            f"select m.hash, {body} as body from span_message m"
            " where m.project_id = $1 and m.hash = any($2::bytea[]) and m.started_at = $3",
            project_id,
            sorted(digests_of[days[0]]),
            days[0],
        )
        return {days[0]: {row[0]: row[1] for row in rows}} if rows else {}
    digest_list, ends = [], []
    for day in days:
        digest_list += sorted(digests_of[day])
        ends.append(len(digest_list))
    # Those of several days at once: each day with its own hashes, and `offset` keeps the planner from joining
    # otherwise, so that a look at a day opens its partition and no other.
    rows = await connection.fetch(
        "select m.day, m.hash, m.body"
        " from unnest($3::timestamptz[], $4::integer[], $5::integer[]) as asked (day, first, last)"
        f" cross join lateral (select asked.day, m.hash, {body} as body from span_message m"
        " where m.project_id = $1 and m.hash = any(($2::bytea[])[asked.first:asked.last])"
        " and m.started_at = asked.day and m.started_at between $6 and $7 offset 0) m",
        project_id,
        digest_list,
        days,
        [1, *(end + 1 for end in ends[:-1])],
        ends,
        days[0],
        days[-1],
    )
    for day, digest, stored in rows:
        bodies.setdefault(day, {})[digest] = stored
    return bodies
