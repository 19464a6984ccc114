"""Saved views: names for what a list of traces was narrowed to, shared by everybody in a project.

Owns the table `saved_view`. The pages save, list and forget; what a query means is theirs to read. Bounded:
a project has at most `MOST_VIEWS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import attrs

from svc.store.accounts.projects import lock_project
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

MOST_VIEWS: Final = 100


@attrs.frozen
class SavedView:
    """A name, and what stands behind the question mark. `saved_by` is how the audit names people."""

    name: str
    query: str
    saved_by: str
    saved_at: datetime


@attrs.define(eq=False)
class SavedViewStore:
    """All verbs raise `Outage`."""

    database: Database

    async def list(self, project_id: int) -> Sequence[SavedView]:
        """All of a project, by name."""
        rows = await self.database.fetch(
            "select name, query, saved_by, saved_at from saved_view where project_id = $1 order by name",
            project_id,
            timeout_s=READ_TIMEOUT_S,
        )
        return [SavedView(**dict(row.items())) for row in rows]

    async def save(self, project_id: int, name: str, query: str, saved_by: str) -> bool:
        """Keep a view, in the place of one of the same name. False when the project has too many."""

        async def work(connection: Connection) -> bool:
            await lock_project(connection, project_id)
            # A new name only while there is room.
            saved = await connection.fetchval(
                "insert into saved_view (project_id, name, query, saved_by)"
                " select $1, $2, $3, $4 where (select count(*) from saved_view"
                " where project_id = $1 and name <> $2) < $5"
                " on conflict (project_id, name) do update set query = excluded.query,"
                " saved_by = excluded.saved_by, saved_at = now() returning true",
                project_id,
                name,
                query,
                saved_by,
                MOST_VIEWS,
            )
            return saved is not None

        return await self.database.run(work)

    async def forget(self, project_id: int, name: str) -> None:
        """Remove a view; one that is gone already is no matter."""
        await self.database.fetch(
            "delete from saved_view where project_id = $1 and name = $2",
            project_id,
            name,
            timeout_s=READ_TIMEOUT_S,
        )
