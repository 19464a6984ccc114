"""Payloads: the whole span as it came, packed, and the messages that payloads of a day share.

Written within the transaction that writes the spans, read one by one or a page at a time. A payload that has
aged out, or whose messages have, is absent, which is no error (spec, "Semantics that must hold").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from protocol.inflate import Unreadable
from protocol.otlp import WireSpan
from svc.domain.calendar import day_of
from svc.domain.intake import StoredSpan
from svc.domain.packing import needed, pack_message, unpack
from svc.store.database import Connection

_KNOWN_BOUND: Final = 200_000

#: Project, hash, and the midnight of its day, which messages carry as their `started_at`.
MessageKey = tuple[int, bytes, datetime]
SpanKey = tuple[bytes, bytes, datetime]


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
                day = day_of(span.row.started_at)
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
            [day for _, _, day in keys],
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
    """The whole spans behind `(trace_id, span_id, started_at)`; those that aged out are absent."""
    # The payloads; the bounds let the planner skip all other days.
    rows: list[Any] = await connection.fetch(
        "select p.trace_id, p.span_id, p.started_at, p.body"
        " from unnest($2::bytea[], $3::bytea[], $4::timestamptz[]) as asked (trace_id, span_id, started_at)"
        " join span_payload p using (trace_id, span_id, started_at)"
        " where p.project_id = $1 and p.started_at between $5 and $6",
        project_id,
        [trace_id for trace_id, _, _ in spans],
        [span_id for _, span_id, _ in spans],
        [started_at for _, _, started_at in spans],
        min((started_at for _, _, started_at in spans), default=None),
        max((started_at for _, _, started_at in spans), default=None),
    )
    wanted = {(digest, day_of(row["started_at"])) for row in rows for digest in _needed(row["body"])}
    stored = await _messages(connection, project_id, sorted(wanted))
    found: dict[tuple[bytes, bytes], WireSpan] = {}
    for row in rows:
        messages = stored.get(day_of(row["started_at"]), {})
        try:
            found[row["trace_id"], row["span_id"]] = unpack(row["body"], messages)
        except Unreadable:
            continue
    return found


def _needed(body: bytes) -> list[bytes]:
    try:
        return needed(body)
    except Unreadable:
        # Damaged: the reader of the payload will find so too and leave it out.
        return []


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
