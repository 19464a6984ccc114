"""What Overview reads: traces over time, spend, tokens and durations of calls, and their split by one field.

Called by `svc.web.overview.overview`. All are asked by event time and under one deadline, three at once; what
was not answered in time stays empty, and the page says so. Calls are those of models, or of tools where
these are split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Final

import attrs
import trio

from protocol.rest.answers import Bucket, Buckets, Measured
from protocol.storage import Slow
from svc.domain.detect.engine.axis import UNIT_MS, bin_of
from svc.domain.detect.engine.histogram import Histogram
from svc.store.postgres.database import Database
from svc.store.postgres.together import run_together
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import Question, ask
from svc.store.reads.traces.trace_counts import TraceCounts
from svc.store.reads.traces.trace_drawing import TraceHistogram
from svc.store.reads.traces.trace_filter import TraceFilter
from svc.web.overview.overview_period import DayRange
from svc.web.shell import words
from svc.web.shell.measure_text import measured_number

TIMEOUT_S: Final = 10.0
_TRACES_TIMEOUT_S: Final = 3.0
_TRACES_BUDGET_S: Final = 1.0
#: Values that charts show apart; all others are one.
SHOWN_APART: Final = 3
#: Values that are ranked; a page shows the first ten.
_RANKED: Final = 1_000


@attrs.frozen
class Dimension:
    """What is split by: its name, the field of spans, the kind of calls that have it, its name in the bar."""

    label: str
    field: str
    kind: str
    bar: str

    @property
    def has_cost(self) -> bool:
        """Whether its calls have a price and tokens."""
        return self.kind == "llm"


DIMENSIONS: Final[Mapping[str, Dimension]] = {
    "model": Dimension("Model", "model_id", "llm", "model"),
    "site": Dimension("Call site", "call_site_id", "llm", "site"),
    "agent": Dimension("Agent", "agent_path", "llm", "agent_path"),
    "tool": Dimension("Tool", "tool", "tool", "tool"),
    "user": Dimension("User", "user_id", "llm", "user"),
    "release": Dimension("Release", "release", "llm", "release"),
    "environment": Dimension("Environment", "environment", "llm", "environment"),
}


@attrs.frozen
class CallSums:
    """What the calls of one value, or all of them, come to; None where nobody reported any."""

    value: str | None = None
    calls: int = 0
    failed: int = 0
    cost: Decimal | None = None
    unpriced: int = 0
    tokens: Mapping[str, int | None] = attrs.field(factory=dict)
    p50_ms: float | None = None
    p95_ms: float | None = None


#: One number of a series, by step.
Steps = Sequence[float | None]


@attrs.define
class Overview:
    """What was read of a period, as far as there was time."""

    traces: TraceHistogram | None = None
    traces_before: TraceHistogram | None = None
    calls: CallSums = attrs.field(factory=CallSums)
    calls_before: CallSums = attrs.field(factory=CallSums)
    #: By value, the largest first, and all others as None; where it is not split, everything as None.
    spend: Mapping[str | None, Steps] = attrs.field(factory=dict)
    tokens: Mapping[str | None, Steps] = attrs.field(factory=dict)
    p50: Steps = ()
    p95: Steps = ()
    #: Calls of tools by step, and those that failed.
    tool_calls: Steps = ()
    tool_failures: Steps = ()
    rows: Sequence[CallSums] = ()
    rows_before: Mapping[str | None, CallSums] = attrs.field(factory=dict)
    slow: bool = False


@attrs.frozen
class OverviewReads:
    """Reads one project with one filter, asked of spans and of traces."""

    database: Database
    project_id: int
    filters: Mapping[str, Any]
    trace_filter: TraceFilter

    async def of(self, period: DayRange, dimension: Dimension, *, by_value: bool = True) -> Overview:
        """Everything, the rows where `by_value`. Raises `Refused` for an attribute that is no field."""
        # Where there is no time, charts are drawn of nothing.
        nothing: Steps = [None] * len(period.starts)
        overview = Overview(p50=nothing, p95=nothing, tool_calls=nothing, tool_failures=nothing)

        async def read_calls() -> None:
            overview.rows, overview.calls = await self._calls(period, dimension, by_value=by_value)

        async def read_calls_before() -> None:
            rows_before, overview.calls_before = await self._calls(
                period.before, dimension, by_value=by_value
            )
            overview.rows_before = {row.value: row for row in rows_before}

        async def read_traces() -> None:
            overview.traces = await self._traces(period)
            overview.traces_before = await self._traces(period.before)

        with trio.move_on_after(TIMEOUT_S) as patience:
            await run_together(
                read_traces,
                partial(self._series, period, dimension, overview),
                read_calls,
                read_calls_before,
            )
        overview.slow = patience.cancelled_caught or overview.traces is None
        return overview

    def _question(self, period: DayRange, kind: str, measure: str, *beside: str) -> Question:
        filters = {"kind": kind, **self.filters}
        return ask(
            self.project_id,
            "spans",
            (period.low, period.high),
            filters,
            by="started_at",
            measure=measure,
            beside=beside,
        )

    async def _traces(self, period: DayRange) -> TraceHistogram | None:
        try:
            return await TraceCounts(self.database).histogram(
                self.project_id,
                attrs.evolve(self.trace_filter, low=period.low, high=period.high),
                period.step,
                timeout_s=_TRACES_TIMEOUT_S,
                budget_s=_TRACES_BUDGET_S,
            )
        except Slow:
            return None

    async def _series(self, period: DayRange, dimension: Dimension, overview: Overview) -> None:
        queries = QueryStore(self.database)
        interval = "hour" if period.step.days < 1 else "day"
        field = dimension.field if dimension.has_cost else None
        usage = self._question(period, "llm", "cost", "tokens")
        answer = await queries.timeseries(usage, interval, field, SHOWN_APART)
        overview.spend = split_steps(period, answer, _cost)
        if field is not None and list(overview.spend) == [None]:
            # Nothing has a price, so those with the most tokens stand apart.
            usage = self._question(period, "llm", "tokens")
            answer = await queries.timeseries(usage, interval, field, SHOWN_APART)
        # Of the same values, so that a colour is one of them in both charts.
        overview.tokens = split_steps(period, answer, _all_tokens, among=list(overview.spend))
        tools = await queries.timeseries(self._question(period, "tool", "errors"), interval)
        overview.tool_calls = folded_steps(period, tools.buckets, lambda bucket: bucket.count or None)
        overview.tool_failures = folded_steps(
            period, tools.buckets, lambda bucket: bucket.figure("errors") if bucket.count else None
        )
        lengths = self._question(period, dimension.kind, "duration_p95")
        durations = await queries.durations(lengths, interval)
        bins: list[Counter[int]] = [Counter() for _ in period.starts]
        bin_of_duration = lru_cache(maxsize=None)(partial(bin_of, unit=UNIT_MS))
        for start, by_length in durations.items():
            counts = bins[period.place(start)]
            for duration_ms, number in by_length.items():
                counts[bin_of_duration(duration_ms)] += number
        overview.p50, overview.p95 = ([_quantile(counts, share) for counts in bins] for share in (0.5, 0.95))

    async def _calls(
        self, period: DayRange, dimension: Dimension, *, by_value: bool
    ) -> tuple[Sequence[CallSums], CallSums]:
        """What calls come to by value, where asked, and all of them."""
        queries = QueryStore(self.database)
        rows: list[CallSums] = []
        if by_value:
            for ranked_by in ("cost", "tokens") if dimension.has_cost else ("count",):
                beside = [name for name in _measures(dimension) if name != ranked_by]
                question = self._question(period, dimension.kind, ranked_by, *beside)
                ranked, total = await queries.ranked(question, dimension.field, _RANKED)
                rows = [call_sums(text_of(facet.value), [facet]) for facet in ranked.facets]
                if len(rows) < _RANKED or rows[0].cost is not None:
                    break
        else:
            total = await queries.count(self._question(period, dimension.kind, *_measures(dimension)))
        answers = [total]
        if not dimension.has_cost:
            # What is spent does not depend on what is split.
            answers.append(await queries.count(self._question(period, "llm", "cost", "tokens")))
        rows.sort(key=lambda row: (-(row.cost or 0), -row.calls, row.value is None, row.value or ""))
        return rows, call_sums(None, answers)


def _measures(dimension: Dimension) -> tuple[str, ...]:
    """What is asked of each value; the count comes with any of it."""
    costs = ("cost", "tokens") if dimension.has_cost else ()
    return ("errors", "duration_p50", "duration_p95", *costs)


def text_of(value: object) -> str | None:
    """A value of a field as pages name it."""
    return None if value is None else str(value)


def call_sums(value: str | None, answers: Sequence[Measured]) -> CallSums:
    """From answers that each measure some of it; the count is that of the first."""

    def figure(name: str) -> Any:
        figures = (answer.figure(name) for answer in answers)
        return next((number for number in figures if number is not None), None)

    cost = figure("cost")
    return CallSums(
        value,
        int(figure("count") or 0),
        int(figure("errors") or 0),
        None if cost is None else Decimal(cost),
        int(figure("unpriced_spans") or 0),
        figure("tokens") or {},
        figure("duration_p50"),
        figure("duration_p95"),
    )


def together(rows: Iterable[CallSums]) -> CallSums:
    """Several values as one, which has no quantiles."""
    total = CallSums()
    for row in rows:
        costs = [cost for cost in (total.cost, row.cost) if cost is not None]
        names = {*total.tokens, *row.tokens}
        total = CallSums(
            None,
            total.calls + row.calls,
            total.failed + row.failed,
            sum(costs, Decimal()) if costs else None,
            total.unpriced + row.unpriced,
            {name: _either(total.tokens.get(name), row.tokens.get(name)) for name in names},
        )
    return total


def _either(mine: int | None, theirs: int | None) -> int | None:
    """Their sum; None where nobody reported any."""
    return theirs if mine is None else mine + (theirs or 0)


def _cost(bucket: Bucket) -> float | None:
    return measured_number("cost", bucket)


def _all_tokens(bucket: Bucket) -> float | None:
    return measured_number("tokens", bucket)


def split_steps(
    period: DayRange,
    answer: Buckets,
    figure_of: Callable[[Bucket], float | None],
    among: Sequence[str | None] = (),
) -> dict[str | None, Steps]:
    """The series of the largest values by step, and what is left of all buckets as None.

    `among` are the values that may stand apart, in their order; any may where it names none.
    """
    total = folded_steps(period, answer.buckets, figure_of)
    values = [value for value in among if value is not None]
    series = {str(line.value): line.buckets for line in answer.series or () if line.value is not None}
    apart = {
        value: folded_steps(period, series[value], figure_of) for value in values or series if value in series
    }
    remainder = [
        None if all_ is None else max(0.0, all_ - sum(steps[number] or 0.0 for steps in apart.values()))
        for number, all_ in enumerate(total)
    ]
    split: dict[str | None, Steps] = {
        value: steps for value, steps in apart.items() if any(step for step in steps)
    }
    # What floats leave over is nothing.
    if not split or any(
        (step or 0.0) > 1e-6 * (all_ or 1.0) for step, all_ in zip(remainder, total, strict=True)
    ):
        split[None] = remainder
    return split


def folded_steps(
    period: DayRange,
    buckets: Iterable[Bucket],
    figure_of: Callable[[Bucket], float | None],
) -> Steps:
    """A figure of buckets by step; None where no bucket has one."""
    steps: list[float | None] = [None] * len(period.starts)
    for bucket in buckets:
        number, value = period.place(words.parsed(bucket.bucket_start)), figure_of(bucket)
        if value is not None and 0 <= number < len(steps):
            steps[number] = (steps[number] or 0.0) + value
    return steps


def _quantile(bins: Counter[int], share: float) -> float | None:
    if not bins:
        return None
    places = sorted(bins)
    return Histogram(tuple(places), tuple(bins[duration_bin] for duration_bin in places)).quantile(
        share, UNIT_MS
    )
