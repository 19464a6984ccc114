"""What a restored database is asked before anybody trusts the backup: rows, counts, payloads.

Called by `svc.backup.verifying` on a scratch server, before newer steps change anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.backup import Relation
from svc.store.backup.catalog import quoted, relations
from svc.store.postgres.database import Connection, Database
from svc.store.spans.payloads import SpanKey, read_payloads

_TIMEOUT_S: Final = 3600.0


async def make_fast(database: Database) -> None:
    """A server that is thrown away afterwards need not wait for its disk."""

    async def work(connection: Connection) -> None:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            await connection.execute(f"alter system set {name} = off")
        await connection.execute("select pg_reload_conf()")

    await database.run(work, transaction=False)


async def differing_rows(database: Database, tables: Sequence[Relation]) -> list[str]:
    """The tables that do not have the rows that the manifest says, a sentence each."""

    async def work(connection: Connection) -> list[str]:
        names = {table.name for table in await relations(connection)}
        wrong = []
        for table in tables:
            rows = 0
            if table.name in names:
                rows = await connection.fetchval(f"select count(*) from only {quoted(table.name)}")
            if rows != table.fingerprint.rows:
                wrong.append(f"{table.label} has {rows} rows instead of {table.fingerprint.rows}")
        return wrong

    return await database.run(work, readonly=True, timeout_s=_TIMEOUT_S)


async def kinds_by_rows(database: Database) -> dict[int, dict[str, int]]:
    """How many spans of each kind every project has, counted one by one."""
    counts: dict[int, dict[str, int]] = {}
    rows = await database.fetch(
        "select project_id, kind, count(*) as n from span group by 1, 2", timeout_s=_TIMEOUT_S
    )
    for row in rows:
        counts.setdefault(row["project_id"], {})[row["kind"]] = row["n"]
    return counts


async def open_some(database: Database, limit: int) -> tuple[int, int]:
    """Open payloads of spans taken by chance. Returns how many were tried, and how many opened."""

    async def work(connection: Connection) -> tuple[int, int]:
        # Spans that still have a payload.
        rows = await connection.fetch(
            "select s.project_id, s.trace_id, s.span_id, s.started_at, s.frame from span s"
            " join span_payload p on p.project_id = s.project_id and p.trace_id = s.trace_id"
            " and p.started_at = date_trunc('day', s.started_at, 'UTC') and p.frame = s.frame"
            " order by random() limit $1",
            limit,
        )
        keys: dict[int, list[SpanKey]] = {}
        for row in rows:
            key = (row["trace_id"], row["span_id"], row["started_at"], row["frame"])
            keys.setdefault(row["project_id"], []).append(key)
        opened_counts = [
            len(await read_payloads(connection, project_id, span_keys))
            for project_id, span_keys in keys.items()
        ]
        return len(rows), sum(opened_counts)

    return await database.run(work, readonly=True, timeout_s=_TIMEOUT_S)
