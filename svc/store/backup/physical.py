"""What the server is asked around a copy of the whole cluster: that it can tell changes, and keeps its log.

Called by `svc.backup.physical`. The rows themselves go by another way (`embedded.physical`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from protocol.backup import BackupRefused, Origin, SchemaStep
from svc.store.backup.catalog import origin, quoted, relations, steps
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.migrate import RESTORING

_READ_TIMEOUT_S: Final = 6 * 3600.0


async def looked_at(database: Database) -> tuple[Origin, tuple[SchemaStep, ...]]:
    """Which database it is, and its steps. From now on the server notes which blocks change.

    Raises `BackupRefused` when it is none to copy, and `Outage`.
    """

    async def look(connection: Connection) -> tuple[Origin, tuple[SchemaStep, ...]]:
        applied_steps = await steps(connection)
        if not applied_steps or await connection.fetchval("select to_regclass($1)", RESTORING) is not None:
            raise BackupRefused(
                "there is no whole database to back up: it has no schema yet, or a restore of it was cut off"
            )
        return await origin(connection), tuple(applied_steps)

    async def note_changes(connection: Connection) -> None:
        # It costs those who never copy the cluster nothing.
        if await connection.fetchval("show summarize_wal") != "on":
            await connection.execute("alter system set summarize_wal = on")
            await connection.execute("select pg_reload_conf()")

    origin_and_steps = await database.run(look, readonly=True)
    await database.run(note_changes, transaction=False)
    return origin_and_steps


@asynccontextmanager
async def log_kept(database: Database) -> AsyncIterator[None]:
    """Have the server keep all of its log meanwhile: the copy needs what is written while it is made.

    The hold is of a session of its own: it ends with that, and with the process, however it ends. Raises
    `Outage`.
    """
    name = f"trace_svc_backup_{os.getpid()}"
    async with Database(database.address, pool_size=1).opened() as holder:
        # For a copy of the cluster, at once, and for no longer than this session.
        await holder.fetch("select pg_create_physical_replication_slot($1, true, true)", name)
        yield


async def read_all(database: Database) -> int:
    """Read every row of every table, by which the checksum of each page is looked at. Returns how many."""

    async def work(connection: Connection) -> int:
        rows = 0
        for table in await relations(connection):
            rows += await connection.fetchval(f"select count(*) from only {quoted(table.name)}")
        return rows

    return await database.run(work, readonly=True, timeout_s=_READ_TIMEOUT_S)
