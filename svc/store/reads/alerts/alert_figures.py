"""Figures that metric rules judge: a window up to now, and the hours of history behind it.

Rows are counted and measured by the query API's own store. Of traces, model calls and tools all figures come
from the hourly cubes of vitals (`svc.store.aggregates.vitals`), with the rows that these do not cover yet,
under one snapshot. All by the time at which rows were stored, as the query API counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from svc.domain.alerts.metric import HourFigures, figures_of, summed
from svc.domain.alerts.params import COUNTED_FIGURES, VITAL_DATASETS, VITAL_FIELDS, MetricParams
from svc.domain.calendar import hour_of
from svc.domain.detect.engine.axis import UNIT_MS, bin_of
from svc.store.aggregates.vitals import BIN, SOURCES, VitalSource, What
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.reads.questions.attributes import require_fields
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import Question, ask

_HOUR: Final = timedelta(hours=1)

# The cube's whole hours, and rows of the stretches that it does not cover, binned alike and told apart by
# their hour. Durations are unfolded only where they are asked for.
_HOURS: Final = """
with told as materialized (
    select hour, n, failed, cost, bins, counts from vital_cube
    where project_id = $1 and what = $2 and hour >= $3 and hour < $4 and hour <> all($5)
        and ($6::text is null or subject = $6)
    union all
    select hour, count(*), count(*) filter (where status = 'error'), sum(total_cost),
        case when bin is null then '{{}}'::smallint[] else array[bin] end,
        case when bin is null then '{{}}'::bigint[] else array[count(*)] end
    from unnest($7::timestamptz[], $8::timestamptz[]) as stretch (low, high)
    cross join lateral (select date_trunc('hour', created_at, 'UTC') as hour, status, total_cost,
        {bin} as bin from {table} where project_id = $1 and created_at >= stretch.low
        and created_at < stretch.high and {condition} and ($6::text is null or {subject} = $6)
        offset 0) as raw
    group by hour, bin)
select hour, null::smallint as bin, sum(n)::bigint as n, sum(failed)::bigint as failed,
    sum(cost)::float8 as cost from told group by hour
union all
select hour, bin, sum(count)::bigint, 0, 0 from told
cross join lateral unnest(bins, counts) as of (bin, count)
where $9 group by hour, bin
"""


def _sql(source: VitalSource) -> str:
    return _HOURS.format(
        bin=BIN, table=source.dataset.table, condition=source.condition, subject=source.subject
    )


_OF: Final[dict[What, str]] = {what: _sql(source) for what, source in SOURCES.items()}


#: The measure of the query API that tells a figure.
_MEASURES: Final = {"count": "count", "cost": "cost", "error_rate": "errors", "p95_ms": "duration_p95"}


async def check_question(database: Database, project_id: int, params: MetricParams) -> None:
    """Raises `Refused` for a filter that the query API does not know."""
    if params.dataset in COUNTED_FIGURES:
        question = ask(project_id, params.dataset, (None, None), params.filters)
        await require_fields(database, project_id, question.fields)


def _question(project_id: int, params: MetricParams, bounds: tuple[datetime, datetime]) -> Question:
    return ask(project_id, params.dataset, bounds, params.filters, measure=_MEASURES[params.figure])


def _measured(answer: Mapping[str, Any]) -> HourFigures:
    """A count, with the errors or the cost that were asked for beside it."""
    return HourFigures(
        n=int(answer["count"]), failed=int(answer.get("errors") or 0), cost=float(answer.get("cost") or 0)
    )


@attrs.define(eq=False)
class AlertFigures:
    """Reads one project at a time. Raises `Slow` and `Outage`."""

    database: Database

    async def window(self, project_id: int, params: MetricParams, end: datetime) -> HourFigures:
        """The window of a rule that ends then."""
        start = end - timedelta(hours=params.window_hours)
        if params.dataset in COUNTED_FIGURES:
            question = _question(project_id, params, (start, end))
            if params.figure == "p95_ms":
                return summed((await self._durations(question)).values())
            return _measured(await QueryStore(self.database).count(question))
        by_hour = await self._vitals(project_id, params, start, end)
        return summed(by_hour.values())

    async def hours(
        self, project_id: int, params: MetricParams, first: datetime, end: datetime
    ) -> Sequence[HourFigures]:
        """Whole hours, from the first on, none left out."""
        starts = [first + index * _HOUR for index in range((end - first) // _HOUR)]
        if params.dataset in COUNTED_FIGURES:
            question = _question(project_id, params, (first, end))
            if params.figure == "p95_ms":
                by_start = await self._durations(question)
                return [by_start.get(start, _NOTHING) for start in starts]
            series = await QueryStore(self.database).timeseries(question, "hour")
            return [_measured(bucket) for bucket in series["buckets"]]
        by_hour = await self._vitals(project_id, params, first, end)
        return [by_hour.get(start, _NOTHING) for start in starts]

    async def _durations(self, question: Question) -> Mapping[datetime, HourFigures]:
        """By hour: the spans that ended, on the axis of the cubes."""
        figures = {}
        for start, durations in (await QueryStore(self.database).durations(question)).items():
            bins: Counter[int] = Counter()
            for duration_ms, n in durations.items():
                bins[bin_of(duration_ms, UNIT_MS)] += n
            figures[start] = figures_of(bins.total(), 0, None, bins)
        return figures

    async def _vitals(
        self, project_id: int, params: MetricParams, start: datetime, end: datetime
    ) -> Mapping[datetime, HourFigures]:
        dataset: What = VITAL_DATASETS[params.dataset]  # type: ignore[assignment] # both tables name the same
        subject = params.filters.get(VITAL_FIELDS[params.dataset])
        low = hour_of(start) if start == hour_of(start) else hour_of(start) + _HOUR
        high = hour_of(end)

        async def work(connection: Connection) -> list[Any]:
            # How far the cubes are, and what of them has changed.
            row: Any = await connection.fetchrow(
                "select p.built_until, array(select hour from cube_dirty where project_id = $1"
                " and dataset = $2 and hour >= $3 and hour < p.built_until order by hour) as dirty"
                " from cube_progress p where project_id = $1 and dataset = $2",
                project_id,
                SOURCES[dataset].dataset.name,
                low,
            )
            until = low if row is None or low >= high else min(max(low, row["built_until"]), high)
            dirty = [hour for hour in (() if row is None else row["dirty"]) if low <= hour < until]
            # Each stretch is one scan of the index on created_at.
            edges = [(start, end)] if until == low else [(start, low), (until, end)]
            raw = [(a, b) for a, b in [*edges, *((hour, hour + _HOUR) for hour in dirty)] if a < b]
            return await connection.fetch(
                _OF[dataset],
                project_id,
                dataset,
                low,
                until,
                dirty,
                subject,
                [a for a, _ in raw],
                [b for _, b in raw],
                params.figure == "p95_ms",
            )

        rows = await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
        return _by_hour(rows)


_NOTHING: Final = HourFigures()


def _by_hour(rows: Sequence[Any]) -> dict[datetime, HourFigures]:
    durations: dict[datetime, dict[int, int]] = {}
    for row in rows:
        if row["bin"] is not None:
            durations.setdefault(row["hour"], {})[row["bin"]] = row["n"]
    return {
        row["hour"]: figures_of(row["n"], row["failed"], row["cost"], durations.get(row["hour"], {}))
        for row in rows
        if row["bin"] is None
    }
