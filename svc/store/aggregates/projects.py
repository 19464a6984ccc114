"""Which projects there are: what is counted by the hour is counted a project at a time, by one at once."""

from __future__ import annotations

from typing import Final

from svc.store.postgres.database import Connection, Database

_LOCK: Final = 0x6375_6265


async def every_project(database: Database) -> list[int]:
    """The ids of all projects, deleted ones too, in order. Raises `Outage`."""
    # Every project; those without news cost one look each.
    rows = await database.fetch("select id from project order by id")
    return [row["id"] for row in rows]


async def lock_builder(connection: Connection, project_id: int) -> None:
    """Wait until nobody else builds an hour, a day or a slice of a project, and keep others out until the end
    of this transaction, over all replicas.
    """
    await connection.execute("select pg_advisory_xact_lock($1, $2)", _LOCK, project_id % 2**31)
