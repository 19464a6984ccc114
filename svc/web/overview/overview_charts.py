"""Charts of Overview: series by step to places in a drawing, with the same figures as a table.

Pure; the template writes the places as SVG of 376 by `HEIGHT`. A step without data is a gap. What a bar
says stands in its title and in the table too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import attrs

from svc.web.overview.overview_period import DayRange
from svc.web.shell import words
from svc.web.shell.charts import round_up

HEIGHT: Final = 144
#: The room of the drawing itself.
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 374, 14, 124
#: Ends of an axis that read well in halves.
TOPS: Final = (1, 2, 4, 6, 8, 10)
#: What no unit of ours goes below; pixels for each of less would be without end.
_NOTHING: Final = 1e-24
#: Labels under the axis, at most.
_LABELS: Final = 7

Tone = Literal["edge", "bad", "warn", "s1", "s2", "s3", "s4"]


@attrs.frozen
class ChartSeries:
    """One thing by step, None where nothing is known; the tone is its colour."""

    name: str
    tone: Tone
    values: Sequence[float | None]


@attrs.frozen
class BarPart:
    """A part of a bar: pixels from the top, how high it is, its colour."""

    y: float
    height: float
    tone: Tone


@attrs.frozen
class StepBar:
    """One step: where it stands, its parts from the bottom up, what it says, where it leads."""

    x: float
    width: float
    parts: Sequence[BarPart]
    start: datetime
    title: str
    address: str
    running: bool


@attrs.frozen
class ChartHead:
    """What stands above a chart: its key in addresses, title, value, and what is said beside it."""

    key: str
    title: str
    value: str
    beside: str


@attrs.frozen
class OverviewChart:
    """A chart: its head, and everything that is drawn.

    `lines` are points of polylines with their tones; the second and further ones are dashed.
    """

    head: ChartHead
    series: Sequence[ChartSeries]
    steps: Sequence[StepBar]
    lines: Sequence[tuple[str, Tone]]
    ticks: Sequence[tuple[float, str]]
    labels: Sequence[tuple[float, str]]
    write: Callable[[float | None], str]
    #: Why it cannot be drawn; empty when it can.
    missing: str = ""
    #: Where releases were first seen, and what each mark says.
    marks: Sequence[tuple[float, str]] = ()

    def rows(self) -> Sequence[tuple[datetime, Sequence[str]]]:
        """The table: the start of each step with what each series has there."""
        return [
            (step.start, [self.write(series.values[number]) for series in self.series])
            for number, step in enumerate(self.steps)
        ]


@attrs.frozen
class ChartMaker:
    """Draws the charts of a period; `address` makes that of the traces between two moments."""

    period: DayRange
    address: Callable[[datetime, datetime], str]

    def bars(
        self, head: ChartHead, series: Sequence[ChartSeries], write: Callable[[float | None], str]
    ) -> OverviewChart:
        """Bars of which the series are the parts, the first at the bottom."""
        totals = [
            sum(line.values[number] or 0.0 for line in series) for number in range(len(self.period.starts))
        ]
        top = _axis_top(totals)
        scale = (_BOTTOM - _TOP) / top
        steps = []
        for number, step in enumerate(self._steps(series, write)):
            parts, y = [], float(_BOTTOM)
            for line in series:
                height = (line.values[number] or 0.0) * scale
                if height > 0:
                    # What is there is seen: a pixel at least.
                    height = max(height, 1.0)
                    y -= height
                    parts.append(BarPart(max(y, _TOP - 1.0), height, line.tone))
            steps.append(attrs.evolve(step, parts=parts))
        return OverviewChart(head, series, steps, (), _ticks(top, write), self._labels(), write)

    def lines(
        self, head: ChartHead, series: Sequence[ChartSeries], write: Callable[[float | None], str]
    ) -> OverviewChart:
        """A line for each series; steps without a value interrupt it."""
        figures = (value for line in series for value in line.values if value is not None)
        top = _axis_top(figures)
        scale = (_BOTTOM - _TOP) / top
        steps = self._steps(series, write)
        lines: list[tuple[str, Tone]] = []
        for line in series:
            run: list[str] = []
            for number, step in enumerate(steps):
                figure = line.values[number]
                if figure is None:
                    lines += _line(run, line.tone)
                    run = []
                    continue
                run.append(f"{step.x + step.width / 2:.1f},{_BOTTOM - figure * scale:.1f}")
            lines += _line(run, line.tone)
        return OverviewChart(head, series, steps, lines, _ticks(top, write), self._labels(), write)

    def _steps(self, series: Sequence[ChartSeries], write: Callable[[float | None], str]) -> list[StepBar]:
        starts, period = self.period.starts, self.period
        # The last step may still run: it is drawn as wide as the others.
        width = (_RIGHT - _LEFT) / len(starts)
        steps = []
        for number, start in enumerate(starts):
            end = period.end_of(start)
            figures = ", ".join(f"{line.name} {write(line.values[number])}" for line in series)
            running = start + period.step > period.now
            until = f"{end:%H:%M}" if period.step < timedelta(days=1) else words.day(end, UTC)
            since = words.minute(start, UTC, period.now)
            steps.append(
                StepBar(
                    _LEFT + number * width,
                    width,
                    (),
                    start,
                    f"{since} to {until}: {figures}",
                    self.address(start, end),
                    running,
                )
            )
        return steps

    def _labels(self) -> list[tuple[float, str]]:
        """Where a moment is written under the axis, and what."""
        starts = self.period.starts
        width = (_RIGHT - _LEFT) / len(starts)
        hourly = self.period.high - self.period.low <= timedelta(days=2)
        places = [
            number
            for number, start in enumerate(starts)
            if (start.hour % 6 == 0 if hourly else start.hour == 0)
        ]
        stride = -(-len(places) // _LABELS) or 1
        return [
            (
                _LEFT + number * width,
                f"{starts[number]:%H:%M}" if hourly else f"{starts[number]:%a} {starts[number].day}",
            )
            for number in places[::stride]
            if _LEFT + number * width < _RIGHT - 34
        ]


def release_marks(period: DayRange, releases: Sequence[tuple[str, datetime]]) -> Sequence[tuple[float, str]]:
    """Where each release stands in the charts of a period."""
    width = (_RIGHT - _LEFT) / len(period.starts)
    marks = []
    for name, moment in releases:
        place = min(max(period.place(moment), 0), len(period.starts) - 1)
        fraction = min(max((moment - period.starts[place]) / period.step, 0.0), 1.0)
        title = f"release {name[:60]}, first seen {words.minute(moment, UTC, period.now)}"
        marks.append((_LEFT + (place + fraction) * width, title))
    return marks


def _line(points: Sequence[str], tone: Tone) -> list[tuple[str, Tone]]:
    """One polyline; a point alone is drawn as a short one."""
    if not points:
        return []
    if len(points) == 1:
        x, y = points[0].split(",")
        return [(f"{float(x) - 1.5:.1f},{y} {float(x) + 1.5:.1f},{y}", tone)]
    return [(" ".join(points), tone)]


def _axis_top(figures: Iterable[float]) -> float:
    """The round number that an axis ends at: 1 where nothing is larger than `_NOTHING`."""
    largest = max(figures, default=0.0)
    return round_up(largest if largest > _NOTHING else 1.0, TOPS)


def _ticks(top: float, write: Callable[[float | None], str]) -> list[tuple[float, str]]:
    """The two ends and the middle, unless that is written as nothing: of one trace there is no half."""
    ticks = [
        (_BOTTOM - share * (_BOTTOM - _TOP), write(share * top) if share else "0")
        for share in (0.0, 0.5, 1.0)
    ]
    return [ticks[0], *(tick for tick in ticks[1:] if tick[1] != "0")]
