"""Overview as it is drawn: headline, charts, the rows of its table and how each changed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

import attrs

from svc.domain.quantities import compact, typed
from svc.store.reads.traces.trace_drawing import TraceBucket, TraceHistogram
from svc.web.overview.overview_charts import ChartHead, ChartMaker, ChartSeries, OverviewChart, Tone
from svc.web.overview.overview_period import DayRange, Steps
from svc.web.overview.overview_reads import RANKED, CallSums, Dimension, Overview, less, together
from svc.web.overview.vital_changes import ENOUGH, VitalChange
from svc.web.shell import words

#: Values of the table; all further ones are one row.
ROWS_SHOWN: Final = 10
_TONES: Final[tuple[Tone, ...]] = ("s1", "s2", "s3")
#: What a value is called that spans do not have.
NOT_SAID: Final = "not known"
OTHERS: Final = "all others"


@attrs.frozen
class TableRow:
    """One value of the table: what it came to, its share of what is spent, and how that changed."""

    name: str
    sums: CallSums
    address: str
    share: float | None
    change: VitalChange
    #: Why nothing is compared; empty when it is.
    short: str
    tone: Tone


def headline(overview: Overview, period: DayRange) -> str:
    """The answer to the page's question, in a sentence."""
    if overview.traces is None:
        return f"Too many traces {period.said} to count in time"
    if not overview.traces.count:
        return f"No traces {period.said}"
    parts = [
        f"{words.counted(overview.traces.count, 'trace')} {period.said}",
        f"{words.unbroken(words.percent(overview.traces.failed / overview.traces.count))} failed",
    ]
    if overview.traces.failing > overview.traces.failed:
        share = words.percent(overview.traces.failing / overview.traces.count)
        parts.append(f"{words.unbroken(share)} with a failed step")
    if overview.calls.cost is not None:
        parts.append(f"{words.money(overview.calls.cost)} spent")
    return ", ".join(parts)


def changed(now: float | Decimal | None, before: float | Decimal | None, *units: int) -> VitalChange:
    """How a figure changed, where each side has enough units to say so; more is neither good nor bad."""
    if now is None or not before or min(units) < ENOUGH:
        return VitalChange(None, judged=False)
    return VitalChange(float(now) / float(before), judged=False)


def charts(
    overview: Overview, period: DayRange, dimension: Dimension, address: Callable[..., str]
) -> Sequence[OverviewChart]:
    """The charts in their order. `address` makes that of traces between two moments, narrowed `only` to some.

    Bars of failures lead to the traces that hold them: a failed step is in a trace that may be well.
    """
    maker = ChartMaker(period, address)
    failing = ChartMaker(period, lambda low, high: address(low, high, only="errors:yes"))
    failing_calls = f"kind:{overview.tool_kind} status:error"
    failing_tools = ChartMaker(period, lambda low, high: address(low, high, only=failing_calls))
    return (
        *_of_traces(overview, period, maker, failing),
        _of_durations(overview, dimension, maker),
        *_of_use(overview, dimension, maker),
        _of_tools(overview, failing_tools),
    )


def _of_traces(
    overview: Overview, period: DayRange, maker: ChartMaker, failing: ChartMaker
) -> tuple[OverviewChart, OverviewChart]:
    drawn, drawn_before = overview.traces, overview.traces_before
    by_place: dict[int, list[TraceBucket]] = {}
    for bucket in () if drawn is None else drawn.buckets:
        by_place.setdefault(max(0, period.place(bucket.start)), []).append(bucket)
    counts: list[float | None] = []
    failures: list[float | None] = []
    inside: list[float | None] = []
    for number in range(len(period.starts)):
        buckets = by_place.get(number, [])
        counts.append(sum(bucket.count for bucket in buckets) if buckets else None)
        failures.append(sum(bucket.failed for bucket in buckets) if buckets else None)
        inside.append(sum(bucket.failing - bucket.failed for bucket in buckets) if buckets else None)
    fine = [None if n is None or f is None else n - f for n, f in zip(counts, failures, strict=True)]
    count, past = _count(drawn), _count(drawn_before)
    failed, past_failed = _failed(drawn), _failed(drawn_before)
    was = f"was {words.percent(past_failed / past)}" if min(count, past) >= ENOUGH else ""
    return (
        maker.bars(
            ChartHead("traces", "Traces", words.count(count), changed(count, past, count, past).text),
            [ChartSeries("failed", "bad", failures), ChartSeries("ok", "edge", fine)],
            _whole,
        ),
        failing.bars(
            ChartHead("failed", "Failed traces", words.percent(failed / count if count else None), was),
            [
                ChartSeries("failed", "bad", _shares(failures, counts)),
                ChartSeries("a step failed", "warn", _shares(inside, counts)),
            ],
            words.percent,
        ),
    )


def _of_tools(overview: Overview, maker: ChartMaker) -> OverviewChart:
    calls, failed = (
        sum(step or 0.0 for step in steps) for steps in (overview.tool_calls, overview.tool_failures)
    )
    beside = f"{words.count(round(failed))} of {words.count(round(calls))}" if calls else ""
    return maker.bars(
        ChartHead("tools", "Failed tool calls", words.percent(failed / calls if calls else None), beside),
        [ChartSeries("share of calls", "bad", _shares(overview.tool_failures, overview.tool_calls))],
        words.percent,
    )


def _shares(parts: Steps, wholes: Steps) -> Steps:
    """Each part of its whole; nothing where there is none."""
    return [
        part / total if total and part is not None else None
        for part, total in zip(parts, wholes, strict=True)
    ]


def _of_durations(overview: Overview, dimension: Dimension, maker: ChartMaker) -> OverviewChart:
    title = "Model calls, p50" if dimension.has_cost else "Tool calls, p50"
    p95 = overview.calls.p95_ms
    beside = f"p95 {words.duration(p95)}" if p95 is not None else ""
    return maker.lines(
        ChartHead("durations", title, words.duration(overview.calls.p50_ms), beside),
        [ChartSeries("p50", "s1", overview.p50), ChartSeries("p95", "s4", overview.p95)],
        words.duration,
    )


def _of_use(
    overview: Overview, dimension: Dimension, maker: ChartMaker
) -> tuple[OverviewChart, OverviewChart]:
    """Spend and tokens; tools have neither, so that they do not split them."""
    present, previous = overview.calls, overview.calls_before
    calls = (present.calls, previous.calls)
    missing = "" if dimension.has_cost else "not split: tools have no price of their own"
    spend, tokens = _parts(overview.spend), _parts(overview.tokens)
    of_spend = changed(present.cost, previous.cost, *calls).text
    of_tokens = changed(_tokens(present), _tokens(previous), *calls).text
    charts_of_use = (
        maker.bars(ChartHead("spend", "Spend", words.money(present.cost), of_spend), spend, words.money),
        maker.bars(ChartHead("tokens", "Tokens", compact(_tokens(present)), of_tokens), tokens, compact),
    )
    of_money, of_size = (attrs.evolve(chart, missing=missing) for chart in charts_of_use)
    return of_money, of_size


def _parts(split: Mapping[str | None, Steps]) -> Sequence[ChartSeries]:
    apart = [name for name in split if name is not None]
    series = [ChartSeries(name, tone, split[name]) for name, tone in zip(apart, _TONES, strict=False)]
    if None in split:
        series.append(ChartSeries(OTHERS if apart else "all", "s4" if apart else "s1", split[None]))
    return series


def tones(overview: Overview) -> Mapping[str | None, Tone]:
    """The colour of each value that charts show apart."""
    apart = [name for name in overview.spend if name is not None]
    return dict(zip(apart, _TONES, strict=False))


def table(
    overview: Overview, dimension: Dimension, address: Callable[[str | None], str]
) -> tuple[Sequence[TableRow], TableRow | None]:
    """The rows, largest first, and everything together; None where there is nothing."""
    rows, rows_before = list(overview.rows), overview.rows_before
    total = overview.calls if dimension.has_cost else attrs.evolve(overview.calls, cost=None, tokens={})
    remainder = []
    if len(rows) > ROWS_SHOWN + 1:
        shown, smaller = rows[:ROWS_SHOWN], rows[ROWS_SHOWN:]
        if len(rows) < RANKED:
            names = {row.value for row in shown}
            past = together(row for value, row in rows_before.items() if value not in names)
            remainder = [(f"{words.count(len(smaller))} others", together(smaller), past, "")]
        else:
            known_before = together(rows_before.get(row.value, CallSums()) for row in shown)
            left, past = less(total, together(shown)), less(overview.calls_before, known_before)
            remainder = [(OTHERS.capitalize(), left, past, "")]
        rows = shown
    colours = tones(overview)

    def row(name: str, sums: CallSums, past: CallSums, leads_to: str, tone: Tone) -> TableRow:
        now, earlier = (sums.cost, past.cost) if dimension.has_cost else (sums.calls, past.calls)
        short = ""
        if min(sums.calls, past.calls) < ENOUGH:
            when = "before" if past.calls <= sums.calls else "now"
            short = f"{min(sums.calls, past.calls)} of {ENOUGH} calls {when}"
        share = float(sums.cost / total.cost) if sums.cost is not None and total.cost else None
        if not dimension.has_cost:
            share = sums.calls / total.calls if total.calls else None
        change = changed(now, earlier, sums.calls, past.calls)
        return TableRow(name, sums, leads_to, share, change, short, tone)

    table_rows = [
        row(
            NOT_SAID if sums.value is None else sums.value,
            *(sums, rows_before.get(sums.value, CallSums()), address(sums.value)),
            colours.get(sums.value, "s4"),
        )
        for sums in rows
    ]
    table_rows += [row(name, sums, past, leads_to, "s4") for name, sums, past, leads_to in remainder]
    if not table_rows:
        return (), None
    return table_rows, row(f"All {dimension.label.lower()}s", total, overview.calls_before, "", "s4")


def csv_lines(
    overview: Overview, period: DayRange, further: Sequence[tuple[str, Mapping[datetime, float | None]]] = ()
) -> Sequence[Sequence[str]]:
    """The figures of the charts by step, with a heading; empty where nothing is known.

    `further` are columns behind them; steps of theirs that begin at other moments have lines of their own.
    """
    own = {start: _own_figures(overview, period, number) for number, start in enumerate(period.starts)}
    names = ("traces", "failed", "p50_ms", "p95_ms", "spend_usd", "tokens")
    lines = [["since", *names, *(heading for heading, _ in further)]]
    for start in sorted({*own, *(start for _, figures in further for start in figures)}):
        figures = [*own.get(start, [None] * len(names)), *(column.get(start) for _, column in further)]
        lines.append([_stamp(start), *("" if figure is None else typed(figure) for figure in figures)])
    return lines


def _own_figures(overview: Overview, period: DayRange, number: int) -> list[float | None]:
    """The figures of a step of the page's own charts."""
    buckets = [
        bucket
        for bucket in (() if overview.traces is None else overview.traces.buckets)
        if max(0, period.place(bucket.start)) == number
    ]
    return [
        sum(bucket.count for bucket in buckets),
        sum(bucket.failed for bucket in buckets),
        *(steps[number] if steps else None for steps in (overview.p50, overview.p95)),
        *(_sum_at(split, number) for split in (overview.spend, overview.tokens)),
    ]


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%MZ}"


def _sum_at(split: Mapping[str | None, Steps], number: int) -> float | None:
    figures = [step for steps in split.values() if (step := steps[number]) is not None]
    return sum(figures) if figures else None


def _whole(number: float | None) -> str:
    return words.count(None if number is None else round(number))


def _count(drawn: TraceHistogram | None) -> int:
    return 0 if drawn is None else drawn.count


def _failed(drawn: TraceHistogram | None) -> int:
    return 0 if drawn is None else drawn.failed


def _tokens(sums: CallSums) -> int | None:
    return sums.tokens.get("total")
