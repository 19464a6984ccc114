"""Reading settled traces for tallying: rows, tool calls and payloads of a few traces at a time.

Owns: `due_traces`, bounded in traces, spans and bytes. Tallying calls it in a transaction that only
reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import msgspec

from protocol.inflate import Unreadable
from protocol.otlp.reading import WireSpan
from svc.domain.calendar import day_of
from svc.domain.detect.detectors.settled_trace import TEXTUAL, TracedSpan
from svc.domain.feedback.entries import Rating
from svc.domain.intake.packing import Frame
from svc.domain.spans.span import CostSource, Kind, Repeats, Status, ToolCall
from svc.store.detection.counting.ratings import read_ratings
from svc.store.postgres.database import Connection
from svc.store.spans.payloads import PackedSpans, Place, read_packed

#: A round takes at most so many traces, and stops adding them at so many spans and bytes of payloads. By half
#: as many a span took a twelfth more, by a fifth a third more (measured November 2026).
ROUND_TRACES: Final = 1_000
ROUND_SPANS: Final = 10_000
ROUND_BYTES: Final = 8 * 1024 * 1024
#: A round reads at most so many tool calls.
ROUND_CALLS: Final = 100_000
#: Of one trace at most so many spans are read, the first ones by start, and of them so many payloads.
TRACE_SPANS: Final = 20_000
TRACE_TEXTS: Final = 1_000

# What settled longest ago.
_DUE: Final = "select place, trace_id from fold_due where project_id = $1 order by place limit $2"

# The traces behind it.
_TRACES: Final = (
    "select trace_id, call_site_id, first_started_at, last_started_at, span_count from trace"
    " where project_id = $1 and trace_id = any($2::bytea[])"
)

# Their spans, from the days they have spans in: what a `_Row` holds, in its order.
_SPANS: Final = (
    "select trace_id, span_id, parent_span_id, kind, status, started_at, ended_at, call_site_id,"
    " usage_repeats, cost_source, total_cost::float8, frame, name, provided_model_name, facets, error_type,"
    " error_message from span"
    " where project_id = $1 and trace_id = any($2::bytea[]) and started_at between $3 and $4"
    " order by trace_id, started_at, span_id"
)
# Of a single one, as many as are read: it may have any number.
_FIRST_SPANS: Final = f"{_SPANS} limit $5"

# Their tool calls: what a `ToolCall` holds, in its order, behind the span.
_CALLS: Final = (
    "select trace_id, span_id, index, name, call_id, status, error_type, error_message from tool_call"
    " where project_id = $1 and trace_id = any($2::bytea[]) and started_at between $3 and $4{spans}"
    f" order by trace_id, span_id, index limit {ROUND_CALLS}"
)
# All of them, or those of some spans.
_ALL_CALLS: Final = _CALLS.format(spans="")
_CALLS_OF_SPANS: Final = _CALLS.format(spans=" and span_id = any($5::bytea[])")

# How large frames are; their length stands beside them, none is fetched.
_SIZES: Final = (
    "select p.trace_id, p.started_at, p.frame, octet_length(p.body) as bytes"
    " from unnest($2::bytea[], $3::timestamptz[], $4::bigint[]) as asked (trace_id, started_at, frame)"
    " join span_payload p using (trace_id, started_at, frame)"
    " where p.project_id = $1 and p.started_at between $5 and $6"
)


# Not frozen: one for each span. A struct takes half the time.
class _Row(msgspec.Struct, eq=False, gc=False):
    """A `TracedSpan` and a `FacetSpan`, and the frame of its payload."""

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes | None
    kind: Kind
    status: Status
    started_at: datetime
    ended_at: datetime | None
    call_site_id: str
    usage_repeats: Repeats | None
    cost_source: CostSource | None
    total_cost: float | None
    frame: int
    name: str
    provided_model_name: str | None
    facets: str | None
    error_type: str | None
    error_message: str | None
    tool_calls: tuple[ToolCall, ...] = ()


#: A row beside the place of its payload.
_Wanted = tuple[_Row, Place]


@attrs.frozen(eq=False)
class DueTrace:
    """A trace to be tallied: its rows in order of start, and what it takes to open the payloads of its
    textual spans. `unread` counts those that were left out because there are too many of them. One that
    is due is lean: its histories are read as far as `Frame.lean` wants them.
    """

    trace_id: bytes
    call_site_id: str
    rows: Sequence[_Row]
    unread: int
    _lean: bool
    _wanted: Sequence[_Wanted] = attrs.field(repr=False)
    _packed: PackedSpans = attrs.field(repr=False)
    ratings: Sequence[Rating] = ()

    def payloads(self) -> Iterator[tuple[TracedSpan, WireSpan, int | None]]:
        """The payloads that are there, each opened when its turn comes, and how much was spared it; None for
        a whole one.
        """
        previous: Place | None = None
        frame: Frame | None = None
        messages: Mapping[bytes, bytes] = {}
        lean = self._lean
        for row, location in self._wanted:
            # Most lie where the one before does.
            if location is not previous:
                frame, messages = self._packed.of(location)
                previous = location
            if frame is None:
                continue
            try:
                if lean:
                    yield row, *frame.lean(row.span_id, messages)
                else:
                    yield row, frame.span(row.span_id, messages), None
            except Unreadable:
                continue


@attrs.frozen(eq=False)
class Due:
    """What a round takes on: places in the queue by trace, the traces that are still there, and whether more
    are waiting.
    """

    places: Mapping[bytes, Sequence[int]]
    traces: Sequence[DueTrace]
    more: bool


async def due_traces(connection: Connection, project_id: int) -> Due:
    """The traces that settled longest ago, as many as a round may take."""
    queued = await connection.fetch(_DUE, project_id, ROUND_TRACES)
    places: dict[bytes, list[int]] = {}
    for row in queued:
        places.setdefault(row["trace_id"], []).append(row["place"])
    rows = await connection.fetch(_TRACES, project_id, list(places))
    rows_by_id = {row["trace_id"]: row for row in rows}
    chosen: list[Any] = []
    later: set[bytes] = set()
    spans = 0
    for trace_id in places:
        # Of one that has gone only the place is left to be cleared.
        if (trace := rows_by_id.get(trace_id)) is not None:
            if chosen and spans + trace["span_count"] > ROUND_SPANS:
                later.add(trace_id)
            else:
                spans += trace["span_count"]
                chosen.append(trace)
    traces = await _read_traces(connection, project_id, chosen, lean=True)
    later |= {row["trace_id"] for row in chosen} - {trace.trace_id for trace in traces}
    due = {trace_id: location for trace_id, location in places.items() if trace_id not in later}
    return Due(due, traces, more=bool(later) or len(queued) == ROUND_TRACES)


async def settled_traces(
    connection: Connection, project_id: int, trace_ids: Sequence[bytes], kinds: frozenset[Kind]
) -> list[DueTrace]:
    """These traces, as far as they are there, with the payloads of spans of these kinds; within the bounds of
    a round.
    """
    rows = await connection.fetch(_TRACES, project_id, list(trace_ids))
    chosen: list[Any] = []
    spans = 0
    for row in rows:
        spans += row["span_count"]
        if chosen and spans > ROUND_SPANS:
            break
        chosen.append(row)
    return await _read_traces(connection, project_id, chosen, kinds)


async def _read_traces(
    connection: Connection,
    project_id: int,
    chosen: Sequence[Any],
    kinds: frozenset[Kind] = TEXTUAL,
    *,
    lean: bool = False,
) -> list[DueTrace]:
    if not chosen:
        return []
    bounds = (min(row["first_started_at"] for row in chosen), max(row["last_started_at"] for row in chosen))
    rows: dict[bytes, list[_Row]] = {row["trace_id"]: [] for row in chosen}
    # One that is larger than a round is alone in it.
    statement, limit = (_SPANS, ()) if len(chosen) > 1 else (_FIRST_SPANS, (TRACE_SPANS,))
    cursor = await connection.cursor(statement, project_id, list(rows), *bounds, *limit)
    while records := await cursor.fetch(ROUND_SPANS):
        for record in records:
            rows[record[0]].append(_Row(*record))
    calls: dict[bytes, dict[bytes, list[ToolCall]]] = {}
    for trace_id, span_id, *fields in await _calls(connection, project_id, rows, bounds):
        calls.setdefault(trace_id, {}).setdefault(span_id, []).append(ToolCall(*fields))
    candidates: dict[bytes, list[_Wanted]] = {}
    for trace_id, of_trace in rows.items():
        if (called := calls.get(trace_id)) is not None:
            for row in of_trace:
                if (of_span := called.get(row.span_id)) is not None:
                    row.tool_calls = tuple(of_span)
        candidates[trace_id] = _placed(trace_id, [row for row in of_trace if row.kind in kinds])
    affordable = await _affordable(connection, project_id, candidates)
    span_ids_at: dict[Place, list[bytes]] = {}
    for of_trace_wanted in affordable.values():
        previous: Place | None = None
        for row, location in of_trace_wanted:
            if location is not previous:
                span_ids = span_ids_at.setdefault(location, [])
                previous = location
            span_ids.append(row.span_id)
    packed = await read_packed(connection, project_id, span_ids_at, lean=lean)
    ratings = await read_ratings(connection, project_id, list(rows))
    return [
        DueTrace(
            row["trace_id"],
            row["call_site_id"],
            rows[row["trace_id"]],
            len(candidates[row["trace_id"]]) - len(affordable[row["trace_id"]]),
            lean,
            affordable[row["trace_id"]],
            packed,
            ratings.get(row["trace_id"], ()),
        )
        for row in chosen
        if row["trace_id"] in affordable
    ]


async def _calls(
    connection: Connection,
    project_id: int,
    rows: Mapping[bytes, Sequence[_Row]],
    bounds: tuple[datetime, datetime],
) -> list[Any]:
    (first, *other_traces) = rows.values()
    if other_traces or len(first) < TRACE_SPANS:
        return await connection.fetch(_ALL_CALLS, project_id, list(rows), *bounds)
    span_ids = [row.span_id for row in first]
    return await connection.fetch(_CALLS_OF_SPANS, project_id, list(rows), *bounds, span_ids)


def _placed(trace_id: bytes, rows: Sequence[_Row]) -> list[_Wanted]:
    # Most rows of a trace share a frame, and then its place.
    places: dict[tuple[int, int], Place] = {}
    candidates: list[_Wanted] = []
    frame = day = -1
    location: Place | None = None
    for row in rows:
        if row.frame != frame or row.started_at.toordinal() != day or location is None:
            frame, day = key = row.frame, row.started_at.toordinal()
            if (location := places.get(key)) is None:
                location = places[key] = (trace_id, day_of(row.started_at), frame)
        candidates.append((row, location))
    return candidates


async def _affordable(
    connection: Connection, project_id: int, candidates: Mapping[bytes, Sequence[_Wanted]]
) -> dict[bytes, Sequence[_Wanted]]:
    """The payloads to read, by trace: whole traces up to the budget of a round, of each what fits into it."""
    locations: dict[Place, None] = {}
    previous: Place | None = None
    for of_trace in candidates.values():
        for _, location in of_trace:
            if location is not previous:
                locations[location] = None
                previous = location
    if not locations:
        return {trace_id: [] for trace_id in candidates}
    rows = await connection.fetch(
        _SIZES,
        project_id,
        [trace for trace, _, _ in locations],
        [day for _, day, _ in locations],
        [frame for _, _, frame in locations],
        min(day for _, day, _ in locations),
        max(day for _, day, _ in locations),
    )
    sizes = {(row["trace_id"], row["started_at"], row["frame"]): row["bytes"] for row in rows}
    affordable: dict[bytes, Sequence[_Wanted]] = {}
    spent = 0
    for trace_id, of_trace in candidates.items():
        count = 0
        previous = None
        opened: set[Place] = set()
        used = 0
        for _, location in of_trace[:TRACE_TEXTS]:
            if location is not previous and location not in opened:
                used += sizes.get(location, 0)
                if used > ROUND_BYTES:
                    break
                opened.add(location)
            previous = location
            count += 1
        spent += min(used, ROUND_BYTES)
        if affordable and spent > ROUND_BYTES:
            break
        affordable[trace_id] = of_trace[:count]
    return affordable
