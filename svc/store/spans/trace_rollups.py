"""The roll-up of one known trace from its stored spans, in Python, and where a roll-up is stored.

Called by the round over what is due (`svc.store.spans.traces`) and by rework; traces of more than
`SMALL_SPANS` spans are left to `svc.store.spans.large_traces`, since reading and adding them up here takes
40 µs of the loop a span. Never decides what is due. The caller holds the lock of the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from svc.domain.queries.datasets import SPANS, TOOL_CALLS
from svc.domain.spans.span import SpanRow, ToolCall
from svc.domain.traces.rollup import TraceRollup, roll_up
from svc.domain.traces.tool_calls import dedupe_tool_calls
from svc.store.aggregates.closed_hours import mark_dirty
from svc.store.aggregates.vitals import TRACES
from svc.store.postgres.database import Connection

TraceKey = tuple[int, bytes]

#: A trace that never goes quiet is rolled up this often, and less often the more spans it has: by Python or
#: by the database, which takes 14 µs a span (measured November 2026).
ROLL_EVERY: Final = timedelta(seconds=2)
SMALL_SPANS_PER_S: Final = 2_000
LARGE_SPANS_PER_S: Final = 20_000

#: Traces of more spans, or of more tool calls, are rolled up by the database.
SMALL_SPANS: Final = 500
SMALL_CALLS: Final = 5_000

ROLLED_COLUMNS: Final = (
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

#: Every column of a span that `SpanRow` has.
SPAN_FIELDS: Final = (
    "span_id, parent_span_id, kind, name, status, error_type, error_message, started_at, ended_at,"
    " call_site_id, tagged, session_id, user_id, provided_model_name, model_id, provider, response_id,"
    " input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, input_cost,"
    " output_cost, cache_read_cost, cache_write_cost, total_cost, cost_source, input_preview,"
    " output_preview, usage_repeats, trace_id, service_tier, input_audio_tokens, output_audio_tokens,"
    " cache_write_1h_tokens, price_book"
)

# The spans of one trace, from the days it has spans in, and one more than a small trace has.
_SPANS: Final = (
    f"select {SPAN_FIELDS} from span where project_id = $1 and trace_id = $2 and started_at between $3 and $4"
    f" limit {SMALL_SPANS + 1}"
)

# Their tool calls, likewise.
_CALLS: Final = (
    "select span_id, index, name, call_id, status, error_type, error_message from tool_call"
    " where project_id = $1 and trace_id = $2 and started_at between $3 and $4 order by span_id, index"
    f" limit {SMALL_CALLS + 1}"
)

# Spans that do not say themselves whose they are.
_WHOSE: Final = (
    "update span set session_id = coalesce(nullif(session_id, ''), $5),"
    " user_id = coalesce(nullif(user_id, ''), $6)"
    " where project_id = $1 and trace_id = $2 and started_at between $3 and $4"
    " and ($5 <> '' and coalesce(session_id, '') = '' or $6 <> '' and coalesce(user_id, '') = '')"
    " returning created_at"
)

# All spans of the trace have aged out: there is nothing to roll up and nothing to wait for.
_EMPTY: Final = (
    "with settled as (update trace set stale = false, next_at = null where project_id = $1 and trace_id = $2"
    " returning project_id, trace_id),"
    " looked_at as (delete from trace_due where project_id = $1 and trace_id = $2)"
    " insert into fold_due (project_id, trace_id) select project_id, trace_id from settled"
)

# The new roll-up of one trace, which is tallied anew when it is settled by it; and when the trace first came.
# Where it is not, `next_at` puts it into `trace_due`.
_ROLL: Final = (
    "with rolled as (update trace set stale = $3, next_at = $4, "
    + ", ".join(f"{name} = ${5 + index}" for index, (name, _) in enumerate(ROLLED_COLUMNS))
    + " where project_id = $1 and trace_id = $2 returning project_id, trace_id, next_at, created_at),"
    " due as (insert into fold_due (project_id, trace_id)"
    " select project_id, trace_id from rolled where next_at is null),"
    " looked_at as (delete from trace_due where $4::timestamptz is null"
    " and project_id = $1 and trace_id = $2)"
    " select created_at from rolled"
)


async def roll_small(connection: Connection, trace: Any, now: datetime, *, slow: bool = False) -> bool | None:
    """Roll one locked trace up from its stored spans, perhaps in `slow` work (`mark_dirty`).

    Returns whether it is settled now, or None when it is not small, and then nothing has changed. Of its row
    it needs the key, `due_at` and the bounds of `started_at`.
    """
    key = (trace["project_id"], trace["trace_id"])
    bounds = (trace["first_started_at"], trace["last_started_at"])
    records = await connection.fetch(_SPANS, *key, *bounds)
    if len(records) > SMALL_SPANS:
        return None
    calls = await connection.fetch(_CALLS, *key, *bounds)
    if len(calls) > SMALL_CALLS:
        return None
    if not records:
        return await store_empty(connection, key)
    rows = [SpanRow(**dict(record.items())) for record in records]
    for row in rows:
        row.cost_source = row.priced_by()
    rollup = roll_up(rows)
    await _mark_repeats(connection, key, rows, rollup, now, slow=slow)
    await _drop_repeated_tool_calls(connection, key, rows, calls, now)
    # Most programs say on the root alone whose a trace is, and it comes last; before it, another may yet say.
    if (rollup.root_seen or trace["due_at"] <= now) and any(
        row.belong(rollup.session_id, rollup.user_id) for row in rows
    ):
        await say_whose(connection, key, bounds, rollup.session_id, rollup.user_id, now, slow=slow)
    pause = timedelta(seconds=len(rows) / SMALL_SPANS_PER_S)
    values = [getattr(rollup, name) for name, _ in ROLLED_COLUMNS]
    return await store_rollup(connection, trace, values, pause, now, slow=slow)


async def store_empty(connection: Connection, key: TraceKey) -> bool:
    """Settle a trace without spans, which returns True, as settling does."""
    await connection.execute(_EMPTY, *key)
    return True


async def store_rollup(
    connection: Connection,
    trace: Any,
    values: Sequence[Any],
    pause: timedelta,
    now: datetime,
    *,
    stale: bool = False,
    slow: bool = False,
) -> bool:
    """Store the roll-up of a locked trace; `values` are in the order of `ROLLED_COLUMNS`.

    One that is not quiet yet, or `stale` already, rests before the next roll-up. Returns whether it is
    settled now.
    """
    key = (trace["project_id"], trace["trace_id"])
    quiet: bool = trace["due_at"] <= now and not stale
    soon = min(trace["due_at"], now + ROLL_EVERY)
    next_at = None if quiet else max(soon, now + pause)
    rolled = await connection.fetch(_ROLL, *key, stale, next_at, *values)
    await mark_dirty(connection, [(key[0], row["created_at"]) for row in rolled], TRACES, now, slow=slow)
    return quiet


async def _mark_repeats(
    connection: Connection,
    key: TraceKey,
    rows: Sequence[SpanRow],
    rollup: TraceRollup,
    now: datetime,
    *,
    slow: bool,
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
    await mark_dirty(connection, [(key[0], row["created_at"]) for row in marked], SPANS, now, slow=slow)


async def say_whose(
    connection: Connection,
    key: TraceKey,
    bounds: tuple[datetime, datetime],
    session_id: str | None,
    user_id: str | None,
    now: datetime,
    *,
    slow: bool = False,
) -> None:
    """Give the spans of a trace that start within these bounds its session and user where they name none."""
    named = await connection.fetch(_WHOSE, *key, *bounds, session_id, user_id)
    await mark_dirty(connection, [(key[0], row["created_at"]) for row in named], SPANS, now, slow=slow)


async def _drop_repeated_tool_calls(
    connection: Connection, key: TraceKey, rows: Sequence[SpanRow], calls: Sequence[Any], now: datetime
) -> None:
    by_span: dict[bytes, list[ToolCall]] = {}
    for record in calls:
        fields = dict(record.items())
        by_span.setdefault(fields.pop("span_id"), []).append(ToolCall(**fields))
    for row in rows:
        row.tool_calls = tuple(by_span.get(row.span_id, ()))
    repeated = dedupe_tool_calls(rows)
    if not repeated:
        return
    started = {row.span_id: row.started_at for row in rows}
    # An embedded call that a tool span tells as well is one call, not two.
    deleted = await connection.fetch(
        "delete from tool_call t using unnest($3::bytea[], $4::integer[], $5::timestamptz[])"
        " as gone (span_id, index, started_at)"
        " where t.project_id = $1 and t.trace_id = $2 and t.span_id = gone.span_id"
        " and t.index = gone.index and t.started_at = gone.started_at returning t.created_at",
        *key,
        [span_id for span_id, _ in repeated],
        [index for _, index in repeated],
        [started[span_id] for span_id, _ in repeated],
    )
    await mark_dirty(connection, [(key[0], row["created_at"]) for row in deleted], TOOL_CALLS, now)
