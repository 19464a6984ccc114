"""Traces read back: a page of roll-up rows, the largest of a range, and one with its spans."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, Final, Literal

import attrs
import trio

from protocol.refusals import BAD_REQUEST, Refused
from svc.domain.attributes.conventions import PAYLOAD
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database, left_s
from svc.store.postgres.rows import trace_row
from svc.store.reads.payloads import ROOM_BYTES, Opening
from svc.store.reads.questions.attributes import history_notes
from svc.store.reads.traces.by_payload import page_by_payload, resolved
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.trace_filter import (
    NEWEST_TRACES,
    asked_for,
    both,
    held_by_spans,
    held_clause,
    narrowed_by_index,
    of_its_own,
)
from svc.store.reads.traces.trace_filter import TraceFilter as TraceFilter
from svc.store.reads.traces.trace_hours import hours_holding, traces_of_hours, walked
from svc.store.reads.traces.trace_search import Search, newest_traces
from svc.store.spans.availability import STORED_TRACE, bounds, traces_with_payloads

SPANS_SHOWN: Final = 200

TraceRank = Literal["latency", "cost", "tokens", "errors"]
#: By what traces are ranked, the largest first.
_RANKS: Final[dict[TraceRank, str]] = {
    "latency": "ended_at - started_at",
    "cost": "total_cost",
    "tokens": "total_tokens",
    "errors": "error_count",
}

_COLUMNS: Final = ", ".join(STORED_TRACE)


def _shown(rows: Sequence[Any], available: Set[bytes]) -> list[dict[str, Any]]:
    return [trace_row(row, payload_available=row["trace_id"] in available) for row in rows]


def _search(project_id: int, asked: TraceFilter, limit: int, cursor: str | None) -> Search:
    """What a page is looked for by. Raises `Refused` for a cursor of another list."""
    where = narrowed_by_index(project_id, asked)
    names = [name for name, _ in NEWEST_TRACES.columns]
    cursor_key = NEWEST_TRACES.place(cursor)
    where.after(names, cursor_key)
    narrowed = len(where.values)
    by_text, by_spans = asked_for(where, asked.q, held_by_spans(asked))
    own = of_its_own(where, asked)
    order = ", ".join(f"{name} desc" for name in names)
    return Search(
        project_id,
        where.sql(),
        both(by_text, own),
        asked.q,
        by_spans,
        where.values,
        _COLUMNS,
        order,
        limit + 1,
        narrowed,
        asked,
        cursor_key,
        low=asked.low,
        high=min((high for high in (asked.high, cursor_key and cursor_key[0]) if high), default=None),
    )


@attrs.frozen
class _Page:
    """Rows of traces, the cursor to those behind them, and which have a payload that can be read."""

    rows: Sequence[Any]
    next_cursor: str | None
    available: Set[bytes]

    @classmethod
    async def of(cls, connection: Connection, project_id: int, rows: Sequence[Any], limit: int) -> _Page:
        """The page of these rows, of which there is one more than fit if there are more."""
        page, next_cursor = NEWEST_TRACES.page(rows, limit)
        available = await traces_with_payloads(connection, project_id, [bounds(row) for row in page])
        return cls(page, next_cursor, available)


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
        """`{traces, next_cursor}`, newest first by `started_at`; `notes` where payloads were looked into,
        or a field is younger than the range.
        """
        asked = await resolved(self.database, project_id, asked)
        if asked.by_payload:
            return await page_by_payload(self.database, self, project_id, asked, limit=limit, cursor=cursor)
        search, until_s = _search(project_id, asked, limit, cursor), trio.current_time() + timeout_s
        # A session is few traces, and has an index; so have marks and feedback.
        looked_for = bool(search.q or search.held or (search.said and not asked.by_index))

        async def work(connection: Connection) -> _Page | None:
            if looked_for:
                rows = await newest_traces(connection, search)
                if rows is None and asked.conjoined:
                    return None
                if rows is None:
                    rows = await walked(connection, search)
            else:
                rows = await walked(connection, search)
            return await _Page.of(connection, project_id, rows, limit)

        async def by_hours(connection: Connection) -> _Page:
            return await _Page.of(
                connection, project_id, await traces_of_hours(connection, search, hours), limit
            )

        page = await self.database.run(
            work, transaction=looked_for, readonly=True, snapshot=True, timeout_s=left_s(until_s)
        )
        if page is None:
            hours = await hours_holding(self.database, project_id, asked, until_s)
            page = await self.database.run(by_hours, readonly=True, snapshot=True, timeout_s=left_s(until_s))
        notes = await _notes(self.database, project_id, asked) if cursor is None else {}
        return {"traces": _shown(page.rows, page.available), "next_cursor": page.next_cursor, **notes}

    async def largest(
        self,
        project_id: int,
        asked: TraceFilter,
        rank: TraceRank,
        *,
        limit: int,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> dict[str, Any]:
        """`{traces, next_cursor}`: the largest traces of a filter, and no further page.

        No index knows them, so every trace of the range is looked at: ask for a range. Raises `Refused` for
        an attribute that is no field: every payload of the range would have to be opened.
        """
        asked = await resolved(self.database, project_id, asked)
        if asked.by_payload:
            names = ", ".join(dict((*asked.payload_attributes, *asked.payload_without)))
            reason = (
                "is searched newest first"
                if names == PAYLOAD
                else "is not a field, so traces come newest first"
            )
            raise Refused(BAD_REQUEST.saying(f"{names} {reason}: leave sort out"))
        where = narrowed_by_index(project_id, asked)
        by_text, by_spans = asked_for(where, asked.q, held_by_spans(asked))
        own = of_its_own(where, asked)
        clauses = both(where.sql(), by_text, own, held_clause(by_spans, one_span=asked.one_span))

        async def work(connection: Connection) -> tuple[Sequence[Any], Set[bytes]]:
            rows = await connection.fetch(
                f"select {_COLUMNS} from trace t where {clauses}"
                f" order by {_RANKS[rank]} desc nulls last, started_at desc, trace_id desc"
                f" limit ${len(where.values) + 1}",
                *where.values,
                limit,
            )
            return rows, await traces_with_payloads(connection, project_id, [bounds(row) for row in rows])

        rows, available = await self.database.run(work, readonly=True, snapshot=True, timeout_s=timeout_s)
        notes = await _notes(self.database, project_id, asked)
        return {"traces": _shown(rows, available), "next_cursor": None, **notes}

    async def one(
        self,
        project_id: int,
        trace_id: bytes,
        *,
        payload: bool,
        room_bytes: int = ROOM_BYTES,
        opening: Opening | None = None,
    ) -> dict[str, Any] | None:
        """A trace with its spans, oldest first and at most 200, or None."""

        async def work(connection: Connection) -> Any:
            # The roll-up, by its key.
            trace = await connection.fetchrow(
                f"select {_COLUMNS} from trace where project_id = $1 and trace_id = $2", project_id, trace_id
            )
            if trace is None:
                return None
            spans = await self.spans.of_trace(
                connection,
                project_id,
                trace,
                room_bytes=room_bytes if payload else None,
                limit=SPANS_SHOWN + 1,
            )
            return trace, spans, await traces_with_payloads(connection, project_id, [bounds(trace)])

        stored = await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
        if stored is None:
            return None
        trace, spans, available = stored
        return {
            **trace_row(trace, payload_available=bool(available)),
            "spans": await attrs.evolve(spans, rows=spans.rows[:SPANS_SHOWN]).shown(room_bytes, opening),
            "spans_truncated": len(spans.rows) > SPANS_SHOWN,
        }


async def _notes(database: Database, project_id: int, asked: TraceFilter) -> dict[str, list[str]]:
    names = [name for name, _ in (*asked.attributes, *asked.without)]
    notes = await history_notes(database, project_id, names, asked.low)
    return {"notes": notes} if notes else {}
