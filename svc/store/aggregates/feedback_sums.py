"""The sums of feedback by hour and by day, brought up to date with what came, changed and went.

Owns the tables `feedback_sum` and `feedback_change`. Triggers of `feedback` note in the latter what each
statement added and took away (migration 330), in its transaction, so that both together are exact in every
snapshot whoever writes. The cube builder folds those rows into the former; `svc.store.feedback.sums` reads.
"""

from __future__ import annotations

from typing import Final

from svc.store.postgres.database import Connection, Database

#: Changes that are folded in one transaction.
FOLDED_AT_ONCE: Final = 20_000

_LOCK: Final = 0x6665_6564

# What is deleted here, and nothing else, is what the sums gain.
_FOLD: Final = """
with gone as (
    delete from feedback_change where ctid = any (array(select ctid from feedback_change limit $1))
    returning *
), added as (
    insert into feedback_sum as s
        (project_id, grain, started_at, name, category, entries, numbers, total, squares)
    select project_id, grain, started_at, name, category, sum(entries), sum(numbers), sum(total), sum(squares)
    from gone group by 1, 2, 3, 4, 5
    on conflict (project_id, grain, started_at, name, category) do update
    set entries = s.entries + excluded.entries, numbers = s.numbers + excluded.numbers,
        total = s.total + excluded.total, squares = s.squares + excluded.squares
)
select count(*) from gone
"""


async def fold_feedback(database: Database) -> None:
    """Bring what changed into the sums."""

    async def work(connection: Connection) -> int:
        # One at a time, over all replicas; whoever comes second has nothing to do.
        if not await connection.fetchval("select pg_try_advisory_xact_lock($1)", _LOCK):
            return 0
        folded: int = await connection.fetchval(_FOLD, FOLDED_AT_ONCE)
        if folded:
            # Cheap by its index: what came and went.
            await connection.execute("delete from feedback_sum where entries = 0")
        return folded

    while await database.run(work) == FOLDED_AT_ONCE:
        pass
