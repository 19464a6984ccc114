"""Spans, traces and sessions of a range, a chunk at a time, for an export of any length.

Called by `trace-svc export`. Each chunk is a transaction of its own along an index, so that memory stays flat
and nothing holds the database up; what arrives meanwhile may or may not be in it, and nothing is in it twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

import attrs

from protocol.rest.query import FilterValue
from svc.domain.queries.datasets import Field
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.rows import (
    SESSION_COLUMNS,
    SPAN_COLUMNS,
    SPAN_EXTRAS,
    TRACE_COLUMNS,
    session_row,
    span_row,
    trace_row,
)
from svc.store.reads.questions import equals
from svc.store.reads.trace_filter import holding
from svc.store.spans.availability import TRACE_BOUNDS, bounds, traces_with_payloads
from svc.store.spans.payloads import SpanKey, read_envelopes

CHUNK_ROWS: Final = 500
#: Envelopes held at once; one that is larger is fetched alone.
CHUNK_BYTES: Final = 32 * 1024 * 1024
_TIMEOUT_S: Final = 120.0

#: A span as its row shows it, and as it came; None when its payload has aged out.
ExportedSpan = tuple[dict[str, Any], bytes | None]


@attrs.define(eq=False)
class ExportReads:
    """Reads a project: spans that have all values of `filters`, traces with one such span. Raises `Outage`.

    What else lies in the range is passed over chunk by chunk, so that a rare value does not make one
    statement of a long range.
    """

    database: Database
    filters: Sequence[tuple[Field, FilterValue]] = ()

    def _wanted(self, where: Where, *, traces: bool = False) -> str:
        """Whether a row is exported, as a column."""
        conditions = " and ".join(equals(where, field, value) for field, value in self.filters) or "true"
        return f"({holding(conditions) if traces and self.filters else conditions}) as is_wanted"

    async def spans(
        self, project_id: int, low: datetime, high: datetime
    ) -> AsyncIterator[Sequence[ExportedSpan]]:
        """Spans that were stored in the range, in that order, with their payloads."""
        columns = ", ".join(dict.fromkeys((*SPAN_COLUMNS, *SPAN_EXTRAS, "frame")))
        cursor: tuple[Any, ...] = (low, b"", b"")
        while True:
            where = Where.of(project_id)
            where.values += [cursor[0], high, *cursor[1:], CHUNK_ROWS]
            wanted = self._wanted(where)

            async def work(
                connection: Connection, where: Where = where, wanted: str = wanted
            ) -> tuple[Any, ...]:
                # A stretch along the index on what was stored when.
                rows = await connection.fetch(
                    f"select {columns}, {wanted} from span where project_id = $1 and created_at >= $2"
                    " and created_at < $3 and (created_at, trace_id, span_id) > ($2, $4, $5)"
                    " order by created_at, trace_id, span_id limit $6",
                    *where.values,
                )
                return rows, await _full_rows(
                    connection, project_id, [row for row in rows if row["is_wanted"]]
                )

            rows, envelopes = await self.database.run(work, readonly=True, timeout_s=_TIMEOUT_S)
            if spans := [
                _span(row, envelopes.get((row["trace_id"], row["span_id"])))
                for row in rows
                if row["is_wanted"]
            ]:
                yield spans
            if len(rows) < CHUNK_ROWS:
                return
            cursor = tuple(rows[-1][key] for key in ("created_at", "trace_id", "span_id"))

    async def traces(
        self, project_id: int, low: datetime, high: datetime
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """Traces that started in the range."""
        columns = ", ".join((*TRACE_COLUMNS, "next_at", *TRACE_BOUNDS))
        async for rows in self._rows(columns, "trace", "trace_id", b"", project_id, low, high):
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

    async def _rows(
        self,
        columns: str,
        table: Literal["trace", "session"],
        key: str,
        first: bytes | str,
        project_id: int,
        low: datetime,
        high: datetime,
    ) -> AsyncIterator[list[Any]]:
        cursor: tuple[Any, ...] = (low, first)
        while True:
            where = Where.of(project_id)
            where.values += [cursor[0], high, cursor[1], CHUNK_ROWS]
            wanted = self._wanted(where, traces=True) if table == "trace" else "true as is_wanted"

            async def work(connection: Connection, where: Where = where, wanted: str = wanted) -> list[Any]:
                # A stretch by when they started.
                return await connection.fetch(
                    f"select {columns}, {wanted} from {table} t where project_id = $1 and started_at >= $2"
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


async def _full_rows(
    connection: Connection, project_id: int, rows: Sequence[Any]
) -> dict[tuple[bytes, bytes], bytes]:
    keys: dict[tuple[bytes, bytes], SpanKey] = {
        (row["trace_id"], row["span_id"]): (row["trace_id"], row["span_id"], row["started_at"], row["frame"])
        for row in rows
    }
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
