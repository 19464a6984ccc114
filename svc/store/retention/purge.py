"""Purging deleted projects: everything of theirs but the audit, in small bounded steps.

Implements the `PurgeStore` port. Which tables hold a project's rows is asked of the database itself, so that
a table of a later migration cannot be forgotten: every table of the schema with a column `project_id`,
partitions by themselves, but for those in `KEPT`. A step deletes at most `limit` rows of one table in a
transaction of its own: nothing else waits for more than that, and a step that is cut off is done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import asyncpg
import attrs

from protocol.storage import Deleted
from svc.store.postgres.database import Connection, Database

#: What outlives its project: who did what.
KEPT: Final = ("audit_row",)


@attrs.define(eq=False)
class PostgresPurgeStore:
    """Finds deleted projects and deletes their rows."""

    database: Database

    async def deleted(self) -> Sequence[Deleted]:
        """Projects that were deleted and not purged to the end, the longest deleted first."""
        # Few at any time.
        rows = await self.database.fetch(
            "select id, deleted_at from project where deleted_at is not null and purged_at is null"
            " order by deleted_at limit 1000"
        )
        return [Deleted(row["id"], row["deleted_at"]) for row in rows]

    async def tables(self) -> Sequence[str]:
        """The tables that hold rows of projects, quoted, partitions by themselves, traces before spans.

        Traces go first so that nobody rolls one up again from what is left of its spans, and the counts last,
        because the others are noted in them as they go.
        """
        # Ordinary tables, and the leaves of partitioned ones.
        rows = await self.database.fetch(
            "select format('%I.%I', n.nspname, c.relname) as name from pg_class c"
            " join pg_namespace n on n.oid = c.relnamespace and n.nspname = current_schema()"
            " join pg_attribute a on a.attrelid = c.oid and a.attname = 'project_id'"
            " where c.relkind = 'r' and c.relname <> all($1::text[]) order by c.relname <> 'trace',"
            " c.relname = 'project_count', 1",
            list(KEPT),
        )
        return [row["name"] for row in rows]

    async def purge(self, project_id: int, table: str, limit: int) -> int:
        """Delete at most `limit` rows of a project from one of `tables`. Returns how many there were."""

        async def work(connection: Connection) -> int:
            # By their places: one index look-up, then no more.
            command_tag: str = await connection.execute(
                f"delete from {table} where ctid = any (array("
                f"select ctid from {table} where project_id = $1 limit $2 for update skip locked))",
                project_id,
                limit,
            )
            return int(command_tag.rpartition(" ")[2])

        try:
            return await self.database.run(work)
        except asyncpg.UndefinedTableError:
            # A partition that was dropped meanwhile, and its rows with it.
            return 0

    async def purged(self, project_id: int) -> None:
        """Note that nothing of a project is left."""
        # For good.
        await self.database.fetch(
            "update project set purged_at = now() where id = $1 and deleted_at is not null", project_id
        )
