"""Traces read back: a page of roll-up rows, and one with its spans."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from svc.domain.span import Kind, Status
from svc.store.clauses import Where
from svc.store.database import Connection, Database
from svc.store.keyset import Keyset
from svc.store.rows import TRACE_COLUMNS, trace_row
from svc.store.search import rare_traces
from svc.store.span_reads import READ_TIMEOUT_S, SpanReads

NEWEST_TRACES: Final = Keyset("traces", (("started_at", "moment"), ("trace_id", "bytes")))
SPANS_SHOWN: Final = 200

_COLUMNS: Final = ", ".join((*TRACE_COLUMNS, "next_at", "first_started_at", "last_started_at"))


@attrs.frozen
class TraceFilter:
    """What a page of traces is narrowed to; None asks for nothing. The range is inclusive on `started_at`.

    Model, kind and call site ask for traces that hold a span of it.
    """

    model: str | None = None
    kind: Kind | None = None
    call_site_id: str | None = None
    status: Status | None = None
    low: datetime | None = None
    high: datetime | None = None
    q: str | None = None


@attrs.define(eq=False)
class TraceReads:
    """Reads traces of one project at a time."""

    database: Database
    spans: SpanReads

    async def page(
        self, project_id: int, asked: TraceFilter, *, limit: int, cursor: str | None
    ) -> dict[str, Any]:
        """`{traces, next_cursor}`, newest first by `started_at`."""
        where = Where.of(project_id)
        if asked.status is not None:
            # In so many words, not as a parameter, so that the index on failed traces serves.
            where.add("status = 'error'" if asked.status == "error" else "status = 'ok'")
        where.within("started_at", asked.low, asked.high)
        where.contains(
            (
                "name",
                "encode(trace_id, 'hex')",
                "coalesce(input_preview, '')",
                "coalesce(output_preview, '')",
            ),
            asked.q,
        )
        placed: list[tuple[Sequence[str], str]] = []
        if asked.model is not None:
            placed.append((("model_id", "provided_model_name"), asked.model))
            model = where.value(asked.model)
            where.add(_holds(f"(s.model_id = {model} or s.provided_model_name = {model})"))
        if asked.kind is not None:
            placed.append((("kind",), asked.kind))
            where.add(_holds(f"s.kind = {where.value(asked.kind)}"))
        if asked.call_site_id is not None:
            where.add(_holds(f"s.call_site_id = {where.value(asked.call_site_id)}"))
        names = [name for name, _ in NEWEST_TRACES.columns]
        where.after(names, NEWEST_TRACES.place(cursor))
        size = where.value(limit + 1)
        order = ", ".join(f"{name} desc" for name in names)

        async def work(connection: Connection) -> list[Any]:
            for fields, value in placed:
                few = await rare_traces(connection, project_id, fields, value, limit + 1)
                if few is not None:
                    # These traces by their keys; `offset 0` keeps the planner from walking down to them.
                    return await connection.fetch(
                        f"select {_COLUMNS} from (select * from trace where project_id = $1"
                        f" and trace_id = any(${len(where.values) + 1}::bytea[]) offset 0) t"
                        f" where {where.sql()} order by {order} limit {size}",
                        *where.values,
                        few,
                    )
            # One page and one row more, down the index on started_at.
            return await connection.fetch(
                f"select {_COLUMNS} from trace t where {where.sql()} order by {order} limit {size}",
                *where.values,
            )

        rows = await self.database.run(
            work, transaction=bool(placed), readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S
        )
        page, next_cursor = NEWEST_TRACES.page(rows, limit)
        return {"traces": [trace_row(row) for row in page], "next_cursor": next_cursor}

    async def one(self, project_id: int, trace_id: bytes, *, payload: bool) -> dict[str, Any] | None:
        """A trace with its spans, oldest first and at most 200, or None."""

        async def work(connection: Connection) -> Any:
            # The roll-up, by its key.
            trace = await connection.fetchrow(
                f"select {_COLUMNS} from trace where project_id = $1 and trace_id = $2", project_id, trace_id
            )
            if trace is None:
                return None
            return trace, await self.spans.of_trace(
                connection, project_id, trace, payload=payload, limit=SPANS_SHOWN + 1
            )

        found = await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
        if found is None:
            return None
        trace, spans = found
        return {
            **trace_row(trace),
            "spans": await attrs.evolve(spans, rows=spans.rows[:SPANS_SHOWN]).shown(),
            "spans_truncated": len(spans.rows) > SPANS_SHOWN,
        }


def _holds(condition: str) -> str:
    # `offset 0` keeps it one look into the trace's own spans instead of a join with all of them.
    return (
        "exists (select from span s where s.project_id = $1 and s.trace_id = t.trace_id"
        f" and s.started_at between t.first_started_at and t.last_started_at and {condition} offset 0)"
    )
