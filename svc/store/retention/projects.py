"""Expiry of what is kept by the project: traces, sessions, roll-ups, dead letters, detections.

Called by the retention sweep, after the days. Each step is one small transaction; `freed` hears of it.

Ordering: traces are locked before sessions, as writers do. A trace goes only when it is settled and none of
its spans is left, so one that a late span has just touched, or that a finding cites, stays.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import trio

from protocol.detection import CLOSED_STATUSES
from protocol.storage import Freed
from svc.domain.calendar import EPOCH
from svc.domain.marks.table import MARK_NAMES
from svc.domain.retention.terms import Cutoffs
from svc.store.aggregates.closed_hours import mark_dirty
from svc.store.aggregates.vitals import TRACES
from svc.store.detection.counting.tidying import let_go
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.rows import SETTLED
from svc.store.retention.days import BATCH_PAUSE_S, STEP_TIMEOUT_S
from svc.store.retention.future import future

#: Rows looked at in one transaction. Each trace costs a look for its spans.
BATCH_ROWS: Final = 2_000

# The next stretch of expired traces, oldest first, and those of it that have no span left; a trace that
# somebody else holds is left for the next sweep.
_TRACES: Final = f"""
with batch as materialized (
    select t.trace_id, t.started_at, t.session_id, not exists (
        select from span s where s.project_id = t.project_id and s.trace_id = t.trace_id
        and s.started_at between t.first_started_at and t.last_started_at offset 0) as empty
    from trace t
    where t.project_id = $1 and {SETTLED} and {{expired}}
      and (t.started_at, t.trace_id) > ($3, $4)
    order by t.started_at, t.trace_id limit $5
    for update of t skip locked
), gone as (
    delete from trace t using batch b
    where t.project_id = $1 and t.trace_id = b.trace_id and b.empty
    returning t.trace_id, t.session_id, t.created_at
), not_due as (
    delete from trace_due d using gone where d.project_id = $1 and d.trace_id = gone.trace_id
), forgotten as (
    -- What it was counted as stays counted; it will not change any more.
    delete from trace_fold f using gone where f.project_id = $1 and f.trace_id = gone.trace_id
), unmarked as (
    -- Facts about what is not there any more; firings of detectors have their own term.
    delete from classifier_event e using gone
    where e.project_id = $1 and e.subject_trace_id = gone.trace_id
      and (e.classifier_id = any($7::text[]) or starts_with(e.classifier_id, 'feedback.'))
), unjudged as (
    delete from feedback f using gone where f.project_id = $1 and f.trace_id = gone.trace_id
)
select last.started_at, last.trace_id, (select count(*) from batch) as seen,
    (select count(*) from gone) as n,
    (select array_agg(distinct session_id) from gone where session_id is not null) as sessions,
    (select array_agg(distinct date_trunc('hour', created_at, 'UTC')) from gone) as hours
from (select * from batch order by started_at desc, trace_id desc limit 1) last
"""

# By the times of its spans; one with a time that has not come by when it was stored.
_PAST: Final = (
    "t.started_at < $2 and (t.last_started_at < $2 or (t.last_started_at >= $6 and t.created_at < $2))"
)
_TO_COME: Final = "t.started_at >= $6 and t.created_at < $2"

# Entries of feedback whose trace never came, and those of sessions that are gone, with their firings.
_FEEDBACK: Final = """
with old as materialized (
    select source, id, firing_id from feedback f where f.project_id = $1 and f.created_at < $2
      and not exists (select from trace t where t.project_id = $1 and t.trace_id = f.trace_id offset 0)
      and not exists (select from session s where s.project_id = $1 and s.id = f.session_id offset 0)
    order by f.created_at limit $3
), firings as (
    delete from classifier_event e using old where e.project_id = $1 and e.id = old.firing_id
)
delete from feedback f using old where f.project_id = $1 and f.source = old.source and f.id = old.id
"""

# Sessions that lost their last trace. One with later activity has a trace that this snapshot does not see.
_SESSIONS: Final = """
delete from session s using unnest($2::text[]) as left_by (id)
where s.project_id = $1 and s.id = left_by.id and (s.last_activity_at < $3 or s.last_activity_at >= $4)
  and not exists (select from trace t where t.project_id = s.project_id and t.session_id = s.id offset 0)
"""

# A stretch of expired firings, oldest first.
_FIRINGS: Final = """
delete from classifier_event e using (
    select id from classifier_event where project_id = $1 and created_at < $2 order by created_at limit $3
) old where e.project_id = $1 and e.id = old.id
"""

# Dead letters hold spans as they came, so they have the term of traces.
_LETTERS: Final = """
delete from dead_letter where id in (
    select id from dead_letter where project_id = $1 and received_at < $2 order by id limit $3
)
"""

# What exporters sent and what was refused, by day.
_EXPORTERS: Final = """
delete from exporter_day where (project_id, day, exporter) in (
    select project_id, day, exporter from exporter_day where project_id = $1 and day < $2::timestamptz::date
    order by day limit $3
)
"""
_REJECTIONS: Final = """
delete from rejection_day where (project_id, day, reason) in (
    select project_id, day, reason from rejection_day where project_id = $1 and day < $2::timestamptz::date
    order by day limit $3
)
"""

# Hours of the roll-ups; the days stay, three numbers each.
_ROLLUPS: Final = """
delete from metric_rollup where (project_id, metric, granularity, bucket_start) in (
    select project_id, metric, granularity, bucket_start from metric_rollup
    where project_id = $1 and granularity = 'hour' and bucket_start < $2 order by bucket_start limit $3
)
"""

# Counts of what classifiers looked at; the roll-ups have them since.
_EVALS: Final = """
delete from l1_eval where (project_id, hour, classifier_id) in (
    select project_id, hour, classifier_id from l1_eval where project_id = $1 and hour < $2
    order by hour limit $3
)
"""

# Resolved cases with their trail, their lists of findings, and their reports.
_CASES: Final = """
with old as materialized (
    select id from detection_case
    where project_id = $1 and state = 'resolved' and resolved_at < $2 order by resolved_at limit $3
    for update skip locked
), trail as (
    delete from case_event e using old where e.project_id = $1 and e.case_id = old.id
), listed as (
    delete from case_finding l using old where l.project_id = $1 and l.case_id = old.id
), reports as (
    delete from rca_report r using old where r.project_id = $1 and r.case_id = old.id
)
delete from detection_case c using old where c.project_id = $1 and c.id = old.id
"""

# Runs of agents that are over, with what happened in them.
_RUNS: Final = """
with old as materialized (
    select id from agent_run where project_id = $1 and finished_at < $2 order by requested_at limit $3
), told as (
    delete from agent_event e using old where e.project_id = $1 and e.run_id = old.id
)
delete from agent_run r using old where r.project_id = $1 and r.id = old.id
"""

# What rules of alerts told and what became of it, but for what is still on its way.
_EVENTS: Final = """
delete from alert_event where (project_id, id) in (
    select project_id, id from alert_event
    where project_id = $1 and written_at < $2 and gathered_at is not null order by written_at limit $3
)
"""
_DELIVERIES: Final = """
delete from alert_delivery where (project_id, id) in (
    select project_id, id from alert_delivery
    where project_id = $1 and made_at < $2 and state <> 'queued' order by made_at limit $3
)
"""

# A stretch of the evidence of closed findings that no case refers to.
_CLOSED: Final = """
    select f.id from finding f
    where f.project_id = $1 and f.last_seen_at < $2 and f.status = any($4::text[])
      and not exists (select from case_finding l where l.project_id = f.project_id and l.finding_id = f.id)
"""
_EVIDENCE: Final = f"""
delete from finding_evidence where (project_id, finding_id, role, position) in (
    select e.project_id, e.finding_id, e.role, e.position from finding_evidence e
    where e.project_id = $1 and e.finding_id in ({_CLOSED}) limit $3
)
"""
_FINDINGS: Final = f"""
delete from finding f where f.project_id = $1 and f.id in ({_CLOSED} limit $3)
  and not exists (select from finding_evidence e where e.project_id = f.project_id and e.finding_id = f.id)
"""


async def sweep_project(
    database: Database, project_id: int, cut: Cutoffs, now: datetime, freed: Callable[[Freed], None]
) -> None:
    """Delete what has expired of one project, except its daily tables."""
    if cut.traces is not None:
        await sweep_traces(database, project_id, cut.traces, now, freed)
        for table, statement in (
            ("feedback", _FEEDBACK),
            ("metric_rollup", _ROLLUPS),
            ("dead_letter", _LETTERS),
            ("exporter_day", _EXPORTERS),
            ("rejection_day", _REJECTIONS),
        ):
            await _repeat(database, table, statement, freed, project_id, cut.traces)
    if cut.detections is not None:
        for table, statement in (
            ("classifier_event", _FIRINGS),
            ("l1_eval", _EVALS),
            ("detection_case", _CASES),
            ("agent_run", _RUNS),
            ("alert_event", _EVENTS),
            ("alert_delivery", _DELIVERIES),
        ):
            await _repeat(database, table, statement, freed, project_id, cut.detections)
        for table, statement in (("finding_evidence", _EVIDENCE), ("finding", _FINDINGS)):
            await _repeat(database, table, statement, freed, project_id, cut.detections, CLOSED_STATUSES)
        await let_go(database, project_id, cut.detections, freed)


async def sweep_traces(
    database: Database, project_id: int, before: datetime, now: datetime, freed: Callable[[Freed], None]
) -> None:
    """Delete the traces of before a moment that have no span left, and their sessions."""
    for expired in (_PAST, _TO_COME):
        await _traces(database, project_id, _TRACES.replace("{expired}", expired), before, now, freed)


async def _repeat(
    database: Database,
    table: str,
    statement: str,
    freed: Callable[[Freed], None],
    project_id: int,
    before: datetime,
    *extra: Any,
) -> None:
    """Run a bounded deletion until it comes back with less than a whole batch."""

    async def work(connection: Connection) -> int:
        values = [project_id, before, BATCH_ROWS, *(list(value) for value in extra)]
        status: str = await connection.execute(statement, *values)
        return int(status.rpartition(" ")[2])

    while True:
        rows = await database.run(work, timeout_s=STEP_TIMEOUT_S)
        if rows:
            freed(Freed(table, rows=rows))
        if rows < BATCH_ROWS:
            return
        await trio.sleep(BATCH_PAUSE_S)


async def _traces(
    database: Database,
    project_id: int,
    statement: str,
    before: datetime,
    now: datetime,
    freed: Callable[[Freed], None],
) -> None:
    cursor: tuple[datetime, bytes] = (EPOCH, b"")
    while True:

        async def work(
            connection: Connection, behind: tuple[datetime, bytes] = cursor
        ) -> tuple[int, int, tuple[datetime, bytes] | None]:
            row: Any = await connection.fetchrow(
                statement, project_id, before, *behind, BATCH_ROWS, future(now), list(MARK_NAMES)
            )
            if row is None:
                return 0, 0, None
            await mark_dirty(
                connection, [(project_id, hour) for hour in row["hours"] or ()], TRACES, now, slow=True
            )
            sessions = 0
            if row["sessions"]:
                status: str = await connection.execute(
                    _SESSIONS, project_id, row["sessions"], before, future(now)
                )
                sessions = int(status.rpartition(" ")[2])
            end = row["seen"] < BATCH_ROWS
            return row["n"], sessions, None if end else (row["started_at"], row["trace_id"])

        traces, sessions, next_place = await database.run(work, timeout_s=STEP_TIMEOUT_S)
        if traces:
            freed(Freed("trace", rows=traces))
        if sessions:
            freed(Freed("session", rows=sessions))
        if next_place is None:
            return
        cursor = next_place
        await trio.sleep(BATCH_PAUSE_S)
