"""Which projects there are: what is counted by the hour is counted a project at a time."""

from __future__ import annotations

from svc.store.postgres.database import Database


async def every_project(database: Database) -> list[int]:
    """The ids of all projects, deleted ones too, in order. Raises `Outage`."""
    # Every project; those without news cost one look each.
    rows = await database.fetch("select id from project order by id")
    return [row["id"] for row in rows]
