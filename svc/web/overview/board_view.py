"""The board of Overview as it is drawn: charts kept from Explore, what they are called, why one is not drawn.

Called by `svc.web.overview.board_reads` and by Explore, which suggests a title. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from protocol.rest.answers import Bucket, Buckets, Counted
from svc.domain.calendar import day_of, hour_of
from svc.domain.quantities import compact, count
from svc.domain.queries.measures import COUNT, QueryMeasure
from svc.store.accounts.kept_charts import TITLE_CHARS, KeptChart
from svc.web.overview.explore_question import Explored, parameters_of, with_filter
from svc.web.overview.overview_charts import ChartHead, ChartMaker, ChartSeries, OverviewChart, Tone
from svc.web.overview.overview_period import DAY, WEEK, DayRange, Steps, folded_steps, split_steps
from svc.web.overview.overview_reads import text_of
from svc.web.shell import words
from svc.web.shell.measure_text import LABELS, measured_number, measured_text, number_text

#: Measures whose values add up, so that an hour is the sum of its minutes.
_ADDITIVE: Final = frozenset({"count", "errors", "cost", "tokens"})
_TONES: Final[tuple[Tone, ...]] = ("s1", "s2", "s3")
#: Letters of a value in a chart; bars say it again and again.
_VALUE_CHARS: Final = 60
SLOW: Final = "This chart took too long to read. Try fewer days."
_GONE_FIELD: Final = "“{name}” is no longer a field of {noun}."
_GONE_MEASURE: Final = "“{name}” is no longer a measure of {noun}."
_GONE: Final = "Explore can no longer read the query of this chart."
_UNPRICED: Final = "{spans} without a price: not in the sum"
_OWN_RANGE: Final = "Always {range}, UTC"
_TEXT: Final = "The text “{text}” does not narrow this chart"
_NOT_NARROWED: Final = "The filter of this page does not apply to this chart"
_COARSER: Final = "{step} per point"


#: A heading, and figures by the start of their step.
CsvColumn = tuple[str, Mapping[datetime, float | None]]


@attrs.frozen
class BoardChart:
    """A kept chart: drawn, or the reason why it is not; the address opens its question in Explore."""

    chart: KeptChart
    address: str
    drawing: OverviewChart | None = None
    reason: str = ""
    #: What is to be said beside the drawing.
    notes: Sequence[str] = ()

    @property
    def key(self) -> str:
        """Its name in addresses."""
        return f"kept-{self.chart.id}"


def suggested_title(explored: Explored) -> str:
    """A question in plain words: "Error rate of tool calls by name, status error"."""
    noun = explored.dataset.name.replace("_", " ")
    measured = (
        noun.capitalize() if explored.measure is COUNT else f"{LABELS[explored.measure.name]} of {noun}"
    )
    narrowed = [
        f"no {words.field(name)}" if value is None else f"{words.field(name)} {value}"
        for name, value in explored.filters.items()
    ]
    title = ", ".join([f"{measured} by {words.field(explored.field)}", *narrowed])
    return title if len(title) <= TITLE_CHARS else title[: TITLE_CHARS - 1].rstrip() + "…"


def no_longer_holds(chart: KeptChart, explored: Explored) -> str:
    """Why a kept question is not what Explore reads today; empty where it is."""
    if explored.kept == chart.question:
        return ""
    parameters, noun = parameters_of(chart.question), explored.dataset.name.replace("_", " ")
    if parameters.get("field") != explored.field:
        return _GONE_FIELD.format(name=parameters.get("field", ""), noun=noun)
    if parameters.get("measure") != explored.measure.name:
        return _GONE_MEASURE.format(name=parameters.get("measure", ""), noun=noun)
    return _GONE


def narrowed_by(explored: Explored, filters: Mapping[str, str | None]) -> tuple[Explored, bool]:
    """The question under the filter of the page, and whether all of that could be asked of it."""
    bar, merged, is_whole = explored.bar, dict(explored.filters), True
    for name, value in filters.items():
        if explored.dataset.field(name) is None or merged.get(name, value) != value:
            is_whole = False
        elif name not in merged:
            bar, merged[name] = with_filter(bar, name, value), value
    return attrs.evolve(explored, bar=bar, filters=merged), is_whole


def drawn_over(explored: Explored, page: DayRange) -> DayRange:
    """What a chart covers and in which steps: the days of the page, or the two instants of its own.

    Steps that do not add up are those that the query API knows: hours, days, weeks from Monday.
    """
    period = page
    if not explored.range.preset:
        period = DayRange(None, *explored.bounds, page.now)
    step, low = period.step, hour_of(period.low)
    if not is_additive(explored.measure) and step < DAY and step.total_seconds() > 3600:
        step = DAY
    if step >= DAY:
        low = day_of(low)
    if step == WEEK and not is_additive(explored.measure):
        low -= low.weekday() * DAY
    return attrs.evolve(period, low=low, drawn_in=step)


def is_additive(measure: QueryMeasure) -> bool:
    """Whether its values add up."""
    return measure.name in _ADDITIVE


def interval_of(explored: Explored, period: DayRange) -> str:
    """The buckets that the steps of a chart are made from."""
    if period.step < DAY:
        return "hour"
    return "day" if is_additive(explored.measure) or period.step == DAY else "week"


def notes_of(
    explored: Explored, period: DayRange, page: DayRange, answer: Buckets, *, is_whole: bool
) -> list[str]:
    """What its sum leaves out, and what sets a chart apart from those of the page."""
    notes = []
    unpriced = sum(bucket.unpriced_spans or 0 for bucket in answer.buckets)
    if unpriced:
        notes.append(_UNPRICED.format(spans=words.counted(unpriced, "span")))
    if not explored.range.preset:
        notes.append(_OWN_RANGE.format(range=explored.range.said(UTC)))
    if period.step != page.step:
        notes.append(words.sentence(_COARSER.format(step=period.step_text)).removesuffix("."))
    if explored.text:
        notes.append(_TEXT.format(text=explored.text[:_VALUE_CHARS]))
    if not is_whole:
        notes.append(_NOT_NARROWED)
    return notes


def drawn(
    chart: KeptChart,
    explored: Explored,
    period: DayRange,
    answer: Buckets,
    total: Counted | None,
) -> OverviewChart:
    """The drawing of an answer: stacked bars of what adds up, else a line for each value.

    `total` is the answer over the whole range, where buckets do not add up to it.
    """
    measure = explored.measure
    maker = ChartMaker(period, explored.at)
    write = _writer(explored)

    def figure_of(bucket: Bucket) -> float | None:
        return measured_number(measure.name, bucket)

    if total is None:
        figures = [figure for bucket in answer.buckets if (figure := figure_of(bucket)) is not None]
        head = ChartHead(f"kept-{chart.id}", chart.title, write(sum(figures) if figures else None), "")
        return maker.bars(head, _stacked(split_steps(period, answer, figure_of)), write)
    head = ChartHead(f"kept-{chart.id}", chart.title, measured_text(measure.name, total), "")
    by_value = {
        text_of(line.value): folded_steps(period, line.buckets, figure_of) for line in answer.series or ()
    }
    lines = [
        ChartSeries(_name(value), tone, steps)
        for (value, steps), tone in zip(by_value.items(), _TONES, strict=False)
    ]
    all_ = ChartSeries("all", "s1", folded_steps(period, answer.buckets, figure_of))
    return maker.lines(head, lines or [all_], write)


def csv_columns(charts: Sequence[BoardChart]) -> Sequence[CsvColumn]:
    """A column for each series of each chart: its heading, and its figures by the start of their step.

    A chart that is not drawn has a column without figures.
    """
    columns: list[CsvColumn] = []
    for chart in charts:
        drawing, title = chart.drawing, chart.chart.title
        if drawing is None:
            columns.append((_plain_cell(title), {}))
            continue
        starts = [step.start for step in drawing.steps]
        for line in drawing.series:
            heading = title if len(drawing.series) == 1 and line.name == "all" else f"{title}: {line.name}"
            columns.append((_plain_cell(heading), dict(zip(starts, line.values, strict=True))))
    return columns


def _plain_cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _stacked(split: Mapping[str | None, Steps]) -> Sequence[ChartSeries]:
    apart = [value for value in split if value is not None]
    series = [
        ChartSeries(_name(value), tone, split[value]) for value, tone in zip(apart, _TONES, strict=False)
    ]
    if None in split:
        series.append(ChartSeries("all others" if apart else "all", "s4" if apart else "s1", split[None]))
    return series


def _name(value: Any) -> str:
    if value is None:
        return "not known"
    text = str(value) or "blank"
    return text if len(text) <= _VALUE_CHARS else text[: _VALUE_CHARS - 1] + "…"


def _writer(explored: Explored) -> Callable[[float | None], str]:
    """How values of the measure are written on an axis: things that are counted are whole."""
    measure = explored.measure
    if measure.unit in ("USD", "ms") or measure.name == "error_rate":
        return lambda value: number_text(measure.name, value)
    if measure.unit == "tokens":
        return compact
    if explored.dataset.counted_as == "sum":
        return count
    return lambda value: count(None if value is None else round(value))
