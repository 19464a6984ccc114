"""Spans, traces and sessions of a range, a chunk at a time, for an export of any length.

Called by `trace-svc export`. Each chunk is a transaction of its own along an index, so that memory stays flat
and nothing holds the database up; what arrives meanwhile may or may not be in it, and nothing is in it twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

import attrs

from protocol.rest.query import FilterValue
from svc.domain.queries.datasets import Field
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.rows import SESSION_COLUMNS, STORED_SPAN, session_row, span_row, trace_row
from svc.store.reads.payload_scan import Wanted, saying_spans, saying_traces, spans_of_traces
from svc.store.reads.questions.questions import equals
from svc.store.reads.traces.trace_filter import holding
from svc.store.spans.availability import STORED_TRACE, bounds, key_of, traces_with_payloads
from svc.store.spans.payloads import read_envelopes

CHUNK_ROWS: Final = 500
#: Envelopes held at once; one that is larger is fetched alone.
CHUNK_BYTES: Final = 32 * 1024 * 1024
#: Spans of several traces whose payloads are looked into at once; those of one trace always are.
LOOKED_SPANS: Final = 20_000
_TIMEOUT_S: Final = 120.0

#: A span as its row shows it, and as it came; None when its payload has aged out.
ExportedSpan = tuple[dict[str, Any], bytes | None]


@attrs.define(eq=False)
class ExportReads:
    """Reads a project: spans that have all values of `filters`, traces with one such span. Raises `Outage`.

    `payload_filters` are values of attributes that are no fields, which such a span has as well; `looked`
    counts the spans whose payloads were looked into for that. What else lies in the range is passed over
    chunk by chunk, so that a rare value does not make one statement of a long range.
    """

    database: Database
    filters: Sequence[tuple[Field, FilterValue]] = ()
    payload_filters: Wanted = ()
    looked: int = 0

    def _condition(self, where: Where) -> str:
        return " and ".join(equals(where, field, value) for field, value in self.filters) or "true"

    def _wanted(self, where: Where, *, traces: bool = False) -> str:
        """Whether a row is exported, as a column."""
        condition = self._condition(where)
        return f"({holding(condition) if traces and self.filters else condition}) as is_wanted"

    async def spans(
        self, project_id: int, low: datetime, high: datetime
    ) -> AsyncIterator[Sequence[ExportedSpan]]:
        """Spans that were stored in the range, in that order, with their payloads."""
        columns = ", ".join(STORED_SPAN)
        cursor: tuple[Any, ...] = (low, b"", b"")
        while True:
            where = Where.of(project_id)
            where.values += [cursor[0], high, *cursor[1:], CHUNK_ROWS]
            is_wanted = self._wanted(where)

            async def stretch(
                connection: Connection, where: Where = where, is_wanted: str = is_wanted
            ) -> list[Any]:
                # A stretch along the index on what was stored when.
                return await connection.fetch(
                    f"select {columns}, {is_wanted} from span where project_id = $1 and created_at >= $2"
                    " and created_at < $3 and (created_at, trace_id, span_id) > ($2, $4, $5)"
                    " order by created_at, trace_id, span_id limit $6",
                    *where.values,
                )

            rows = await self.database.run(stretch, readonly=True, timeout_s=_TIMEOUT_S)
            chosen = await self._saying_spans(project_id, [row for row in rows if row["is_wanted"]])
            envelopes = await self.database.run(
                partial(_full_rows, project_id=project_id, rows=chosen), readonly=True, timeout_s=_TIMEOUT_S
            )
            if chosen:
                yield [_span(row, envelopes.get((row["trace_id"], row["span_id"]))) for row in chosen]
            if len(rows) < CHUNK_ROWS:
                return
            cursor = tuple(rows[-1][key] for key in ("created_at", "trace_id", "span_id"))

    async def traces(
        self, project_id: int, low: datetime, high: datetime
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """Traces that started in the range."""
        columns = ", ".join(STORED_TRACE)
        pages = self._rows(columns, "trace", "trace_id", b"", project_id, low, high)
        # An outage while payloads are looked into ends it midway.
        async with aclosing(pages):
            async for chosen in pages:
                rows = await self._saying_traces(project_id, chosen)
                if not rows:
                    continue
                traces = [bounds(row) for row in rows]
                available = await self.database.run(
                    partial(traces_with_payloads, project_id=project_id, traces=traces),
                    readonly=True,
                    timeout_s=_TIMEOUT_S,
                )
                yield [trace_row(row, payload_available=row["trace_id"] in available) for row in rows]

    async def sessions(
        self, project_id: int, low: datetime, high: datetime
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """Sessions that started in the range."""
        columns = ", ".join(SESSION_COLUMNS)
        async for rows in self._rows(columns, "session", "id", "", project_id, low, high):
            yield [session_row(row) for row in rows]

    async def _saying_spans(self, project_id: int, rows: list[Any]) -> list[Any]:
        """Those of these spans whose payloads say what is asked."""
        if not self.payload_filters:
            return rows
        keys = [key_of(row) for row in rows if row["frame"] is not None]
        self.looked += len(keys)
        saying = set(await saying_spans(self.database, project_id, keys, self.payload_filters))
        return [row for row in rows if key_of(row) in saying]

    async def _saying_traces(self, project_id: int, rows: list[Any]) -> list[Any]:
        """Those of these traces with one span that has all values and says what is asked."""
        if not self.payload_filters:
            return rows
        saying: set[bytes] = set()
        for group in _grouped(rows):
            where = Where.of(project_id)
            condition = self._condition(where)
            keys = await spans_of_traces(self.database, where, group, condition)
            self.looked += len(keys)
            saying |= await saying_traces(self.database, project_id, keys, self.payload_filters)
        return [row for row in rows if row["trace_id"] in saying]

    async def _rows(
        self,
        columns: str,
        table: Literal["trace", "session"],
        key: str,
        first: bytes | str,
        project_id: int,
        low: datetime,
        high: datetime,
    ) -> AsyncGenerator[list[Any], None]:
        cursor: tuple[Any, ...] = (low, first)
        while True:
            where = Where.of(project_id)
            where.values += [cursor[0], high, cursor[1], CHUNK_ROWS]
            is_wanted = self._wanted(where, traces=True) if table == "trace" else "true as is_wanted"

            async def work(
                connection: Connection, where: Where = where, is_wanted: str = is_wanted
            ) -> list[Any]:
                # A stretch by when they started.
                return await connection.fetch(
                    f"select {columns}, {is_wanted} from {table} t where project_id = $1 and started_at >= $2"
                    f" and started_at < $3 and (started_at, {key}) > ($2, $4)"
                    f" order by started_at, {key} limit $5",
                    *where.values,
                )

            rows = await self.database.run(work, readonly=True, timeout_s=_TIMEOUT_S)
            if chosen := [row for row in rows if row["is_wanted"]]:
                yield chosen
            if len(rows) < CHUNK_ROWS:
                return
            cursor = (rows[-1]["started_at"], rows[-1][key])


def _grouped(traces: Sequence[Any]) -> Iterator[list[bytes]]:
    """The ids of these traces, as many at once as have few spans together."""
    group: list[bytes] = []
    spans = 0
    for trace in traces:
        if group and spans + trace["span_count"] > LOOKED_SPANS:
            yield group
            group, spans = [], 0
        group.append(trace["trace_id"])
        spans += trace["span_count"]
    if group:
        yield group


async def _full_rows(
    connection: Connection, project_id: int, rows: Sequence[Any]
) -> dict[tuple[bytes, bytes], bytes]:
    keys = {(row["trace_id"], row["span_id"]): key_of(row) for row in rows}
    envelopes: dict[tuple[bytes, bytes], bytes] = {}
    sized = await read_envelopes(connection, project_id, list(keys.values()), CHUNK_BYTES)
    for identity, envelope in sized.items():
        if not isinstance(envelope, bytes):
            # It had no room beside the others.
            alone = await read_envelopes(connection, project_id, [keys[identity]])
            envelope = alone.get(identity, 0)
        if isinstance(envelope, bytes):
            envelopes[identity] = envelope
    return envelopes


def _span(row: Any, envelope: bytes | None) -> ExportedSpan:
    return span_row({**row, "payload_available": envelope is not None}), envelope
