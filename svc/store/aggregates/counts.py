"""The counts of traces and sessions: how many rows a project has, summed from what came and went.

Owns the table `project_count`, which triggers of the counted tables fill (migration 13): one row for each
statement that added or deleted some, in its transaction, so that the sum is exact in every snapshot whoever
writes. The cube builder folds those rows from time to time; `svc.store.reads.projects` sums them.
"""

from __future__ import annotations

from typing import Final

from svc.store.postgres.database import Connection, Database

#: Rows of one count that are left as they are: summing them costs nothing.
FEW: Final = 64

_LOCK: Final = 0x636F_756E


async def fold(database: Database) -> None:
    """Make one row of each count that has become many."""

    async def work(connection: Connection) -> None:
        # One at a time, over all replicas; whoever comes second has nothing to do.
        if not await connection.fetchval("select pg_try_advisory_xact_lock($1)", _LOCK):
            return
        # What is deleted here, and nothing else, is what the new row stands for.
        await connection.execute(
            "with many as (select project_id, counted from project_count group by 1, 2 having count(*) > $1),"
            " gone as (delete from project_count c using many"
            " where c.project_id = many.project_id and c.counted = many.counted"
            " returning c.project_id, c.counted, c.n)"
            " insert into project_count (project_id, counted, n)"
            " select project_id, counted, sum(n) from gone group by 1, 2",
            FEW,
        )

    await database.run(work)
