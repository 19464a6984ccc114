"""Trace rows: made and touched by writes, rolled up and settled by the roller.

A new trace is rolled up from the spans in hand and inserted complete. A known one is only marked: stale,
due later; the roller rolls it up wholesale from its stored spans. So a trace row is always the roll-up of
some set of its spans, never a sum of increments, and nothing can be counted twice (`large_traces` says what
of a large one may be, until its next roll-up).

A trace is settled 2 s after its last batch when its root has arrived, else after 10 s (contract §3). Each
time it settles, the same statement puts it into `fold_due`, from which detectors count it.

What the roller has yet to look at stands in `trace_due`: a new trace is put there as it is inserted, and one
that changes by a trigger of its `next_at` (step 336 of the schema). The round that settles it takes it away.
The row of a new one is not written again for that, with its previews and all of its indexes: most traces are
inserted complete and never change.

Ordering: whoever writes a row of `trace_due` holds the row of its trace.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

import attrs

from protocol.storage import Settled
from svc.domain.traces.rollup import TraceRollup
from svc.store.postgres.database import WORK_TIMEOUT_S, Connection, Database
from svc.store.spans.large_traces import ROLL_TIMEOUT_S, roll_large
from svc.store.spans.session_calls import drop_calls_run_elsewhere
from svc.store.spans.sessions import follow_rollups
from svc.store.spans.trace_rollups import ROLLED_COLUMNS, roll_small

TraceKey = tuple[int, bytes]

QUIET_WITH_ROOT: Final = timedelta(seconds=2)
QUIET_WITHOUT_ROOT: Final = timedelta(seconds=10)

_NAMES: Final = ", ".join(name for name, _ in ROLLED_COLUMNS)

# Insert new traces complete and say which; known ones are locked and left as they are, which is what an
# update of nothing does. Rows are locked in the order of their keys.
_INSERT_OR_LOCK: Final = (
    "with inserted as ("
    f"insert into trace (project_id, trace_id, first_started_at, last_started_at, created_at, stale,"
    f" due_at, {_NAMES})"
    f" select project_id, trace_id, first_started_at, last_started_at, $1, stale, due_at, {_NAMES}"
    " from unnest($2::bigint[], $3::bytea[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], "
    + ", ".join(f"${7 + index}::{kind}[]" for index, (_, kind) in enumerate(ROLLED_COLUMNS))
    + f", ${7 + len(ROLLED_COLUMNS)}::boolean[]) as new"
    f" (project_id, trace_id, first_started_at, last_started_at, due_at, {_NAMES}, stale)"
    " order by project_id, trace_id"
    " on conflict (project_id, trace_id) do update set stale = true where false"
    " returning project_id, trace_id, due_at, large)"
    " insert into trace_due (project_id, trace_id, next_at, large)"
    " select project_id, trace_id, due_at, large from inserted"
    " on conflict (project_id, trace_id) do update set next_at = excluded.next_at, large = excluded.large"
    " returning project_id, trace_id"
)

# The same for history that somebody moves in: a trace came when it ended, and no later than now.
_INSERT_DATED: Final = _INSERT_OR_LOCK.replace(
    " $1, stale,", " least($1, coalesce(ended_at, last_started_at)), stale,"
)

# In which bounds the spans of these traces start, and whose they are as far as their roots have said.
_KNOWN: Final = (
    "select project_id, trace_id, first_started_at, last_started_at,"
    " case when root_seen and not stale then session_id end as session_id,"
    " case when root_seen and not stale then user_id end as user_id"
    " from unnest($1::bigint[], $2::bytea[]) as known (project_id, trace_id)"
    " join trace using (project_id, trace_id)"
)

# When a known trace is quiet: its root may have come with an earlier batch.
_QUIET_AT: Final = (
    "$1::timestamptz + case when t.root_seen or new.root_seen"
    " then interval '2 seconds' else interval '10 seconds' end"
)

# Of known traces with something new, what the roller needs. When their root arrives, the look that was put
# off to wait for it comes forward. One that did not change yet is looked at when it was to be.
_TOUCH: Final = (
    "update trace t set stale = true,"
    " root_seen = t.root_seen or new.root_seen,"
    " first_started_at = least(t.first_started_at, new.first_started_at),"
    " last_started_at = greatest(t.last_started_at, new.last_started_at),"
    f" due_at = {_QUIET_AT},"
    " next_at = case when new.root_seen and not t.root_seen"
    " then least(t.next_at, new.due_at)"
    f" else coalesce(t.next_at, case when t.due_at > $1 then t.due_at else {_QUIET_AT} end) end"
    " from unnest($2::bigint[], $3::bytea[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[],"
    " $7::boolean[]) as new (project_id, trace_id, first_started_at, last_started_at, due_at, root_seen)"
    " where t.project_id = new.project_id and t.trace_id = new.trace_id"
)

# What is due, locked; rows that another replica holds are left to it.
_DUE_TRACES: Final = (
    "select t.project_id, t.trace_id, t.session_id, t.stale, t.due_at, t.first_started_at, t.last_started_at"
    " from trace_due d join trace t on t.project_id = d.project_id and t.trace_id = d.trace_id"
    " where d.next_at <= $1"
)
_DUE: Final = (
    f"{_DUE_TRACES} and not d.large and not t.large order by d.next_at limit $2 for update of t skip locked"
)

# The same of large ones. Other replicas leave them alone, and writers do not wait.
_DUE_LARGE: Final = (
    f"{_DUE_TRACES} and d.large"
    " and pg_try_advisory_xact_lock(hashtextextended(encode(d.trace_id, 'hex'), d.project_id))"
    " order by d.next_at limit $2"
)

# When the next one is due, by the same index.
_NEXT_DUE: Final = "select min(next_at) from trace_due where large = $1"

# Of traces that the release before deleted nothing else is left.
_FORGET_DELETED: Final = (
    "delete from trace_due d where next_at <= $1 and not exists"
    " (select from trace t where t.project_id = d.project_id and t.trace_id = d.trace_id)"
)

# Found to be large: left to the round of such.
_ENLARGE: Final = "update trace set large = true where project_id = $1 and trace_id = $2"

# Quiet and unchanged since its last roll-up: nothing to do but to say so, and to have it tallied.
# Only of one that had changed its own row says when it was due.
_SETTLE: Final = (
    "with quiet as materialized ("
    "select t.project_id, t.trace_id, t.next_at"
    " from unnest($1::bigint[], $2::bytea[]) as key (project_id, trace_id)"
    " join trace t on t.project_id = key.project_id and t.trace_id = key.trace_id"
    " where not t.stale for update of t"
    "), changed as ("
    "update trace t set next_at = null from quiet"
    " where t.project_id = quiet.project_id and t.trace_id = quiet.trace_id and quiet.next_at is not null"
    "), settled as ("
    "delete from trace_due d using quiet"
    " where d.project_id = quiet.project_id and d.trace_id = quiet.trace_id"
    " returning d.project_id, d.trace_id)"
    " insert into fold_due (project_id, trace_id) select project_id, trace_id from settled"
)

# Unchanged but not quiet yet: look again when it is due.
_LOOK_AGAIN: Final = (
    "update trace t set next_at = due_at"
    " from unnest($1::bigint[], $2::bytea[]) as busy (project_id, trace_id)"
    " where t.project_id = busy.project_id and t.trace_id = busy.trace_id and not t.stale"
)


@attrs.frozen
class KnownTrace:
    """A trace that is stored: when its first and last span start, and whose it is once its root is there."""

    first_at: datetime
    last_at: datetime
    session_id: str | None
    user_id: str | None


def came_at(rollup: TraceRollup, now: datetime) -> datetime:
    """When a trace came that is dated by its spans, as the database works it out."""
    return min(now, rollup.ended_at or rollup.last_started_at)


async def insert_or_lock(
    connection: Connection,
    rollups: Mapping[TraceKey, TraceRollup],
    now: datetime,
    *,
    incomplete: Collection[TraceKey] = (),
    dated: bool = False,
) -> dict[TraceKey, KnownTrace]:
    """Insert the traces that are new; returns the known ones. Locks all of them until the commit.

    `incomplete` are those that the roller is to look into even if nothing more comes.
    `dated`: a new one came when it ended (`came_at`).
    """
    values = list(rollups.values())
    rows = await connection.fetch(
        _INSERT_DATED if dated else _INSERT_OR_LOCK,
        *_marks(rollups, now),
        *([getattr(rollup, name) for rollup in values] for name, _ in ROLLED_COLUMNS),
        [key in incomplete for key in rollups],
    )
    inserted = {(row["project_id"], row["trace_id"]) for row in rows}
    known_keys = [key for key in rollups if key not in inserted]
    if not known_keys:
        return {}
    rows = await connection.fetch(_KNOWN, *(list(column) for column in zip(*known_keys, strict=True)))
    return {
        (row["project_id"], row["trace_id"]): KnownTrace(
            row["first_started_at"], row["last_started_at"], row["session_id"], row["user_id"]
        )
        for row in rows
    }


def sure_of(
    rollups: Mapping[TraceKey, TraceRollup], known_traces: Mapping[TraceKey, KnownTrace]
) -> Mapping[TraceKey, TraceRollup]:
    """Those that are of the session of their trace, as far as it is known."""
    return {
        key: rollup
        for key, rollup in rollups.items()
        if (known := known_traces.get(key)) is None or known.session_id in (None, rollup.session_id)
    }


async def touch(connection: Connection, rollups: Mapping[TraceKey, TraceRollup], now: datetime) -> None:
    """Mark known traces, which the caller has locked: these roll-ups are of spans that they did not have."""
    if rollups:
        await connection.execute(
            _TOUCH, *_marks(rollups, now), [rollup.root_seen for rollup in rollups.values()]
        )


def _marks(rollups: Mapping[TraceKey, TraceRollup], now: datetime) -> tuple[object, ...]:
    """The parameters that both statements begin with: the time, keys, bounds, and when each is due."""
    values = rollups.values()
    return (
        now,
        [project_id for project_id, _ in rollups],
        [trace_id for _, trace_id in rollups],
        [rollup.started_at for rollup in values],
        [rollup.last_started_at for rollup in values],
        [now + (QUIET_WITH_ROOT if rollup.root_seen else QUIET_WITHOUT_ROOT) for rollup in values],
    )


@attrs.define(eq=False)
class PostgresTraceStore:
    """Implements the `TraceStore` port, for large traces or for all others."""

    database: Database
    large: bool = False

    async def settle(self, now: datetime, limit: int) -> Settled:
        """One round over what is due: roll up what changed, settle what is quiet. One transaction."""
        return await self.database.run(
            lambda connection: _round(connection, now, limit, large=self.large),
            timeout_s=ROLL_TIMEOUT_S if self.large else WORK_TIMEOUT_S,
        )


async def _round(connection: Connection, now: datetime, limit: int, *, large: bool) -> Settled:
    due = await connection.fetch(_DUE_LARGE if large else _DUE, now, limit)
    if not due:
        next_at = await connection.fetchval(_NEXT_DUE, large)
        if next_at is not None and next_at <= now:
            await connection.execute(_FORGET_DELETED, now)
        return Settled(0, 0, next_at=next_at)
    await drop_calls_run_elsewhere(connection, [(row["project_id"], row["trace_id"]) for row in due], now)
    quiet = [row for row in due if not row["stale"] and row["due_at"] <= now]
    busy = [row for row in due if not row["stale"] and row["due_at"] > now]
    for statement, rows in ((_SETTLE, quiet), (_LOOK_AGAIN, busy)):
        if rows:
            await connection.execute(
                statement, [row["project_id"] for row in rows], [row["trace_id"] for row in rows]
            )
    settled = len(quiet)
    for row in due:
        if row["stale"]:
            now_settled = await (roll_large if large else roll_small)(connection, row, now)
            if now_settled is None:
                await connection.execute(_ENLARGE, row["project_id"], row["trace_id"])
            else:
                settled += now_settled
    rolled = [((row["project_id"], row["trace_id"]), row["session_id"]) for row in due if row["stale"]]
    if rolled:
        await follow_rollups(connection, rolled)
    return Settled(seen=len(due), settled=settled)
