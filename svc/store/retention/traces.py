"""Whole traces taken away with all of their rows, in one statement: by a rule of retention, or erased.

Called by `svc.store.retention.rules` and `svc.store.retention.erasing`. Messages that several traces share
are left: with a rule they go with their day, an erasure looks for them itself (`erased_words`).

Ordering: a trace is locked before its session, as writers do. The hours of what goes are marked for the cubes
in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from svc.domain.marks.table import MARK_NAMES
from svc.domain.queries.datasets import SPANS, TOOL_CALLS
from svc.store.aggregates.closed_hours import mark_dirty
from svc.store.aggregates.vitals import TRACES
from svc.store.postgres.database import Connection
from svc.store.postgres.rows import SETTLED


@attrs.frozen
class _Reason:
    """Why traces go: which of those named go, in SQL over `trace t`, and what goes beside their own rows."""

    chosen: str
    events: str
    beside: str = ""


#: One that changed meanwhile has another time to be looked at, and stays; so does one that is cited. Firings
#: of detectors have their own term; marks and feedback are facts about what is not there any more.
EXPIRED: Final = _Reason(
    f"{SETTLED} and not exists"
    " (select from kept_trace k where k.project_id = t.project_id and k.trace_id = t.trace_id)"
    " for update of t skip locked",
    "(e.classifier_id = any($3::text[]) or starts_with(e.classifier_id, 'feedback.'))",
)
#: Whatever holds it: entries of sets and the notes of what is cited go with it.
ERASED: Final = _Reason(
    "true order by t.trace_id for update of t",
    "$3::text[] is not null",
    ", kept as (delete from kept_trace k using chosen c where k.project_id = $1 and k.trace_id = c.trace_id)"
    ", entries as (delete from trace_set_entry e using chosen c"
    " where e.project_id = $1 and e.trace_id = c.trace_id)",
)

_DELETE: Final = """
with chosen as materialized (
    select t.trace_id, t.first_started_at, t.last_started_at from trace t
    where t.project_id = $1 and t.trace_id = any($2::bytea[]) and {chosen}
), within as materialized (
    select min(first_started_at) as low, max(last_started_at) as high from chosen
), spans as (
    delete from span s using chosen c where s.project_id = $1 and s.trace_id = c.trace_id
      and s.started_at >= (select low from within) and s.started_at <= (select high from within)
    returning date_trunc('hour', s.created_at, 'UTC') as hour, s.facets, s.session_id
), calls as (
    delete from tool_call s using chosen c where s.project_id = $1 and s.trace_id = c.trace_id
      and s.started_at >= (select low from within) and s.started_at <= (select high from within)
    returning date_trunc('hour', s.created_at, 'UTC') as hour
), payloads as (
    delete from span_payload s using chosen c where s.project_id = $1 and s.trace_id = c.trace_id
      and s.started_at >= (select low from within) - interval '1 day'
      and s.started_at <= (select high from within) returning s.trace_id
), not_due as (
    delete from trace_due d using chosen c where d.project_id = $1 and d.trace_id = c.trace_id
), folds as (
    delete from trace_fold f using chosen c where f.project_id = $1 and f.trace_id = c.trace_id
), marks as (
    delete from classifier_event e using chosen c
    where e.project_id = $1 and e.subject_trace_id = c.trace_id and {events}
), feedback as (
    delete from feedback f using chosen c where f.project_id = $1 and f.trace_id = c.trace_id
    returning f.id
), traces as (
    delete from trace t using chosen c where t.project_id = $1 and t.trace_id = c.trace_id
    returning t.session_id, date_trunc('hour', t.created_at, 'UTC') as hour
){beside}
select (select count(*) from spans) as spans, (select count(*) from calls) as calls,
    (select count(*) from traces) as traces, (select count(*) from payloads) as payloads,
    (select count(*) from feedback) as feedback,
    array(select distinct hour from spans) as span_hours,
    array(select distinct hour from calls) as call_hours,
    array(select distinct hour from traces) as trace_hours,
    array(select distinct code from spans cross join lateral string_to_table(facets, null) as each (code))
        as codes,
    array(select session_id from traces where session_id is not null
        union select session_id from spans where session_id is not null) as sessions
"""

_SESSIONS: Final = """
delete from session s using unnest($2::text[]) as left_by (id)
where s.project_id = $1 and s.id = left_by.id
  and not exists (select from trace t where t.project_id = s.project_id and t.session_id = s.id offset 0)
"""


async def delete_traces(
    connection: Connection, project_id: int, trace_ids: Sequence[bytes], now: datetime, reason: _Reason
) -> Any:
    """Delete those of these traces that the reason allows, and sessions that are empty by it. Returns counts,
    the hours that changed, the characters of attribute values that spans had, and sessions that lost some.
    """
    statement = _DELETE.format(chosen=reason.chosen, events=reason.events, beside=reason.beside)
    row: Any = await connection.fetchrow(statement, project_id, trace_ids, list(MARK_NAMES))
    for hours, dataset in (
        (row["span_hours"], SPANS),
        (row["call_hours"], TOOL_CALLS),
        (row["trace_hours"], TRACES),
    ):
        await mark_dirty(connection, [(project_id, hour) for hour in hours], dataset, now, slow=True)
    if row["sessions"]:
        await connection.execute(_SESSIONS, project_id, row["sessions"])
    return row
