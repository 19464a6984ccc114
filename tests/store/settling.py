"""Traces settled without waiting for them."""

from __future__ import annotations

from datetime import datetime

from svc.store.postgres.clock import server_clock
from svc.store.postgres.database import Connection, Database
from svc.store.spans.traces import PostgresTraceStore


async def settle_all(database: Database) -> None:
    """Settle every trace, as if its last batch had come a minute earlier."""

    async def earlier(connection: Connection) -> None:
        for table, column in (("trace", "due_at"), ("trace", "next_at"), ("trace_due", "next_at")):
            await connection.execute(
                f"update {table} set {column} = {column} - interval '1 minute' where {column} is not null"
            )

    await database.run(earlier)
    await settle_at(await database.run(server_clock), PostgresTraceStore(database))


async def settle_at(moment: datetime, traces: PostgresTraceStore) -> None:
    """Settle every trace that is due by then, in rounds of a hundred."""
    while (await traces.settle(moment, 100)).seen:
        pass
