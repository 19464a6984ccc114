"""Tool calls that one trace of a session asks for and another runs: one call, and the one that ran counts.

Called by the round over traces that are due (`svc.store.spans.traces`) and by rework, before they settle.
Bounded: it looks at so many traces of a session around one, and never further than an hour from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from svc.domain.queries.datasets import TOOL_CALLS
from svc.store.aggregates.closed_hours import mark_dirty
from svc.store.postgres.database import Connection
from svc.store.postgres.rows import SETTLED

#: The nearest by when they began: Gemini CLI has three traces a turn, and each is a look-up.
SESSION_TRACES: Final = 12
TRACE_CALLS: Final = 1000

_OF_TRACE: Final = (
    "select project_id, trace_id, span_id, index, started_at, embedded, name, call_id from tool_call c"
    " where c.project_id = {of}.project_id and c.trace_id = {of}.trace_id and c.call_id is not null"
    f" and c.started_at between {{of}}.first_started_at and {{of}}.last_started_at limit {TRACE_CALLS}"
)

# Calls inside answers of which a tool's span in another trace of the session, not earlier, has name and id;
# and settled traces that lost one this way, which are tallied anew. Sessions are looked into only where a
# trace has calls: a plan made while the tables were young took half a core of a flood for the others.
_DROP: Final = f"""
with due as materialized (
    select t.project_id, t.trace_id, t.session_id, t.started_at, t.first_started_at, t.last_started_at
    from unnest($1::bigint[], $2::bytea[]) as d (project_id, trace_id)
    join trace t using (project_id, trace_id)
    where t.session_id is not null
), own as materialized (
    select c.* from due cross join lateral ({_OF_TRACE.format(of="due")}) c
), calling as materialized (
    select * from due
    where exists (select from own where own.project_id = due.project_id and own.trace_id = due.trace_id)
), other as materialized (
    select calling.trace_id as of_trace, c.*
    from calling
    cross join lateral (
        select n.project_id, n.trace_id, n.first_started_at, n.last_started_at from trace n
        where n.project_id = calling.project_id and n.session_id = calling.session_id
            and n.trace_id <> calling.trace_id
            and n.started_at between calling.first_started_at - interval '1 hour'
            and calling.last_started_at + interval '1 hour'
        order by abs(extract(epoch from n.started_at - calling.started_at)) limit {SESSION_TRACES}
    ) near
    cross join lateral ({_OF_TRACE.format(of="near")}) c
), asked as (
    select o.project_id, o.trace_id, o.span_id, o.index, o.started_at from own o
    join other ran on ran.project_id = o.project_id and ran.of_trace = o.trace_id and ran.call_id = o.call_id
        and ran.name = o.name
    where o.embedded and not ran.embedded and ran.started_at >= o.started_at
    union
    select o.project_id, o.trace_id, o.span_id, o.index, o.started_at from other o
    join own ran on ran.project_id = o.project_id and ran.trace_id = o.of_trace and ran.call_id = o.call_id
        and ran.name = o.name
    where o.embedded and not ran.embedded and ran.started_at >= o.started_at
), dropped as (
    delete from tool_call t using asked a
    where t.project_id = a.project_id and t.trace_id = a.trace_id and t.span_id = a.span_id
        and t.index = a.index and t.started_at = a.started_at
    returning t.project_id, t.trace_id, t.created_at
), again as (
    insert into fold_due (project_id, trace_id)
    select distinct project_id, trace_id from dropped join trace using (project_id, trace_id)
    where {SETTLED}
)
select project_id, created_at from dropped
"""


async def drop_calls_run_elsewhere(
    connection: Connection, traces: Sequence[tuple[int, bytes]], now: datetime
) -> None:
    """Drop the calls inside answers that a tool's span in another trace of the session tells."""
    dropped = await connection.fetch(
        _DROP, [project_id for project_id, _ in traces], [trace_id for _, trace_id in traces]
    )
    await mark_dirty(connection, [tuple(row.values()) for row in dropped], TOOL_CALLS, now)
