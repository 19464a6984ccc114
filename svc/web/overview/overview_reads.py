"""What Overview reads: traces over time, spend, tokens and durations of calls, and their split by one field.

Called by `svc.web.overview.overview`. All are asked by event time and under one deadline, three at once; what
was not answered in time stays empty, and the page says so. Calls are those of models, embeddings too, or of
tools where these are split. What is spent is what all spans say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Final

import attrs
import trio

from protocol.rest.answers import Bucket, Measured
from protocol.storage import Slow
from svc.domain.detect.engine.axis import UNIT_MS, bin_of
from svc.domain.detect.engine.histogram import Histogram
from svc.domain.spans.span import MODEL_KINDS, TOOL_KINDS
from svc.store.postgres.database import Database
from svc.store.postgres.together import run_together
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import Question, ask
from svc.store.reads.traces.trace_counts import TraceCounts
from svc.store.reads.traces.trace_drawing import TraceHistogram
from svc.store.reads.traces.trace_filter import TraceFilter
from svc.web.overview.overview_period import DayRange, Steps, folded_steps, split_steps
from svc.web.shell.measure_text import measured_number

TIMEOUT_S: Final = 10.0
_TRACES_TIMEOUT_S: Final = 3.0
_TRACES_BUDGET_S: Final = 1.0
#: Values that charts show apart; all others are one.
SHOWN_APART: Final = 3
#: Values that are ranked; a page shows the first ten. With so many there may be more, which are known only
#: from the sums of all.
RANKED: Final = 1_000


@attrs.frozen
class Dimension:
    """What is split by: its name, the field of spans, its name in the bar."""

    label: str
    field: str
    bar: str
    #: Whether its calls have a price and tokens; else they are calls of tools.
    has_cost: bool = True


DIMENSIONS: Final[Mapping[str, Dimension]] = {
    "model": Dimension("Model", "model_id", "model"),
    "site": Dimension("Call site", "call_site_id", "site"),
    "agent": Dimension("Agent", "agent_path", "agent_path"),
    "tool": Dimension("Tool", "tool", "tool", has_cost=False),
    "user": Dimension("User", "user_id", "user"),
    "release": Dimension("Release", "release", "release"),
    "environment": Dimension("Environment", "environment", "environment"),
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


@attrs.frozen
class _Kinds:
    """Kinds of spans that were called in a period and the one before it: of models, the usual one first, and
    of tools; and whether spans that are no call of a language model have a cost or tokens of their own.
    """

    models: Sequence[str] = MODEL_KINDS[:1]
    tool: str = TOOL_KINDS[0]
    spent_elsewhere: bool = False

    def called(self, dimension: Dimension) -> Sequence[str]:
        """Those of the calls that are split."""
        return self.models if dimension.has_cost else (self.tool,)

    @property
    def spending(self) -> str | None:
        """The kind that spends, None for all."""
        return None if self.spent_elsewhere else MODEL_KINDS[0]


_FIGURES: Final = ("errors", "duration_p50", "duration_p95")
_COSTS: Final = ("cost", "tokens")
_ALL: Final = (*_FIGURES, *_COSTS)


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
    #: The kind of the calls of tools.
    tool_kind: str = TOOL_KINDS[0]
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
        kinds = _Kinds()

        async def read_calls() -> None:
            overview.rows, overview.calls = await self._calls(period, dimension, kinds, by_value=by_value)

        async def read_calls_before() -> None:
            rows_before, overview.calls_before = await self._calls(
                period.before, dimension, kinds, by_value=by_value
            )
            overview.rows_before = {row.value: row for row in rows_before}

        async def read_traces() -> None:
            overview.traces = await self._traces(period)
            overview.traces_before = await self._traces(period.before)

        async def read_kinds() -> None:
            nonlocal kinds
            kinds = await self._kinds(period)
            overview.tool_kind = kinds.tool

        with trio.move_on_after(TIMEOUT_S) as patience:
            await run_together(read_traces, read_kinds)
            await run_together(
                lambda: self._series(period, dimension, kinds, overview),
                read_calls,
                read_calls_before,
            )
        overview.slow = patience.cancelled_caught or overview.traces is None
        return overview

    async def _kinds(self, period: DayRange) -> _Kinds:
        if "kind" in self.filters:
            return _Kinds()
        over_both = attrs.evolve(period, low=period.before.low)
        question = self._question(over_both, None, *_COSTS)
        ranked, _ = await QueryStore(self.database).ranked(question, "kind", RANKED)
        sums = {str(facet.value): call_sums(text_of(facet.value), facet) for facet in ranked.facets}
        return _Kinds(
            [kind for kind in MODEL_KINDS if kind in sums] or MODEL_KINDS[:1],
            # A call over MCP within a call of a tool is the same call, so either counts.
            next((kind for kind in TOOL_KINDS if kind in sums), TOOL_KINDS[0]),
            any(_is_any(row) for kind, row in sums.items() if kind != MODEL_KINDS[0]),
        )

    def _question(self, period: DayRange, kind: str | None, measure: str, *beside: str) -> Question:
        filters = {**({} if kind is None else {"kind": kind}), **self.filters}
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

    async def _series(
        self, period: DayRange, dimension: Dimension, kinds: _Kinds, overview: Overview
    ) -> None:
        queries = QueryStore(self.database)
        interval = "hour" if period.step.days < 1 else "day"
        field = dimension.field if dimension.has_cost else None
        usage = self._question(period, kinds.spending, *_COSTS)
        answer = await queries.timeseries(usage, interval, field, SHOWN_APART)
        overview.spend = split_steps(period, answer, _cost)
        if field is not None and list(overview.spend) == [None]:
            # Nothing has a price, so those with the most tokens stand apart.
            usage = self._question(period, kinds.spending, "tokens")
            answer = await queries.timeseries(usage, interval, field, SHOWN_APART)
        # Of the same values, so that a colour is one of them in both charts.
        overview.tokens = split_steps(period, answer, _all_tokens, among=list(overview.spend))
        tools = await queries.timeseries(self._question(period, kinds.tool, "errors"), interval)
        overview.tool_calls = folded_steps(period, tools.buckets, lambda bucket: bucket.count or None)
        overview.tool_failures = folded_steps(
            period, tools.buckets, lambda bucket: bucket.figure("errors") if bucket.count else None
        )
        await self._read_durations(period, kinds.called(dimension)[0], interval, overview)

    async def _read_durations(self, period: DayRange, kind: str, interval: str, overview: Overview) -> None:
        lengths = self._question(period, kind, "duration_p95")
        durations = await QueryStore(self.database).durations(lengths, interval)
        bins: list[Counter[int]] = [Counter() for _ in period.starts]
        bin_of_duration = lru_cache(maxsize=None)(partial(bin_of, unit=UNIT_MS))
        for start, by_length in durations.items():
            counts = bins[period.place(start)]
            for duration_ms, number in by_length.items():
                counts[bin_of_duration(duration_ms)] += number
        overview.p50, overview.p95 = ([_quantile(counts, share) for counts in bins] for share in (0.5, 0.95))

    async def _calls(
        self, period: DayRange, dimension: Dimension, kinds: _Kinds, *, by_value: bool
    ) -> tuple[Sequence[CallSums], CallSums]:
        """What calls come to by value, where asked, and all of them."""
        apart = kinds.spent_elsewhere or not dimension.has_cost
        split_by = dimension.field if by_value else None
        questions: list[tuple[str | None, Sequence[str], str | None]] = [
            (kind, _FIGURES if apart else _ALL, split_by) for kind in kinds.called(dimension)
        ]
        if apart:
            # What is spent does not depend on what is called, or on what is split.
            questions.append((kinds.spending, _COSTS, split_by if dimension.has_cost else None))
        rows: dict[str | None, CallSums] = {}
        total = CallSums()
        for question in questions:
            of_values, of_all = await self._sums(period, *question)
            total = beside(total, of_all)
            for row in of_values:
                rows[row.value] = beside(rows.get(row.value, CallSums(row.value)), row)
        ranked = sorted(
            filter(_is_any, rows.values()),
            key=lambda row: (-(row.cost or 0), -row.calls, row.value is None, row.value or ""),
        )
        return ranked, total

    async def _sums(
        self, period: DayRange, kind: str | None, measures: Sequence[str], split_by: str | None
    ) -> tuple[Sequence[CallSums], CallSums]:
        """By value of a field, where one is split by, and all; those with the most of what ranks them."""
        queries = QueryStore(self.database)
        if split_by is None:
            return (), call_sums(None, await queries.count(self._question(period, kind, *measures)))
        rows: list[CallSums] = []
        total = CallSums()
        for ranked_by in _COSTS if "cost" in measures else ("count",):
            further = [name for name in measures if name != ranked_by]
            question = self._question(period, kind, ranked_by, *further)
            ranked, answer = await queries.ranked(question, split_by, RANKED)
            rows = [call_sums(text_of(facet.value), facet) for facet in ranked.facets]
            total = call_sums(None, answer)
            if len(rows) < RANKED or rows[0].cost is not None:
                break
        return rows, total


def text_of(value: object) -> str | None:
    """A value of a field as pages name it."""
    return None if value is None else str(value)


def call_sums(value: str | None, answer: Measured) -> CallSums:
    """From an answer that measures some of it."""
    cost = answer.figure("cost")
    # Where only what was spent is asked for, the spans that say it are no calls.
    calls = 0 if answer.figure("errors") is None else answer.figure("count")
    return CallSums(
        value,
        int(calls or 0),
        int(answer.figure("errors") or 0),
        None if cost is None else Decimal(cost),
        int(answer.figure("unpriced_spans") or 0),
        answer.figure("tokens") or {},
        answer.figure("duration_p50"),
        answer.figure("duration_p95"),
    )


def _is_any(row: CallSums) -> bool:
    return bool(row.calls or row.cost or row.unpriced or any(row.tokens.values()))


def beside(row: CallSums | None, other: CallSums) -> CallSums:
    """Two rows of one value as one. Quantiles of two kinds of calls are none of both: those of the first."""
    return (
        other
        if row is None
        else attrs.evolve(
            together((row, other)),
            value=row.value,
            p50_ms=other.p50_ms if row.p50_ms is None else row.p50_ms,
            p95_ms=other.p95_ms if row.p95_ms is None else row.p95_ms,
        )
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


def less(total: CallSums, part: CallSums) -> CallSums:
    """All without some of them, which has no quantiles."""
    return CallSums(
        None,
        max(0, total.calls - part.calls),
        max(0, total.failed - part.failed),
        None if total.cost is None else max(Decimal(), total.cost - (part.cost or 0)),
        max(0, total.unpriced - part.unpriced),
        {
            name: None if tokens is None else max(0, tokens - (part.tokens.get(name) or 0))
            for name, tokens in total.tokens.items()
        },
    )


def _either(mine: int | None, theirs: int | None) -> int | None:
    """Their sum; None where nobody reported any."""
    return theirs if mine is None else mine + (theirs or 0)


def _cost(bucket: Bucket) -> float | None:
    return measured_number("cost", bucket)


def _all_tokens(bucket: Bucket) -> float | None:
    return measured_number("tokens", bucket)


def _quantile(bins: Counter[int], share: float) -> float | None:
    if not bins:
        return None
    places = sorted(bins)
    return Histogram(tuple(places), tuple(bins[duration_bin] for duration_bin in places)).quantile(
        share, UNIT_MS
    )
