"""Trace rows: made and touched by writes, rolled up and settled by the roller.

A new trace is rolled up from the spans in hand and inserted complete. A known one is only marked: stale,
due later; the roller rolls it up wholesale from its stored spans. So a trace row is always the roll-up of
some set of its spans, never a sum of increments, and nothing can be counted twice.

A trace is settled 2 s after its last batch when its root has arrived, else after 10 s (contract §3). Each
time it settles, the same statement puts it into `fold_due`, from which detectors count it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from protocol.storage import Settled
from svc.domain.datasets import SPANS, TOOL_CALLS
from svc.domain.rollup import TraceRollup, roll_up
from svc.domain.span import SpanRow, ToolCall
from svc.domain.tool_calls import dedupe_tool_calls
from svc.store.aggregates.closed_hours import mark_dirty
from svc.store.aggregates.vitals import TRACES
from svc.store.postgres.database import Connection, Database

TraceKey = tuple[int, bytes]

QUIET_WITH_ROOT: Final = timedelta(seconds=2)
QUIET_WITHOUT_ROOT: Final = timedelta(seconds=10)

#: A trace that never goes quiet is rolled up this often, and less often the more spans it has.
ROLL_EVERY: Final = timedelta(seconds=2)
ROLL_SPANS_PER_S: Final = 2_000

_ROLLED_COLUMNS: Final = (
    ("name", "text"),
    ("started_at", "timestamptz"),
    ("ended_at", "timestamptz"),
    ("root_seen", "boolean"),
    ("session_id", "text"),
    ("user_id", "text"),
    ("call_site_id", "text"),
    ("span_count", "integer"),
    ("error_count", "integer"),
    ("status", "text"),
    ("input_tokens", "bigint"),
    ("output_tokens", "bigint"),
    ("cache_read_tokens", "bigint"),
    ("cache_write_tokens", "bigint"),
    ("reasoning_tokens", "bigint"),
    ("total_tokens", "bigint"),
    ("input_cost", "numeric"),
    ("output_cost", "numeric"),
    ("total_cost", "numeric"),
    ("unpriced_spans", "integer"),
    ("input_preview", "text"),
    ("output_preview", "text"),
)

_NAMES: Final = ", ".join(name for name, _ in _ROLLED_COLUMNS)

# Insert new traces complete and say which; known ones are locked and left as they are, which is what an
# update of nothing does. Rows are locked in the order of their keys.
_INSERT_OR_LOCK: Final = (
    f"insert into trace (project_id, trace_id, first_started_at, last_started_at, created_at, stale,"
    f" due_at, next_at, {_NAMES})"
    f" select project_id, trace_id, first_started_at, last_started_at, $1, false, due_at, due_at, {_NAMES}"
    " from unnest($2::bigint[], $3::bytea[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], "
    + ", ".join(f"${7 + index}::{kind}[]" for index, (_, kind) in enumerate(_ROLLED_COLUMNS))
    + f") as new (project_id, trace_id, first_started_at, last_started_at, due_at, {_NAMES})"
    " order by project_id, trace_id"
    " on conflict (project_id, trace_id) do update set stale = true where false"
    " returning project_id, trace_id"
)

# The same for history that somebody moves in: a trace came when it ended, and no later than now.
_INSERT_DATED: Final = _INSERT_OR_LOCK.replace(
    " $1, false,", " least($1, coalesce(ended_at, last_started_at)), false,"
)

# In which bounds the spans of these traces start.
_BOUNDS: Final = (
    "select project_id, trace_id, first_started_at, last_started_at"
    " from unnest($1::bigint[], $2::bytea[]) as known (project_id, trace_id)"
    " join trace using (project_id, trace_id)"
)

# Of known traces with something new, what the roller needs. When their root arrives, the look that was put
# off to wait for it comes forward.
_TOUCH: Final = (
    "update trace t set stale = true,"
    " root_seen = t.root_seen or new.root_seen,"
    " first_started_at = least(t.first_started_at, new.first_started_at),"
    " last_started_at = greatest(t.last_started_at, new.last_started_at),"
    " due_at = $1::timestamptz + case when t.root_seen or new.root_seen"
    " then interval '2 seconds' else interval '10 seconds' end,"
    " next_at = case when new.root_seen and not t.root_seen"
    " then least(t.next_at, new.due_at) else coalesce(t.next_at, new.due_at) end"
    " from unnest($2::bigint[], $3::bytea[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[],"
    " $7::boolean[]) as new (project_id, trace_id, first_started_at, last_started_at, due_at, root_seen)"
    " where t.project_id = new.project_id and t.trace_id = new.trace_id"
)

# What is due, locked; rows that another replica holds are left to it.
_DUE: Final = (
    "select project_id, trace_id, stale, due_at, first_started_at, last_started_at, span_count from trace"
    " where next_at <= $1 order by next_at limit $2 for update skip locked"
)

# When the next one is due, by the same index.
_NEXT_DUE: Final = "select min(next_at) from trace where next_at is not null"

# Quiet and unchanged since its last roll-up: nothing to do but to say so, and to have it folded.
_SETTLE: Final = (
    "with settled as ("
    "update trace t set next_at = null from unnest($1::bigint[], $2::bytea[]) as quiet (project_id, trace_id)"
    " where t.project_id = quiet.project_id and t.trace_id = quiet.trace_id"
    " returning t.project_id, t.trace_id)"
    " insert into fold_due (project_id, trace_id) select project_id, trace_id from settled"
)

# Unchanged but not quiet yet: look again when it is due.
_LOOK_AGAIN: Final = (
    "update trace t set next_at = due_at"
    " from unnest($1::bigint[], $2::bytea[]) as busy (project_id, trace_id)"
    " where t.project_id = busy.project_id and t.trace_id = busy.trace_id"
)

#: Every column of a span that `SpanRow` has.
SPAN_FIELDS: Final = (
    "span_id, parent_span_id, kind, name, status, error_type, error_message, started_at, ended_at,"
    " call_site_id, tagged, session_id, user_id, provided_model_name, model_id, provider, response_id,"
    " input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, input_cost,"
    " output_cost, cache_read_cost, cache_write_cost, total_cost, cost_source, input_preview,"
    " output_preview, usage_repeats, trace_id, service_tier, input_audio_tokens, output_audio_tokens,"
    " price_book"
)

# All spans of one trace, from the days it has spans in.
_SPANS: Final = (
    f"select {SPAN_FIELDS} from span where project_id = $1 and trace_id = $2 and started_at between $3 and $4"
)

# The new roll-up of one trace, which is folded anew when it is settled by it; and when the trace first came.
_ROLL: Final = (
    "with rolled as (update trace set stale = false, next_at = $3, "
    + ", ".join(f"{name} = ${4 + index}" for index, (name, _) in enumerate(_ROLLED_COLUMNS))
    + " where project_id = $1 and trace_id = $2 returning project_id, trace_id, next_at, created_at),"
    " due as (insert into fold_due (project_id, trace_id)"
    " select project_id, trace_id from rolled where next_at is null)"
    " select created_at from rolled"
)


#: When the first and the last span of a trace start.
Bounds = tuple[datetime, datetime]


def came_at(rollup: TraceRollup, now: datetime) -> datetime:
    """When a trace came that is dated by its spans, as the database works it out."""
    return min(now, rollup.ended_at or rollup.last_started_at)


async def insert_or_lock(
    connection: Connection, rollups: Mapping[TraceKey, TraceRollup], now: datetime, *, dated: bool = False
) -> dict[TraceKey, Bounds]:
    """Insert the traces that are new; returns the known ones. Locks all of them until the commit.

    `dated`: a new one came when it ended (`came_at`).
    """
    values = list(rollups.values())
    rows = await connection.fetch(
        _INSERT_DATED if dated else _INSERT_OR_LOCK,
        *_marks(rollups, now),
        *([getattr(rollup, name) for rollup in values] for name, _ in _ROLLED_COLUMNS),
    )
    inserted = {(row["project_id"], row["trace_id"]) for row in rows}
    known = [key for key in rollups if key not in inserted]
    if not known:
        return {}
    found = await connection.fetch(_BOUNDS, *(list(column) for column in zip(*known, strict=True)))
    return {
        (row["project_id"], row["trace_id"]): (row["first_started_at"], row["last_started_at"])
        for row in found
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
class TraceStore:
    """Implements the `TraceShelf` port."""

    database: Database

    async def settle(self, now: datetime, limit: int) -> Settled:
        """One round over what is due: roll up what changed, settle what is quiet. One transaction."""
        return await self.database.run(lambda connection: _round(connection, now, limit))


async def _round(connection: Connection, now: datetime, limit: int) -> Settled:
    due = await connection.fetch(_DUE, now, limit)
    if not due:
        return Settled(seen=0, settled=0, next_at=await connection.fetchval(_NEXT_DUE))
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
            settled += await roll_trace(connection, row, now)
    return Settled(seen=len(due), settled=settled)


async def roll_trace(connection: Connection, trace: Any, now: datetime) -> bool:
    """Roll one locked trace up from its stored spans. Returns whether it is settled now.

    Of its row it needs the key, `due_at` and the bounds of `started_at`.
    """
    key = (trace["project_id"], trace["trace_id"])
    bounds = (trace["first_started_at"], trace["last_started_at"])
    records = await connection.fetch(_SPANS, *key, *bounds)
    if not records:
        # All its spans have aged out meanwhile; there is nothing to roll up and nothing to wait for.
        await connection.execute(_SETTLE, [key[0]], [key[1]])
        return True
    rows = [SpanRow(**dict(record.items())) for record in records]
    for row in rows:
        row.cost_source = row.priced_by()
    rollup = roll_up(rows)
    await _mark_repeats(connection, key, rows, rollup, now)
    await _drop_repeated_tool_calls(connection, key, bounds, rows, now)
    quiet: bool = trace["due_at"] <= now
    soon = min(trace["due_at"], now + ROLL_EVERY)
    next_at = None if quiet else max(soon, now + timedelta(seconds=len(rows) / ROLL_SPANS_PER_S))
    rolled = await connection.fetch(
        _ROLL, *key, next_at, *(getattr(rollup, name) for name, _ in _ROLLED_COLUMNS)
    )
    await mark_dirty(connection, [(key[0], row["created_at"]) for row in rolled], TRACES, now)
    return quiet


async def _mark_repeats(
    connection: Connection, key: TraceKey, rows: Sequence[SpanRow], rollup: TraceRollup, now: datetime
) -> None:
    changed = [row for row in rows if row.usage_repeats != rollup.repeats.get(row.span_id)]
    if not changed:
        return
    for row in changed:
        row.mark(rollup.repeats.get(row.span_id))
    # Spans whose usage turned out to repeat (or no longer to repeat) another's.
    marked = await connection.fetch(
        "update span s set usage_repeats = now.repeats, cost_source = now.cost_source"
        " from unnest($3::bytea[], $4::timestamptz[], $5::text[], $6::text[])"
        " as now (span_id, started_at, repeats, cost_source)"
        " where s.project_id = $1 and s.trace_id = $2 and s.span_id = now.span_id"
        " and s.started_at = now.started_at returning s.created_at",
        *key,
        [row.span_id for row in changed],
        [row.started_at for row in changed],
        [row.usage_repeats for row in changed],
        [row.cost_source for row in changed],
    )
    await mark_dirty(connection, [(key[0], row["created_at"]) for row in marked], SPANS, now)


async def _drop_repeated_tool_calls(
    connection: Connection,
    key: TraceKey,
    bounds: tuple[datetime, datetime],
    rows: Sequence[SpanRow],
    now: datetime,
) -> None:
    # The tool calls of the trace, to see which ones a tool span tells as well.
    records = await connection.fetch(
        "select span_id, index, name, call_id, status, error_type, error_message from tool_call"
        " where project_id = $1 and trace_id = $2 and started_at between $3 and $4 order by span_id, index",
        *key,
        *bounds,
    )
    by_span: dict[bytes, list[ToolCall]] = {}
    for record in records:
        fields = dict(record.items())
        by_span.setdefault(fields.pop("span_id"), []).append(ToolCall(**fields))
    for row in rows:
        row.tool_calls = tuple(by_span.get(row.span_id, ()))
    repeated = dedupe_tool_calls(rows)
    if not repeated:
        return
    started = {row.span_id: row.started_at for row in rows}
    # An embedded call that a tool span tells as well is one call, not two.
    gone = await connection.fetch(
        "delete from tool_call t using unnest($3::bytea[], $4::integer[], $5::timestamptz[])"
        " as gone (span_id, index, started_at)"
        " where t.project_id = $1 and t.trace_id = $2 and t.span_id = gone.span_id"
        " and t.index = gone.index and t.started_at = gone.started_at returning t.created_at",
        *key,
        [span_id for span_id, _ in repeated],
        [index for _, index in repeated],
        [started[span_id] for span_id, _ in repeated],
    )
    await mark_dirty(connection, [(key[0], row["created_at"]) for row in gone], TOOL_CALLS, now)
