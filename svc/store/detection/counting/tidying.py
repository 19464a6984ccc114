"""Tidying tallies: old ones to hours, expired ones away, empty buckets too, and what is known of them.

Owns the horizons in `fold_state` and every step behind them. The tally updater calls `to_hours`, the
retention sweep `let_go`; each step is a small transaction that holds the project's row, so that tallying and
other replicas wait for it and nobody sees half of one. Readers take old rows as if they stood in their hours
already.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import trio

from protocol.storage import Freed
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, SLOTS_PER_HOUR, day_start, slot_at
from svc.store.postgres.clock import Clock, server_clock
from svc.store.postgres.database import Connection, Database

#: How long tallies stand in slots of five minutes.
FINE: Final = timedelta(days=35)
#: Buckets that one step brings to hours, and rows that one lets go.
STEP_BUCKETS: Final = 50
STEP_ROWS: Final = 5_000
STEP_PAUSE_S: Final = 0.05

# The row that stands for the project, held.
_STATE: Final = (
    "select hours_before, tidied_before, tidied_bucket, gone_before from fold_state"
    " where project_id = $1 for update"
)

# The next buckets, by key.
_NEXT: Final = "select id from tally_bucket where project_id = $1 and id > $2 order by id limit $3"

# Their rows of five minutes between two slots, to the first slot of the hour.
_TO_HOURS: Final = f"""
with moved as (
    delete from tally where project_id = $1 and bucket_id = any($2::bigint[]) and slot >= $3 and slot < $4
    and slot % {SLOTS_PER_HOUR} <> 0
    returning bucket_id, slot - slot % {SLOTS_PER_HOUR} as slot, bin, units, failures
)
insert into tally (project_id, bucket_id, slot, bin, units, failures)
select $1, bucket_id, slot, bin, sum(units), sum(failures) from moved group by 2, 3, 4 order by 2, 3, 4
on conflict (project_id, bucket_id, slot, bin) do update
set units = tally.units + excluded.units, failures = tally.failures + excluded.failures
"""

# What came to nothing by it.
_CANCELLED: Final = """
delete from tally where project_id = $1 and bucket_id = any($2::bigint[]) and slot >= $3 and slot < $4
  and units = 0 and failures = 0
"""

# Rows below a slot, a stretch of one bucket after the other.
_GONE: Final = """
delete from {table} where ctid = any (array(
    select t.ctid from tally_bucket b cross join lateral (
        select ctid from {table} t where t.project_id = b.project_id and t.bucket_id = b.id and t.slot < $2
    ) t where b.project_id = $1 limit $3))
"""

# Buckets that nothing is counted under any more.
_UNUSED: Final = """
delete from tally_bucket where ctid = any (array(
    select ctid from tally_bucket b where b.project_id = $1 and not exists (
        select from tally t where t.project_id = b.project_id and t.bucket_id = b.id) limit $2))
"""

# What was known of subjects that are not counted any more.
_FORGOTTEN: Final = """
delete from {table} where ctid = any (array(
    select s.ctid from {table} s where s.project_id = $1 and not exists (
        select from tally_bucket b
        where b.project_id = s.project_id and b.measure = s.measure and b.subject = s.subject) limit $2))
"""

# What was known of the others at midnights from which nobody can go on any more.
_BEFORE: Final = """
delete from bucket_checkpoint where ctid = any (array(
    select ctid from bucket_checkpoint c where c.project_id = $1 and c.cursor < $2 limit $3))
"""


async def to_hours(database: Database, project_id: int, clock: Clock = server_clock) -> bool:
    """Bring the next buckets to hours. Whether there is more to do."""

    async def work(connection: Connection) -> bool:
        state: Any = await connection.fetchrow(_STATE, project_id)
        if state is None:
            return False
        hours, bucket_id = state["hours_before"], state["tidied_bucket"]
        if state["tidied_before"] == hours:
            fine_from = day_start(slot_at((await clock(connection) - FINE).timestamp()))
            if fine_from - hours < SLOTS_PER_DAY:
                return False
            hours, bucket_id = fine_from, 0
        buckets = [row["id"] for row in await connection.fetch(_NEXT, project_id, bucket_id, STEP_BUCKETS)]
        # What was told since the horizon moved stands in its hour already.
        for statement in (_TO_HOURS, _CANCELLED):
            await connection.execute(statement, project_id, buckets, state["tidied_before"], hours)
        finished = len(buckets) < STEP_BUCKETS
        # How far it is.
        await connection.execute(
            "update fold_state set hours_before = $2, tidied_before = $3, tidied_bucket = $4"
            " where project_id = $1",
            project_id,
            hours,
            hours if finished else state["tidied_before"],
            0 if finished else buckets[-1],
        )
        return not finished

    return await database.run(work)


async def let_go(
    database: Database, project_id: int, before: datetime, freed: Callable[[Freed], None]
) -> None:
    """Delete what was counted before a moment, and count nothing there any more."""
    first = slot_at(before.timestamp())
    # From here on; a term that was longer before does not bring anything back.
    await database.fetch(
        "update fold_state set gone_before = greatest(gone_before, $2) where project_id = $1",
        project_id,
        first,
    )
    for table in ("tally", "tally_witness"):
        # The table comes from this list.
        await _repeat(database, table, _GONE.format(table=table), freed, project_id, first)
    await _repeat(database, "tally_bucket", _UNUSED, freed, project_id)
    await _repeat(database, "bucket_checkpoint", _BEFORE, freed, project_id, first)
    for table in ("bucket_state", "bucket_checkpoint"):
        # From this list, too.
        await _repeat(database, table, _FORGOTTEN.format(table=table), freed, project_id)


async def _repeat(
    database: Database, table: str, statement: str, freed: Callable[[Freed], None], *values: Any
) -> None:
    async def work(connection: Connection) -> int:
        # Nobody tallies into what goes.
        await connection.fetchrow(_STATE, values[0])
        status: str = await connection.execute(statement, *values, STEP_ROWS)
        return int(status.rpartition(" ")[2])

    while True:
        rows = await database.run(work)
        if rows:
            freed(Freed(table, rows=rows))
        if rows < STEP_ROWS:
            return
        await trio.sleep(STEP_PAUSE_S)
