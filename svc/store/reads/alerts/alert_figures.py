"""Figures that metric rules judge: a window up to now, and the hours of history behind it.

Rows are counted and measured by the query API's own store. Traces, model calls and tools come from what is
added up for vitals (`svc.store.aggregates.vitals`), with the rows that this does not cover yet, under one
snapshot; narrowed by more than vitals know, calls are counted as the spans that they are, and traces by
`svc.store.reads.alerts.alert_traces`. All by the time at which rows were stored, as the query API counts.

Bounded: all reads of a window, or of a history, take `FIGURES_S` at most. An attribute that is no field is
looked for in payloads, as far as `svc.store.reads.payload_scan` goes: a window that it did not get through
has no figure, and a history begins where it ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import product
from typing import Any, Final

import attrs
import trio

from protocol.rest.answers import Measured
from protocol.storage import Slow
from svc.domain.alerts.metric import HourFigures, figures_of, summed
from svc.domain.alerts.params import (
    COUNTED_FIGURES,
    VITAL_DATASETS,
    VITAL_FIELDS,
    FilterValue,
    MetricParams,
    is_vital,
)
from svc.domain.attributes.conventions import PREFIX, may_need_payloads
from svc.domain.calendar import gaps, hour_of
from svc.domain.detect.engine.axis import UNIT_MS, bin_of
from svc.domain.lazy_numpy import is_loaded, load
from svc.domain.spans.span import MODEL_KINDS, TOOL_KINDS
from svc.store.aggregates.closed_hours import SLICE
from svc.store.aggregates.covered import covered_since
from svc.store.aggregates.vitals import BIN, SOURCES, VitalSource, What
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.reads.alerts.alert_traces import TraceFigures, check_trace_filters
from svc.store.reads.payload_scan import scan_note
from svc.store.reads.questions.attributes import promoted_fields
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import Question, ask
from svc.store.reads.questions.spans_by_payload import parted

Filters = Mapping[str, FilterValue]

_HOUR: Final = timedelta(hours=1)

# The cube's whole hours, slices of the one under way, and rows of the stretches that these do not cover,
# binned alike and told apart by their hour. Durations are unfolded only where they are asked for.
_HOURS: Final = """
with told as materialized (
    select hour, n, failed, cost, bins, counts from vital_cube
    where project_id = $1 and what = $2 and hour >= $3 and hour < $4 and hour <> all($5)
        and ($6::text is null or subject = $6)
    union all
    select date_trunc('hour', slice, 'UTC'), n, failed, cost, bins, counts from vital_slice
    where project_id = $1 and what = $2 and slice = any($10) and ($6::text is null or subject = $6)
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


_WHOLE: Final = "; a shorter window is judged"
_OR_FIELD: Final = ", or a field made of it on Settings, Attributes"
#: All reads of a window, or of a history.
FIGURES_S: Final = 20.0
#: Model calls and runs of tools as spans: their kinds, and what else they have.
CALLS: Final[Mapping[str, tuple[Sequence[str], Filters]]] = {
    "model_calls": (MODEL_KINDS, {"usage_repeats": None}),
    "tools": (TOOL_KINDS, {}),
}
#: The measure of the query API that tells a figure.
_MEASURES: Final = {"count": "count", "cost": "cost", "error_rate": "errors", "p95_ms": "duration_p95"}


class WindowTooLarge(Exception):
    """Payloads of a window could not all be looked through; the text says how far that came."""


@attrs.frozen
class KnownHours:
    """Whole hours from `first` on, none left out; `note` says which payloads were looked through for them."""

    first: datetime
    figures: Sequence[HourFigures]
    note: str = ""


async def check_question(database: Database, project_id: int, params: MetricParams) -> None:
    """Raises `Refused` for a filter that its dataset does not know."""
    if is_vital(params):
        return
    if params.dataset == "traces":
        await check_trace_filters(database, project_id, params)
        return
    for dataset, filters in _parts(params) or [("spans", params.filters)]:
        question = ask(project_id, dataset, (None, None), filters)
        await parted(database, project_id, question.filters)


async def looks_into_payloads(database: Database, project_id: int, *asked: MetricParams) -> list[bool]:
    """Whether an attribute of each is no field of the project."""
    own = [{name for name in params.filters if may_need_payloads(name)} for params in asked]
    if not any(own):
        return [False] * len(own)
    fields = set(await promoted_fields(database, project_id))
    return [bool(names - fields) for names in own]


def _parts(params: MetricParams) -> list[tuple[str, Filters]]:
    """Questions of the query API that no row meets twice: together they are what is asked."""
    if params.dataset in COUNTED_FIGURES:
        return [(params.dataset, params.filters)]
    kinds, condition = CALLS[params.dataset]
    called: list[Filters] = [{}]
    asked_for = dict(params.filters)
    if params.dataset == "model_calls" and "model_id" in asked_for:
        # A model without an id is called as the call named it, as vitals call it.
        model = asked_for.pop("model_id")
        called = [{"model_id": None, "provided_model_name": model}]
        if model is not None:
            called.append({"model_id": model})
    parts = (_merged(asked_for, condition, {"kind": kind}, names) for kind, names in product(kinds, called))
    return [("spans", filters) for filters in parts if filters is not None]


def _merged(*several: Filters) -> Filters | None:
    """All of these filters; None where two of them contradict each other."""
    merged: dict[str, FilterValue] = {}
    for filters in several:
        for name, value in filters.items():
            if merged.setdefault(name, value) != value:
                return None
    return merged


def _measured(answer: Measured) -> HourFigures:
    """A count, with the errors or the cost that were asked for beside it."""
    return HourFigures(
        n=int(answer.count),
        failed=int(answer.figure("errors") or 0),
        cost=float(answer.figure("cost") or 0),
    )


@attrs.define(eq=False)
class AlertFigures:
    """Reads one project at a time. Raises `Slow` and `Outage`."""

    database: Database

    async def window(self, project_id: int, params: MetricParams, end: datetime) -> HourFigures:
        """The window of a rule that ends then. Raises `WindowTooLarge`."""
        await _numpy_loaded()
        start = end - timedelta(hours=params.window_hours)
        with _in_time():
            if is_vital(params):
                return summed((await self._vitals(project_id, params, start, end)).values())
            if params.dataset == "traces":
                traces = await TraceFigures(self.database).hours(project_id, params, start, end)
                _require_all(traces.since, traces.note)
                return summed(traces.by_hour.values())
            questions = await self._questions(project_id, params, (start, end))
            _require_all(*_looked(params, questions))
            if params.figure == "p95_ms":
                hours = [await self._durations(question) for question in questions]
                return summed(figures for by_start in hours for figures in by_start.values())
            queries = QueryStore(self.database)
            return summed([_measured(await queries.count(question)) for question in questions])

    async def hours(
        self, project_id: int, params: MetricParams, first: datetime, end: datetime
    ) -> KnownHours:
        """The whole hours between two, or those that are known of them."""
        await _numpy_loaded()
        with _in_time():
            if is_vital(params):
                return _known(await self._vitals(project_id, params, first, end), first, end)
            if params.dataset == "traces":
                traces = await TraceFigures(self.database).hours(project_id, params, first, end)
                return _known(traces.by_hour, first, end, traces.since, traces.note)
            questions = await self._questions(project_id, params, (first, end))
            by_hour: dict[datetime, list[HourFigures]] = {}
            for question in questions:
                for start, figures in (await self._by_start(params, question, first)).items():
                    by_hour.setdefault(start, []).append(figures)
            sums = {start: summed(parts) for start, parts in by_hour.items()}
            return _known(sums, first, end, *_looked(params, questions))

    async def _by_start(
        self, params: MetricParams, question: Question, first: datetime
    ) -> Mapping[datetime, HourFigures]:
        if params.figure == "p95_ms":
            return await self._durations(question)
        series = await QueryStore(self.database).timeseries(question, "hour")
        return {first + n * _HOUR: _measured(bucket) for n, bucket in enumerate(series.buckets)}

    async def _questions(
        self, project_id: int, params: MetricParams, bounds: tuple[datetime, datetime]
    ) -> list[Question]:
        """What is asked, of the spans that payloads name where those have to tell."""
        measure, queries = _MEASURES[params.figure], QueryStore(self.database)
        questions = [
            ask(project_id, dataset, bounds, filters, measure=measure) for dataset, filters in _parts(params)
        ]
        return [(await queries.chosen(question))[0] for question in questions]

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
            built = await covered_since(connection, project_id, SOURCES[dataset].dataset, low)
            until = max(low, min(built.until, high))
            dirty = [hour for hour in built.dirty if hour < until]
            slices = [slice_ for slice_ in built.slices if slice_ + SLICE <= end]
            stretches = [(low, until)] if low < until else []
            stretches += [(slice_, slice_ + SLICE) for slice_ in slices]
            # Each is one scan of the index on created_at.
            raw = [*gaps(stretches, start, end), *((hour, hour + _HOUR) for hour in dirty)]
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
                slices,
            )

        rows = await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
        return _by_hour(rows)


async def _numpy_loaded() -> None:
    """In a thread, since rules are judged at times when nobody else has needed it."""
    if not is_loaded():
        await trio.to_thread.run_sync(load)


@contextmanager
def _in_time() -> Iterator[None]:
    """Raises `Slow`, in words for those who made the rule, once reading has taken `FIGURES_S`."""
    try:
        with trio.fail_after(FIGURES_S):
            yield
    except (trio.TooSlowError, Slow):
        raise Slow(f"its figures took longer than {FIGURES_S:g} s") from None


def _looked(params: MetricParams, questions: Sequence[Question]) -> tuple[datetime | None, str]:
    """Where the looks into payloads ended, None where they went through all, and what they went through."""
    looks = [question.spans for question in questions if question.spans is not None]
    if not looks:
        return None, ""
    by_rows = {field.name for field in questions[0].fields}
    payload_filters = [
        (name, value)
        for name, value in params.filters.items()
        if may_need_payloads(name) and name not in by_rows
    ]
    since = max((look.since for look in looks if look.since is not None), default=None)
    return since, scan_note(payload_filters, sum(look.looked for look in looks), since=since)


def _require_all(since: datetime | None, note: str) -> None:
    """Raise `WindowTooLarge` where a look ended somewhere."""
    if since is not None:
        raise WindowTooLarge(f"{note}{_WHOLE}{_OR_FIELD if PREFIX in note else ''}")


def _known(
    by_hour: Mapping[datetime, HourFigures],
    first: datetime,
    end: datetime,
    since: datetime | None = None,
    note: str = "",
) -> KnownHours:
    """Hours that are known whole: from `since` on, where that is given."""
    opening = first if since is None else min(hour_of(since) + _HOUR, end)
    starts = [opening + index * _HOUR for index in range((end - opening) // _HOUR)]
    return KnownHours(opening, [by_hour.get(start) or HourFigures() for start in starts], note)


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
