"""Whether what spans said is still there: payloads age out a day ahead of their spans, or go with the disk.

The one rule for every read: where the payload is gone, its previews are null (spec, "Semantics that must
hold"). Nothing is rewritten when a day of payloads goes, so old data needs no repair, and each read looks up
what it shows and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from svc.store.postgres.database import Connection
from svc.store.postgres.rows import IS_SETTLED, TRACE_COLUMNS
from svc.store.spans.payloads import SpanKey

#: Whether a span `s` of project `$1` still has its payload, by its key; `offset 0` keeps it a look-up a row.
SPAN_AVAILABLE: Final = (
    "exists (select from span_payload p where p.project_id = $1 and p.trace_id = s.trace_id"
    " and p.started_at = date_trunc('day', s.started_at, 'UTC') and p.frame = s.frame offset 0)"
    " as payload_available"
)
#: Columns of a trace that tell where its payloads lie.
TRACE_BOUNDS: Final = ("first_started_at", "last_started_at")
#: What a trace is read with to be shown: beside it, whether it is settled and has a payload.
STORED_TRACE: Final = (*TRACE_COLUMNS, IS_SETTLED, *TRACE_BOUNDS)

#: Whether the days of a trace `t` of project `$1` still hold a payload of it, a look-up likewise.
TRACE_AVAILABLE: Final = (
    "exists (select from span_payload p where p.project_id = $1 and p.trace_id = t.trace_id"
    " and p.started_at between date_trunc('day', t.first_started_at, 'UTC') and t.last_started_at offset 0)"
)
# Those of some traces that still have a payload.
_TRACES: Final = (
    "select t.trace_id from unnest($2::bytea[], $3::timestamptz[], $4::timestamptz[])"
    f" as t (trace_id, first_started_at, last_started_at) where {TRACE_AVAILABLE}"
)

# Those of some spans that still have their payload, a look-up each.
_SPANS: Final = f"""
select s.trace_id, s.span_id from (select s.*, {SPAN_AVAILABLE}
    from unnest($2::bytea[], $3::bytea[], $4::timestamptz[], $5::bigint[])
    as s (trace_id, span_id, started_at, frame)) s where s.payload_available
"""

#: A trace, and when its first and its last span started.
TraceBounds = tuple[bytes, datetime, datetime]


async def traces_with_payloads(
    connection: Connection, project_id: int, traces: Sequence[TraceBounds]
) -> frozenset[bytes]:
    """The ids of those of these traces that still have a payload."""
    if not traces:
        return frozenset()
    ids, lows, highs = (list(column) for column in zip(*traces, strict=True))
    rows = await connection.fetch(_TRACES, project_id, ids, lows, highs)
    return frozenset(row["trace_id"] for row in rows)


async def spans_with_payloads(
    connection: Connection, project_id: int, spans: Sequence[SpanKey]
) -> frozenset[tuple[bytes, bytes]]:
    """Trace and span id of those of these spans that still have their payload."""
    if not spans:
        return frozenset()
    columns = [list(column) for column in zip(*spans, strict=True)]
    rows = await connection.fetch(_SPANS, project_id, *columns)
    return frozenset((row["trace_id"], row["span_id"]) for row in rows)


def bounds(row: Any) -> TraceBounds:
    """The bounds of a row of `trace`."""
    return row["trace_id"], row["first_started_at"], row["last_started_at"]


def key_of(row: Any) -> SpanKey:
    """The key of a span, for its payload."""
    return row["trace_id"], row["span_id"], row["started_at"], row["frame"]
