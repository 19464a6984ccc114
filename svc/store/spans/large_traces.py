"""Large traces: rolled up by the database, however many spans they have.

Called by the round over what is due (`svc.store.spans.traces`) and by rework. The spans stay where they are:
this process reads one row and hours, and sends one row back. Never decides what is due.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from svc.store.aggregates.closed_hours import CUBED, mark_dirty
from svc.store.postgres.database import Connection
from svc.store.spans.rollup_queries import MARK, ROLL_UP
from svc.store.spans.trace_rollups import (
    LARGE_SPANS_PER_S,
    ROLLED_COLUMNS,
    roll_small,
    say_whose,
    store_empty,
    store_rollup,
)

#: A million spans take a minute where the machine is busy.
ROLL_TIMEOUT_S: Final = 600.0

#: A trace of more spans is not written a second time to say of each whose it is.
MOST_NAMED: Final = 20_000

# Traces are taken for as large as most are, which is small, and then joined row by row.
_PLANS: Final = "set local enable_nestloop = off"
# The caller may go on to small traces.
_PLANS_AGAIN: Final = "set local enable_nestloop to default"


async def roll_large(connection: Connection, trace: Any, now: datetime) -> bool:
    """Roll one trace up where its spans are. Returns whether it is settled now.

    Of its row it needs the key, `due_at` and the bounds of `started_at`. It is locked towards the end: of a
    million spans writers wait for 2 s and not for 15 (November 2026). What was written meanwhile leaves it
    stale, and is counted before it is known what of it repeats.
    """
    key = (trace["project_id"], trace["trace_id"])
    of_trace = (*key, trace["first_started_at"], trace["last_started_at"])
    await connection.execute(_PLANS)
    changes = await connection.fetch(MARK, *of_trace)
    if not changes:
        await connection.execute(_PLANS_AGAIN)
        return True
    for dataset in CUBED:
        hours = [(key[0], row["hour"]) for row in changes if row["dataset"] == dataset.name]
        await mark_dirty(connection, hours, dataset, now, slow=True)
    rollup = await connection.fetchrow(ROLL_UP, *of_trace)
    await connection.execute(_PLANS_AGAIN)
    if rollup is None:
        return await store_empty(connection, key)
    if trace["due_at"] <= now and rollup["span_count"] <= MOST_NAMED:
        await say_whose(
            connection, key, of_trace[2:], rollup["session_id"], rollup["user_id"], now, slow=True
        )
    pause = timedelta(seconds=rollup["span_count"] / LARGE_SPANS_PER_S)
    values = [rollup[name] for name, _ in ROLLED_COLUMNS]
    stale = changes[0]["due_at"] != trace["due_at"]
    return await store_rollup(connection, trace, values, pause, now, stale=stale, slow=True)


async def roll_trace(connection: Connection, trace: Any, now: datetime, *, slow: bool = False) -> bool:
    """Roll one locked trace up, of whatever size, perhaps in `slow` work (`mark_dirty`).

    Returns whether it is settled now.
    """
    settled = await roll_small(connection, trace, now, slow=slow)
    return await roll_large(connection, trace, now) if settled is None else settled
