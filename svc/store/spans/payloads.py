"""Payloads: the whole spans as they came, in frames, and the messages that payloads of a day share.

A frame holds spans of one trace and one day that were written together; the row of a span names its frame.
Written within the transaction that writes the spans, read one by one or a page at a time. A payload that has
aged out, or whose messages have, is absent, which is no error (spec, "Semantics that must hold").

A re-sent span names the frame of its new payload. The old one goes when no span names its frame any more.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from datetime import date, datetime
from typing import Any, Final

import attrs

from protocol.inflate import Unreadable
from protocol.otlp.reading import WireSpan
from svc.domain.calendar import day_of
from svc.domain.intake import StoredSpan
from svc.domain.packing import Frame, frames, pack_message
from svc.store.postgres.database import Connection
from svc.store.postgres.partitions import midnight

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

    _known: set[MessageKey] = attrs.field(factory=set)

    async def insert_new(self, connection: Connection, spans: Iterable[StoredSpan]) -> list[MessageKey]:
        """Store the messages of these spans that this process has not stored yet. Returns their keys.

        Ordering: rows go in by the order of their keys, so that writers cannot deadlock.
        """
        new: dict[MessageKey, bytes] = {}
        for span in spans:
            if span.payload.messages:
                day = span.day
                for digest, text in span.payload.messages.items():
                    key = (span.project_id, digest, day)
                    if key not in self._known:
                        new[key] = text
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

    def remember(self, keys: Iterable[MessageKey]) -> None:
        """The write is committed: these are stored."""
        if len(self._known) > _KNOWN_BOUND:
            self._known.clear()
        self._known.update(keys)


async def read_payloads(
    connection: Connection, project_id: int, spans: Sequence[SpanKey]
) -> dict[tuple[bytes, bytes], WireSpan]:
    """The whole spans behind these keys, by trace and span id; those that aged out are absent."""
    asked: dict[tuple[bytes, datetime, int], list[bytes]] = {}
    for trace_id, span_id, started_at, frame in spans:
        asked.setdefault((trace_id, day_of(started_at), frame), []).append(span_id)
    if not asked:
        return {}
    # The frames, each once; the bounds let the planner skip all other days.
    rows: list[Any] = await connection.fetch(
        "select p.trace_id, p.started_at, p.frame, p.body"
        " from unnest($2::bytea[], $3::timestamptz[], $4::bigint[]) as asked (trace_id, started_at, frame)"
        " join span_payload p using (trace_id, started_at, frame)"
        " where p.project_id = $1 and p.started_at between $5 and $6",
        project_id,
        *(list(column) for column in zip(*asked, strict=True)),
        min(day for _, day, _ in asked),
        max(day for _, day, _ in asked),
    )
    opened: list[tuple[bytes, datetime, Frame, list[bytes]]] = []
    for row in rows:
        key = (row["trace_id"], row["started_at"], row["frame"])
        try:
            opened.append((row["trace_id"], row["started_at"], Frame(row["body"]), asked[key]))
        except Unreadable:
            continue
    wanted = {(digest, day) for _, day, frame, ids in opened for digest in frame.needed(ids)}
    stored = await _messages(connection, project_id, sorted(wanted))
    found: dict[tuple[bytes, bytes], WireSpan] = {}
    for trace_id, day, opened_frame, span_ids in opened:
        for span_id in span_ids:
            try:
                found[trace_id, span_id] = opened_frame.span(span_id, stored.get(day, {}))
            except Unreadable:
                continue
    return found


async def _messages(
    connection: Connection, project_id: int, wanted: Sequence[tuple[bytes, datetime]]
) -> dict[datetime, dict[bytes, bytes]]:
    if not wanted:
        return {}
    # The shared messages, by day.
    rows = await connection.fetch(
        "select m.hash, m.started_at, m.body"
        " from unnest($2::bytea[], $3::timestamptz[]) as asked (hash, started_at)"
        " join span_message m using (hash, started_at) where m.project_id = $1",
        project_id,
        [digest for digest, _ in wanted],
        [day for _, day in wanted],
    )
    found: dict[datetime, dict[bytes, bytes]] = {}
    for row in rows:
        found.setdefault(row["started_at"], {})[row["hash"]] = row["body"]
    return found
