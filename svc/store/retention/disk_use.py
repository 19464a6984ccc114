"""Bytes on disk, by table and day, and the dropping of days that the disk budget asks for.

Called by the actor of the budget and by `trace-svc disk`. What an open finding or an unresolved case cites
stays: it is noted in the very transaction that drops its day (`svc.store.retention.days` moves it aside).
Each step is audited in its transaction.

Ordering: within a step messages go before payloads, whose frames name the messages that stay.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
import attrs
import trio

from protocol.storage import Freed
from svc.domain.retention.disk_budget import PAYLOADS, DayBytes, DiskUse, DropStep
from svc.store.accounts.audit import SYSTEM, record
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import DAILY, lock_days, midnight, partition
from svc.store.postgres.transactions import one_transaction
from svc.store.retention.days import LOCK_PAUSE_S, LOCK_TRIES, LOCK_WAIT, STEP_TIMEOUT_S, drop_day
from svc.store.retention.projects import sweep_traces
from svc.store.retention.sweep import cite

_DAY: Final = re.compile(r"_(\d{8})$")

# Every table with its indexes and long values; days with the table they are of.
_SIZES: Final = """
select c.relname as name, p.relname as parent, pg_total_relation_size(c.oid) as bytes
from pg_class c left join pg_inherits i on i.inhrelid = c.oid left join pg_class p on p.oid = i.inhparent
where c.relkind = 'r' and c.relnamespace = current_schema()::regnamespace
"""


@attrs.define(eq=False)
class PostgresDiskStore:
    """Measures and drops. `spool` is the folder of disk mode. All verbs raise `Outage`."""

    database: Database
    spool: Path

    async def measure(self) -> DiskUse:
        """What is used now."""
        rows, database_bytes, wal = await self.database.run(_measured, readonly=True)
        tables: dict[str, int] = {}
        days: dict[date, list[int]] = {}
        for row in rows:
            table = row["parent"] or row["name"]
            tables[table] = tables.get(table, 0) + row["bytes"]
            dated = _DAY.search(row["name"])
            if dated is not None and table in DAILY:
                of_day = days.setdefault(date.fromisoformat(dated[1]), [0, 0])
                of_day[0 if table in PAYLOADS else 1] += row["bytes"]
        spool = await trio.to_thread.run_sync(_folder_bytes, self.spool)
        return DiskUse(
            database=database_bytes,
            wal=wal,
            spool=spool,
            tables=tuple(sorted(tables.items(), key=lambda item: -item[1])),
            days=tuple(DayBytes(day, *sizes) for day, sizes in sorted(days.items())),
        )

    async def max_wal_bytes(self) -> int:
        """How much log the server keeps for itself."""
        # In megabytes, as the server counts it.
        rows = await self.database.fetch(
            "select setting::bigint * 1024 * 1024 as bytes from pg_settings where name = 'max_wal_size'"
        )
        wal_bytes: int = rows[0]["bytes"]
        return wal_bytes

    async def drop(self, step: DropStep, now: datetime) -> int:
        """Do one step. Returns the bytes that are free; 0 when all that is left of the day is cited."""

        async def work(connection: Connection) -> list[Freed] | None:
            try:
                async with one_transaction(connection):
                    return await _dropped(connection, step, now)
            except asyncpg.LockNotAvailableError:
                return None

        for _ in range(LOCK_TRIES):
            drops = await self.database.run(work, transaction=False, timeout_s=STEP_TIMEOUT_S)
            if drops is not None:
                if "span" in step.tables and drops:
                    await self._forget_traces(step.day, now)
                return sum(freed.bytes for freed in drops)
            await trio.sleep(LOCK_PAUSE_S)
        return 0

    async def _forget_traces(self, day: date, now: datetime) -> None:
        """Traces none of whose spans is left, and sessions none of whose traces is."""
        # Deleted projects too: their traces go like any others.
        rows = await self.database.fetch("select id from project order by id")
        for row in rows:
            await sweep_traces(
                self.database, row["id"], midnight(day) + timedelta(days=1), now, lambda _freed: None
            )


async def _measured(connection: Connection) -> tuple[list[Any], int, int]:
    rows = await connection.fetch(_SIZES)
    # Everything of this database, the catalog too.
    database_bytes: int = await connection.fetchval("select pg_database_size(current_database())")
    # Only some may look at the log of a served database.
    may = await connection.fetchval("select has_function_privilege('pg_ls_waldir()', 'execute')")
    wal: int = await connection.fetchval("select sum(size)::bigint from pg_ls_waldir()") if may else 0
    return rows, database_bytes, wal or 0


async def _dropped(connection: Connection, step: DropStep, now: datetime) -> list[Freed]:
    await connection.execute(f"set local lock_timeout = '{LOCK_WAIT}'")
    # Nobody else notes what is cited, or drops days, until the end of this transaction.
    await lock_days(connection)
    await cite(connection, now, now)
    marked = partition("span_payload" if step.tables == PAYLOADS else "span", step.day)
    if await connection.fetchval("select to_regclass($1)", marked) is None:
        return []
    # Whether anything in it may go at all.
    if not await connection.fetchval(
        f"select exists (select from {marked} r where not exists (select from kept_trace k"
        " where k.project_id = r.project_id and k.trace_id = r.trace_id))"
    ):
        return []
    freed = [await drop_day(connection, table, step.day, now) for table in step.tables]
    details = {
        "day": step.day.isoformat(),
        "what": step.what,
        "bytes": sum(table.bytes for table in freed),
        "rows": {table.table: table.rows for table in freed if table.days},
    }
    # Everybody whose data it may have been.
    for row in await connection.fetch("select id from organization order by id"):
        await record(
            connection,
            "disk.drop",
            actor=SYSTEM,
            org_id=row["id"],
            subject=("day", step.day.isoformat()),
            details=details,
        )
    return freed


def _folder_bytes(folder: Path) -> int:
    try:
        return sum(path.stat().st_blocks * 512 for path in folder.iterdir() if path.is_file())
    except OSError:
        return 0
