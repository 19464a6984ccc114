"""The first look at a project: counts over its newest traces, from which the facts are made.

Called by the page, the command and the tool of agents. Bounded: the newest `TRACES` traces, one time for all
statements together, and so many rows of each. Opens no payload: arguments that break a schema and errors
inside successful results are told by the marks of traces that have settled. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from protocol.storage import Slow
from svc.domain.detect.findings.bucket import Watched
from svc.domain.first_look.facts import (
    FirstLook,
    TraceCount,
)
from svc.domain.first_look.month import month_of
from svc.domain.first_look.text import EXAMPLES, MARKED, as_json, facts_of
from svc.domain.spans.messages import PREVIEW_CHARS
from svc.domain.traces.rollup import MODEL_CALLS
from svc.store.aggregates.models import CALLS
from svc.store.aggregates.models import TOKENS as CALL_TOKENS
from svc.store.detection.judging.bucket_states import STATES_READ, BucketStates
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import DAILY
from svc.store.postgres.rows import SETTLED, latency_ms
from svc.store.reads.first_look_counts import (
    MODELS,
    calls_of,
    example_of,
    largest,
    marks_of,
    model_of,
    notable,
    retries_of,
)
from svc.store.spans.availability import bounds, traces_with_payloads

#: The newest traces that are looked at.
TRACES: Final = 1_000
#: How long all of it may take.
TIMEOUT_S: Final = 8.0
#: And for agents, who asked for the project.
BRIEF_TIMEOUT_S: Final = 3.0
#: Agents ask for the project first and often, and a look takes 40 ms of processor time (November 2026): while
#: nothing came, the same is said for so long, of so many projects.
BRIEF_AGE: Final = timedelta(seconds=30)
_BRIEFS: Final = 256
#: Calls of tools, and of models, by trace and name, and repeated calls.
_CALL_ROWS: Final = 20_000
_RETRY_ROWS: Final = 2_000
_MARK_ROWS: Final = 5_000
_MODELS: Final = 200
_SERVICES: Final = 20
_FIRST_SUBJECTS: Final = 100
#: Names of tools and models that are listed.
_NAMES: Final = 12

# The newest traces, by the index on started_at.
_TRACES: Final = f"""
select trace_id, name, started_at, ended_at, first_started_at, last_started_at, session_id, user_id,
    span_count, total_tokens, total_cost::float8, input_preview, {SETTLED} as settled
from trace where project_id = $1 order by started_at desc, trace_id desc limit {TRACES}
"""

# The spans of these traces: each by its key, within their days.
_OF_TRACES: Final = """
from unnest($2::bytea[]) n (trace_id) join {table} s
    on s.project_id = $1 and s.trace_id = n.trace_id and s.started_at >= $3 and s.started_at <= $4
"""

# Each tool of each trace: whether it failed there, by what, and where first.
_CALLED: Final = """
select s.trace_id, {name} as name, min(s.started_at) as started_at, bool_or(s.status = 'error') as failed,
    (array_agg(s.span_id order by s.started_at) filter (where s.status = 'error'))[1] as span_id,
    (array_agg(s.error_type order by s.started_at) filter (where s.status = 'error'))[1] as error
{of_traces} group by 1, 2 order by 3 limit {limit}
"""
_TOOLS: Final = _CALLED.format(
    name="s.name", of_traces=_OF_TRACES.format(table="tool_call"), limit=_CALL_ROWS
)

# The same of each model that a call names.
_MODEL_CALLS: Final = _CALLED.format(
    name="s.provided_model_name",
    of_traces=f"{_OF_TRACES.format(table='span')} where s.kind = any($5::text[])"
    " and s.provided_model_name is not null",
    limit=_CALL_ROWS,
)

# Calls of a tool with the arguments of the failed call of it before. A preview that is full was cut.
_RETRIES: Final = f"""
select r.* from (
    select s.trace_id, c.name, s.span_id, s.started_at, s.status,
        lag(s.status) over (partition by s.trace_id, c.name, s.input_preview
                            order by s.started_at, s.span_id) as status_before
    {_OF_TRACES.format(table="span")}
    join tool_call c on c.project_id = $1 and c.trace_id = s.trace_id and c.span_id = s.span_id
        and c.started_at = s.started_at and not c.embedded
    where s.kind in ('tool', 'mcp') and length(s.input_preview) < {PREVIEW_CHARS}
) r where r.status_before = 'error' order by r.started_at limit {_RETRY_ROWS}
"""

# Calls of each model; what repeats another's usage is none.
_USED: Final = f"""
select provided_model_name as name, count(*) as calls,
    count(*) filter (where cost_source = 'unpriced') as unpriced,
    coalesce(sum({CALL_TOKENS}) filter (where cost_source = 'unpriced'), 0)::bigint as tokens,
    count(distinct s.trace_id) filter (where cost_source = 'unpriced') as traces,
    count(*) filter (where {CALL_TOKENS} > 0) as with_usage,
    count(*) filter (where num_nonnulls(input_preview, output_preview) > 0) as with_content,
    (array_agg(s.trace_id order by s.started_at) filter (where cost_source = 'unpriced'))[1:{EXAMPLES}]
        as ids,
    (array_agg(s.span_id order by s.started_at) filter (where cost_source = 'unpriced'))[1:{EXAMPLES}]
        as spans,
    (array_agg(s.started_at order by s.started_at) filter (where cost_source = 'unpriced'))[1:{EXAMPLES}]
        as starts
{_OF_TRACES.format(table="span")} where {CALLS} and s.kind = any($5::text[])
group by 1 order by 2 desc, 1 limit {_MODELS}
"""

# Marks of these traces, by the index on them, and the tool whose span shows each.
_MARKED: Final = f"""
select e.classifier_id as mark, e.subject_trace_id as trace_id, e.subject_span_id as span_id, e.summary,
    c.name
from classifier_event e left join lateral (
    select name from tool_call c where c.project_id = $1 and c.trace_id = e.subject_trace_id
    and c.span_id = e.subject_span_id and c.started_at >= $3 and c.started_at <= $4 limit 1
) c on true
where e.project_id = $1 and e.subject_trace_id = any($2::bytea[]) and e.subject_span_id is not null
    and e.classifier_id = any($5::text[])
order by e.created_at limit {_MARK_ROWS}
"""

# Live findings of failing tools with their cases.
_CASES: Final = """
select f.subject_id, c.number from finding f
join case_finding l on l.project_id = f.project_id and l.finding_id = f.id
join detection_case c on c.project_id = l.project_id and c.id = l.case_id and c.state <> 'resolved'
where f.project_id = $1 and f.closed_at is null and f.detector = 'tool_error' limit 1000
"""

_OPEN_CASES: Final = (
    "select count(*) from detection_case where project_id = $1"
    " and (state = 'open' or state = 'muted' and muted_until <= now())"
)

# Who sends, lately.
_SERVICES_SEEN: Final = f"""
select distinct service from exporter_day where project_id = $1 and day >= $2 and service <> ''
order by 1 limit {_SERVICES}
"""

# What the days with rows take, of all projects, and how many traces they hold. Counts are kept as traces come
# and go; indexes of an empty day count for nobody.
_BYTES: Final = """
select (select sum(pg_total_relation_size(c.oid))::bigint from pg_class c
        join pg_inherits i on i.inhrelid = c.oid join pg_class p on p.oid = i.inhparent
        where p.relname = any($1::text[]) and p.relnamespace = current_schema()::regnamespace
          and pg_relation_size(c.oid) > 0) as bytes,
    (select sum(n)::bigint from project_count where counted = 'trace') as traces
"""


@attrs.frozen(eq=False)
class _Rows:
    """What the statements bring."""

    traces: list[Any]
    dearest: list[Any] = attrs.field(factory=list)
    slowest: list[Any] = attrs.field(factory=list)
    #: Which of these two still have a payload.
    with_payloads: Set[bytes] = frozenset()
    tools: list[Any] = attrs.field(factory=list)
    model_calls: list[Any] = attrs.field(factory=list)
    retries: list[Any] = attrs.field(factory=list)
    marks: list[Any] = attrs.field(factory=list)
    models: list[Any] = attrs.field(factory=list)
    cases: list[Any] = attrs.field(factory=list)
    open_cases: int = 0
    services: list[Any] = attrs.field(factory=list)
    size: Any = None


@attrs.frozen(eq=False)
class _Brief:
    """What was said to agents, of how many spans, and when."""

    spans: int
    now: datetime
    answer: dict[str, Any] | None


@attrs.define(eq=False)
class FirstLookReads:
    """Reads one project at a time."""

    database: Database
    #: What was said of each project.
    _briefs: dict[int, _Brief] = attrs.field(factory=dict, init=False)

    async def of(self, project_id: int, now: datetime, timeout_s: float = TIMEOUT_S) -> FirstLook:
        """Everything there is to say. Raises `Slow` when it takes longer, and `Outage`."""
        rows = await self.database.run(
            lambda connection: _read(connection, project_id, now),
            readonly=True,
            snapshot=True,
            timeout_s=timeout_s,
        )
        return _look(rows, await self._baselines(project_id), now)

    async def brief(self, project_id: int, spans: int, now: datetime) -> dict[str, Any] | None:
        """The same for agents, of so many spans; None without, with a baseline, and when it takes long."""
        brief = self._briefs.get(project_id)
        if brief is None or brief.spans != spans or now - brief.now >= BRIEF_AGE:
            brief = _Brief(spans, now, await self._told(project_id, now))
            if len(self._briefs) >= _BRIEFS:
                del self._briefs[next(iter(self._briefs))]
            self._briefs[project_id] = brief
        return brief.answer

    async def _told(self, project_id: int, now: datetime) -> dict[str, Any] | None:
        # A project that is watched has one among its first subjects; agents ask often.
        if await self._baselines(project_id, _FIRST_SUBJECTS) or await self._baselines(project_id):
            return None
        try:
            look = await self.of(project_id, now, BRIEF_TIMEOUT_S)
        except Slow:
            return None
        return as_json(look) if look.traces else None

    async def _baselines(self, project_id: int, limit: int = STATES_READ) -> frozenset[str]:
        """The subjects of tools and turns, and models at all, that have a baseline, of so many."""
        subjects: set[str] = set()
        for detector in ("tool_error", "model_error", "duration_drift"):
            states = await BucketStates(self.database).all(project_id, detector, limit)
            for bucket, state in states.items():
                engine = state.rate or state.drift
                if engine is not None and engine.reference is not None:
                    subjects.add(_watched_name(bucket))
        return frozenset(subjects)


def _watched_name(bucket: Watched) -> str:
    if bucket.measure == "model_error_rate":
        return MODELS
    return bucket.subject if bucket.measure == "tool_error_rate" else bucket.reference


async def _read(connection: Connection, project_id: int, now: datetime) -> _Rows:
    traces = await connection.fetch(_TRACES, project_id)
    if not traces:
        return _Rows(traces)
    span_bounds = (
        project_id,
        [row["trace_id"] for row in traces],
        min(row["first_started_at"] for row in traces),
        max(row["last_started_at"] for row in traces),
    )
    settled = [row for row in traces if row["settled"]]
    dearest = largest(settled, [row["total_cost"] for row in settled])
    slowest = largest(settled, [latency_ms(row["started_at"], row["ended_at"]) for row in settled])
    return _Rows(
        traces,
        dearest,
        slowest,
        await traces_with_payloads(connection, project_id, [bounds(row) for row in (*dearest, *slowest)]),
        await connection.fetch(_TOOLS, *span_bounds),
        await connection.fetch(_MODEL_CALLS, *span_bounds, sorted(MODEL_CALLS)),
        await connection.fetch(_RETRIES, *span_bounds),
        await connection.fetch(_MARKED, *span_bounds, list(MARKED)),
        await connection.fetch(_USED, *span_bounds, sorted(MODEL_CALLS)),
        await connection.fetch(_CASES, project_id),
        await connection.fetchval(_OPEN_CASES, project_id),
        await connection.fetch(_SERVICES_SEEN, project_id, (now - timedelta(days=7)).date()),
        await connection.fetchrow(_BYTES, list(DAILY)),
    )


def _look(rows: _Rows, baselines: frozenset[str], now: datetime) -> FirstLook:
    traces = rows.traces
    counts = TraceCount(
        len(traces),
        sum(row["session_id"] is not None for row in traces),
        sum(row["user_id"] is not None for row in traces),
        [example_of(row) for row in traces[:EXAMPLES]],
    )
    cases = {row["subject_id"]: f"C-{row['number']}" for row in rows.cases}
    tools = calls_of(rows.tools, baselines, cases)
    model_calls = calls_of(rows.model_calls, baselines, cases, of_models=True)
    models = [model_of(row) for row in rows.models]
    services = [row["service"] for row in rows.services]
    marks = marks_of(rows.marks, {row["trace_id"]: row["started_at"] for row in traces})
    since = min((row["started_at"] for row in traces), default=None)
    spans = [row["span_count"] for row in traces]
    seconds = 0.0 if since is None else (now - since).total_seconds()
    return FirstLook(
        traces=len(traces),
        complete=len(traces) < TRACES,
        since=since,
        until=now,
        spans=sum(spans),
        services=services,
        tools=[tool_count.name for tool_count in tools[:_NAMES]],
        models=[model.name for model in models[:_NAMES]],
        facts=facts_of([*tools, *model_calls], retries_of(rows.retries), models, counts, services, marks),
        dearest=[notable(row, rows.with_payloads) for row in rows.dearest],
        slowest=[notable(row, rows.with_payloads) for row in rows.slowest],
        month=month_of([row["total_cost"] or 0.0 for row in traces], spans, _bytes_a_span(rows), seconds),
        unpriced=[model.name for model in models if model.unpriced],
        has_baseline=bool(baselines),
        open_cases=rows.open_cases,
        tools_in_cases={
            call.name: call.reference
            for call in tools
            if call.has_baseline and call.failed and call.reference
        },
    )


def _bytes_a_span(rows: _Rows) -> float | None:
    """What a span takes on disk with all its indexes, as if every trace had as many spans as these."""
    spans: int = sum(row["span_count"] for row in rows.traces)
    if rows.size is None or not rows.size["bytes"] or not rows.size["traces"] or not spans:
        return None
    all_bytes, all_traces = float(rows.size["bytes"]), float(rows.size["traces"])
    return all_bytes * len(rows.traces) / (all_traces * spans)
