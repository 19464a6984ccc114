"""Expiry of what claims to lie in the future: rows that no day takes before their term is over.

Called by the retention sweep, after the days. A clock that is years ahead dates spans so that their day never
comes; they have the term of what they are, data that arrived on a day, and go by when they were stored.

Ordering: spans and tool calls by their `created_at`, then the payloads that no span refers to any more, then
the messages of days of which no payload is left. Traces follow with the project's rest.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import trio

from protocol.storage import Freed
from svc.domain.queries.datasets import SPANS, TOOL_CALLS, Dataset
from svc.store.aggregates.closed_hours import mark_dirty
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import WINDOW_AHEAD_DAYS, midnight
from svc.store.retention.days import BATCH_PAUSE_S, BATCH_ROWS, STEP_TIMEOUT_S, Expired, with_rows

_UNCITED: Final = (
    "not exists (select from kept_trace k where k.project_id = t.project_id and k.trace_id = t.trace_id)"
)
# What may go of each table, in the order in which it goes: its key, the condition, and what counts it.
_TABLES: Final[tuple[tuple[str, str, str, Dataset | None], ...]] = (
    (
        "span",
        "trace_id, span_id, started_at",
        f"t.created_at < $3 and {_UNCITED}",
        SPANS,
    ),
    (
        "tool_call",
        "trace_id, span_id, index, started_at",
        f"t.created_at < $3 and {_UNCITED}",
        TOOL_CALLS,
    ),
    (
        "span_payload",
        "trace_id, started_at, frame",
        "not exists (select from span_default s where s.project_id = t.project_id"
        " and s.trace_id = t.trace_id and s.frame = t.frame offset 0)",
        None,
    ),
    (
        "span_message",
        "hash, started_at",
        "date_trunc('day', t.started_at, 'UTC') not in (select date_trunc('day', p.started_at, 'UTC')"
        " from span_payload_default p where p.project_id = $1 and p.started_at >= $2)",
        None,
    ),
)


def future(now: datetime) -> datetime:
    """The moment from which on a time lies in no day that is made ahead."""
    return midnight(now.date()) + timedelta(days=WINDOW_AHEAD_DAYS + 1)


async def sweep_future(
    database: Database, expired: Expired, now: datetime, freed: Callable[[Freed], None]
) -> None:
    """Delete what projects stored before their cutoffs under times that have not come. Payloads too."""
    dated = [project_id for project_id, cut in expired.items() if cut is not None]
    for table, key, condition, dataset in _TABLES:

        async def owners(connection: Connection, table: str = table) -> list[int]:
            return await with_rows(connection, table, f"{table}_default", dated)

        for project_id in await database.run(owners, readonly=True):
            statement = _deletion(table, key, condition, counted=dataset is not None)
            values = (project_id, future(now), *((expired[project_id],) if dataset is not None else ()))
            await _repeat(database, table, statement, values, dataset, now, freed)


def _deletion(table: str, key: str, condition: str, *, counted: bool) -> str:
    hours = "array_agg(distinct date_trunc('hour', created_at, 'UTC'))" if counted else "null::timestamptz[]"
    # A stretch of a project's rows in the default partition.
    return (
        f"with gone as (delete from {table}_default where project_id = $1 and ({key}) in (select {key}"
        f" from {table}_default t where t.project_id = $1 and t.started_at >= $2 and {condition}"
        f" limit {BATCH_ROWS}) returning *) select count(*) as n, {hours} as hours from gone"
    )


async def _repeat(
    database: Database,
    table: str,
    statement: str,
    values: tuple[Any, ...],
    dataset: Dataset | None,
    now: datetime,
    freed: Callable[[Freed], None],
) -> None:
    async def work(connection: Connection) -> int:
        row: Any = await connection.fetchrow(statement, *values)
        if dataset is not None and row["n"]:
            await mark_dirty(
                connection, [(values[0], hour) for hour in row["hours"]], dataset, now, slow=True
            )
        n: int = row["n"]
        return n

    while True:
        rows = await database.run(work, timeout_s=STEP_TIMEOUT_S)
        if rows:
            freed(Freed(table, rows=rows))
        if rows < BATCH_ROWS:
            return
        await trio.sleep(BATCH_PAUSE_S)
