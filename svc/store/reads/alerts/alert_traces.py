"""Figures of traces that vitals do not keep apart: those with a span that has what a rule asks for.

Called by `svc.store.reads.alerts.alert_figures`. Asks as the list of traces does, by the time at which traces
were stored: their own call site, and one span with all of the rest. What is a field is asked of rows; any
other attribute is looked for in payloads, the newest traces first, within the bound of
`svc.store.reads.payload_scan`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import trio

from svc.domain.alerts.metric import HourFigures, figures_of
from svc.domain.alerts.params import MetricParams
from svc.domain.attributes.conventions import may_need_payloads
from svc.domain.queries.datasets import SPANS
from svc.store.aggregates.vitals import BIN
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import Database
from svc.store.reads.payload_scan import MOST_S, MOST_SPANS, saying_traces, scan_note
from svc.store.reads.questions.attributes import require_fields
from svc.store.reads.questions.grouped import QUERY_TIMEOUT_S
from svc.store.reads.questions.questions import checked_filters, filter_text
from svc.store.reads.traces.by_payload import resolved, span_keys
from svc.store.reads.traces.trace_filter import (
    TraceFilter,
    asked_for,
    held_by_spans,
    held_clause,
    narrowed_by_index,
    of_one_span,
)

#: Of a trace this is its own call site; of anything else, a span of it is asked.
_OWN: Final = "call_site_id"
#: Traces that are looked into at once.
_TRACES: Final = 100

# Traces of a stretch by the hour in which they were stored, and how long they took.
_HOURS: Final = f"""
select date_trunc('hour', created_at, 'UTC') as hour, {BIN} as bin, count(*) as n,
    count(*) filter (where status = 'error') as failed, sum(total_cost)::float8 as cost
from trace t where {{where}} group by 1, 2
"""

# The same one by one, the newest first, behind a key.
_ROWS: Final = f"""
select trace_id, created_at, date_trunc('hour', created_at, 'UTC') as hour, {BIN} as bin, 1 as n,
    (status = 'error')::integer as failed, total_cost::float8 as cost
from trace t where {{where}} order by created_at desc, trace_id desc limit {_TRACES}
"""


@attrs.frozen
class TracesByHour:
    """Figures by hour; `since` is where a look into payloads ended, and `note` what it went through."""

    by_hour: Mapping[datetime, HourFigures]
    since: datetime | None = None
    note: str = ""


def _asked(params: MetricParams) -> TraceFilter:
    spans = {name: value for name, value in params.filters.items() if name != _OWN}
    return TraceFilter(**of_one_span(spans))


async def check_trace_filters(database: Database, project_id: int, params: MetricParams) -> None:
    """Raises `Refused` for a filter that traces do not know."""
    _asked(params)
    fields = [field for field, _ in checked_filters(SPANS, params.filters) if may_need_payloads(field.name)]
    await require_fields(database, project_id, fields, filtered=True)


@attrs.define(eq=False)
class TraceFigures:
    """Reads one project at a time. Raises `Refused`, `Slow` and `Outage`."""

    database: Database

    async def hours(
        self, project_id: int, params: MetricParams, start: datetime, end: datetime
    ) -> TracesByHour:
        """What was stored between two moments, by the hour."""
        await check_trace_filters(self.database, project_id, params)
        trace_filter = await resolved(self.database, project_id, _asked(params))
        where = _where(project_id, params, trace_filter)
        where.add(f"created_at >= {where.value(start)}")
        if trace_filter.payload_attributes:
            return await self._looked_for(project_id, trace_filter, where, end)
        where.add(f"created_at < {where.value(end)}")
        rows = await self.database.fetch(
            _HOURS.format(where=where.sql()), *where.values, timeout_s=QUERY_TIMEOUT_S
        )
        return TracesByHour(_by_hour(rows))

    async def _looked_for(
        self, project_id: int, asked: TraceFilter, where: Where, end: datetime
    ) -> TracesByHour:
        """Those of a clause whose payloads say what is asked, as far as there is room and time."""
        deadline, spans = trio.current_time() + MOST_S, 0
        rows: list[Any] = []
        position: tuple[datetime, bytes] = (end, b"")
        while True:
            page = Where([*where.clauses], [*where.values])
            page.after(("created_at", "trace_id"), position)
            batch = await self.database.fetch(
                _ROWS.format(where=page.sql()), *page.values, timeout_s=QUERY_TIMEOUT_S
            )
            traces = [{"trace_id": row["trace_id"].hex()} for row in batch]
            keys = await span_keys(self.database, project_id, asked, traces, MOST_SPANS - spans + 1)
            if spans + len(keys) > MOST_SPANS:
                return _told(rows, asked, spans, position[0])
            saying = await saying_traces(self.database, project_id, keys, asked.payload_attributes)
            rows += [row for row in batch if row["trace_id"] in saying]
            spans += len(keys)
            if len(batch) < _TRACES:
                return _told(rows, asked, spans)
            position = batch[-1]["created_at"], batch[-1]["trace_id"]
            if trio.current_time() > deadline:
                return _told(rows, asked, spans, position[0])


def _where(project_id: int, params: MetricParams, asked: TraceFilter) -> Where:
    """What rows tell of a trace `t`."""
    where = narrowed_by_index(project_id, asked)
    _, span_values = asked_for(where, None, held_by_spans(asked))
    if span_values:
        where.add(held_clause(span_values, one_span=True))
    if _OWN in params.filters:
        value = params.filters[_OWN]
        where.add(
            "call_site_id is null"
            if value is None
            else f"coalesce(call_site_id, '') = {where.value(filter_text(value))}"
        )
    return where


def _told(rows: Sequence[Any], asked: TraceFilter, spans: int, since: datetime | None = None) -> TracesByHour:
    return TracesByHour(_by_hour(rows), since, scan_note(asked.payload_attributes, spans, since=since))


def _by_hour(rows: Sequence[Any]) -> dict[datetime, HourFigures]:
    sums: dict[datetime, list[Any]] = {}
    for row in rows:
        sums.setdefault(row["hour"], []).append(row)
    figures = {}
    for hour, parts in sums.items():
        durations: Counter[int] = Counter()
        for row in parts:
            if row["bin"] is not None:
                durations[row["bin"]] += row["n"]
        figures[hour] = figures_of(
            sum(row["n"] for row in parts),
            sum(row["failed"] for row in parts),
            sum(row["cost"] or 0.0 for row in parts),
            durations,
        )
    return figures
