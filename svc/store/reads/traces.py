"""Traces read back: a page of roll-up rows, and one with its spans."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import attrs

from svc.domain.span import Kind, Status
from svc.store.aggregates.trace_values import HELD
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.keyset import Keyset
from svc.store.postgres.rows import TRACE_COLUMNS, trace_row
from svc.store.reads.payloads import ROOM_BYTES
from svc.store.reads.spans import SpanReads
from svc.store.reads.trace_search import HeldValue, Search, asked_for, newest_traces

NEWEST_TRACES: Final = Keyset("traces", (("started_at", "moment"), ("trace_id", "bytes")))
SPANS_SHOWN: Final = 200

_COLUMNS: Final = ", ".join((*TRACE_COLUMNS, "next_at", "first_started_at", "last_started_at"))


@attrs.frozen
class TraceFilter:
    """What a page of traces is narrowed to; None asks for nothing. The range is inclusive on `started_at`.

    Model, kind and call site ask for traces that hold a span of it; the others are of the trace itself. A
    trace at a bound of duration or cost is within it.
    """

    model: str | None = None
    kind: Kind | None = None
    call_site_id: str | None = None
    status: Status | None = None
    low: datetime | None = None
    high: datetime | None = None
    q: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    slower_than: timedelta | None = None
    faster_than: timedelta | None = None
    dearer_than: Decimal | None = None
    cheaper_than: Decimal | None = None
    #: Whether the price of any of its spans is not known.
    unpriced: bool | None = None
    #: Whether any of its spans failed, whatever became of the trace.
    failed_spans: bool | None = None
    #: Values that are left out: pairs of a field of this class and what it is not.
    without: Sequence[tuple[str, str]] = ()


@attrs.define(eq=False)
class TraceReads:
    """Reads traces of one project at a time."""

    database: Database
    spans: SpanReads

    async def page(
        self,
        project_id: int,
        asked: TraceFilter,
        *,
        limit: int,
        cursor: str | None,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> dict[str, Any]:
        """`{traces, next_cursor}`, newest first by `started_at`."""
        where = narrowed_by_index(project_id, asked)
        names = [name for name, _ in NEWEST_TRACES.columns]
        place = NEWEST_TRACES.place(cursor)
        where.after(names, place)
        narrowed = len(where.values)
        said, held = asked_for(where, asked.q, held_by_spans(asked))
        own = of_its_own(where, asked)
        order = ", ".join(f"{name} desc" for name in names)
        search = Search(
            project_id,
            where.sql(),
            both(said, own),
            asked.q,
            held,
            where.values,
            _COLUMNS,
            order,
            limit + 1,
            narrowed,
            low=asked.low,
            high=min((high for high in (asked.high, place and place[0]) if high), default=None),
        )

        async def work(connection: Connection) -> list[Any]:
            if said or held:
                return await newest_traces(connection, search)
            # One page and one row more, down the index on started_at.
            return await connection.fetch(
                f"select {_COLUMNS} from trace t where {both(search.near, own)} order by {order}"
                f" limit ${len(where.values) + 1}",
                *where.values,
                limit + 1,
            )

        rows = await self.database.run(
            work,
            transaction=bool(said or held),
            readonly=True,
            snapshot=True,
            timeout_s=timeout_s,
        )
        page, next_cursor = NEWEST_TRACES.page(rows, limit)
        return {"traces": [trace_row(row) for row in page], "next_cursor": next_cursor}

    async def one(
        self, project_id: int, trace_id: bytes, *, payload: bool, room_bytes: int = ROOM_BYTES
    ) -> dict[str, Any] | None:
        """A trace with its spans, oldest first and at most 200, or None."""

        async def work(connection: Connection) -> Any:
            # The roll-up, by its key.
            trace = await connection.fetchrow(
                f"select {_COLUMNS} from trace where project_id = $1 and trace_id = $2", project_id, trace_id
            )
            if trace is None:
                return None
            return trace, await self.spans.of_trace(
                connection,
                project_id,
                trace,
                room_bytes=room_bytes if payload else None,
                limit=SPANS_SHOWN + 1,
            )

        found = await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
        if found is None:
            return None
        trace, spans = found
        return {
            **trace_row(trace),
            "spans": await attrs.evolve(spans, rows=spans.rows[:SPANS_SHOWN]).shown(room_bytes),
            "spans_truncated": len(spans.rows) > SPANS_SHOWN,
        }


def narrowed_by_index(project_id: int, asked: TraceFilter) -> Where:
    """What an index on traces narrows: status, session, range."""
    where = Where.of(project_id)
    if asked.status is not None:
        # In so many words, not as a parameter, so that the index on failed traces serves.
        where.add("status = 'error'" if asked.status == "error" else "status = 'ok'")
    where.equal("session_id", asked.session_id)
    where.within("started_at", asked.low, asked.high)
    return where


def of_its_own(near: Where, asked: TraceFilter) -> str:
    """What a trace says by itself and no index narrows; its parameters are added to those of `near`."""
    own = Where([], near.values)
    own.equal("user_id", asked.user_id)
    if asked.slower_than is not None:
        own.add(f"ended_at >= started_at + {own.value(asked.slower_than)}::interval")
    if asked.faster_than is not None:
        own.add(f"ended_at <= started_at + {own.value(asked.faster_than)}::interval")
    own.within_numbers("total_cost", asked.dearer_than, asked.cheaper_than)
    if asked.unpriced is not None:
        own.add("unpriced_spans > 0" if asked.unpriced else "unpriced_spans = 0")
    if asked.failed_spans is not None:
        own.add("error_count > 0" if asked.failed_spans else "error_count = 0")
    for field, value in asked.without:
        if field in HELD:
            own.add(f"not {HeldValue(HELD[field], value, own.value(value)).clause()}")
        else:
            own.add(f"{_OWN[field]} is distinct from {own.value(value)}")
    return own.sql()


def both(*clauses: str) -> str:
    """The clauses that there are, joined."""
    return " and ".join(clause for clause in clauses if clause)


#: Fields of a filter that ask for what the trace itself has; the others ask for what some span has.
_OWN: Final = {"session_id": "session_id", "user_id": "user_id"}


def held_by_spans(asked: TraceFilter) -> list[tuple[Sequence[str], str | None]]:
    """What some span of the trace has, and in which of its fields."""
    return [(fields, getattr(asked, name)) for name, fields in HELD.items()]
