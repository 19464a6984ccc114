"""Numbers to places in a drawing: bars before and after an onset, small lines, curves on a log axis.

Pure; templates write the places as SVG, whose widths are shares of whatever room there is. Heights are pixels
of `HEIGHT`. What a drawing says stands beside it in a hidden table, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import exp, floor, log10
from typing import Final

import attrs

from svc.domain.detect.axis import LN_RATIO
from svc.domain.detect.histogram import Histogram
from svc.domain.detect.slots import SLOT_S, SLOTS_PER_DAY, SLOTS_PER_HOUR, slot_at, slot_start_s
from svc.store.detection.charts import ChartStep

HEIGHT: Final = 120
#: Room above the highest bar.
_HEAD: Final = 18
#: Steps of a chart at most, and the widths that they may have.
_STEPS: Final = 48
_WIDTHS: Final = tuple(hours * SLOTS_PER_HOUR for hours in (1, 2, 3, 6, 12, 24, 48))
#: What is shown before an onset: at least, and at most.
_BEFORE: Final = (2 * SLOTS_PER_DAY, 14 * SLOTS_PER_DAY)
_LINE_WIDTH: Final = 6 * SLOTS_PER_HOUR
LINE_STEPS: Final = 28


@attrs.frozen
class ChartFrame:
    """The slots that a chart covers."""

    first: int
    width: int
    steps: int

    @classmethod
    def around(cls, onset: datetime, until: datetime) -> ChartFrame:
        """From some time before an onset to a moment after it, in round steps."""
        begun, end = slot_at(onset.timestamp()), slot_at(until.timestamp()) + 1
        after = max(end - begun, SLOTS_PER_HOUR)
        before = min(max(2 * after, _BEFORE[0]), _BEFORE[1])
        width = next((one for one in _WIDTHS if (before + after) / one <= _STEPS), _WIDTHS[-1])
        steps = min(-(-(before + after) // width), 2 * _STEPS)
        last = -(-end // width) * width
        return cls(last - steps * width, width, steps)

    @property
    def step(self) -> timedelta:
        """How long one step is."""
        return timedelta(seconds=self.width * SLOT_S)

    def at(self, place: float) -> datetime:
        """The moment at a step's beginning."""
        return datetime.fromtimestamp(slot_start_s(self.first) + place * self.width * SLOT_S, UTC)

    def share(self, moment: datetime) -> float:
        """Where a moment lies, 0 at the left and 1 at the right; cut at both."""
        whole_s = self.steps * self.width * SLOT_S
        return min(max((moment.timestamp() - slot_start_s(self.first)) / whole_s, 0.0), 1.0)


@attrs.frozen
class ChartBar:
    """One step: where it stands, how high it is, and whether it lies after the onset."""

    x: float
    width: float
    y: float
    height: float
    after: bool
    start: datetime
    step: ChartStep


@attrs.frozen
class Chart:
    """A chart of bars. `ticks` are heights with their texts, `onset` and `band` shares of the width, `usual`
    the height of what is usual.
    """

    frame: ChartFrame
    bars: Sequence[ChartBar]
    ticks: Sequence[tuple[float, str]]
    onset: float
    band: tuple[float, float]
    usual: float | None
    tone: str


def chart(
    frame: ChartFrame,
    steps: Sequence[ChartStep],
    onset: datetime,
    band: tuple[datetime | None, datetime | None],
    usual: float | None,
    tone: str,
    say: Callable[[float], str],
    *,
    counted: bool = False,
) -> Chart:
    """The chart of what was counted step by step; `say` puts a value into words.

    A step of events that are only counted lies after the onset when any of it does, another when most does.
    """
    most = max([step.value or 0.0 for step in steps] + [usual or 0.0]) or 1.0
    top = _round_up(most)
    scale = (HEIGHT - _HEAD) / top
    bars = [
        ChartBar(
            place / frame.steps,
            1 / frame.steps,
            HEIGHT - step.value * scale,
            step.value * scale,
            frame.at(place + (1 if counted else 0.5)) > onset,
            frame.at(place),
            step,
        )
        for place, step in enumerate(steps)
        if step.value is not None
    ]
    low, high = band[0] or onset, band[1] or onset
    return Chart(
        frame,
        bars,
        [
            (HEIGHT - share * top * scale, say(share * top) if share else "0")
            # Half an event is none: one event has no middle.
            for share in ((0.0, 1.0) if counted and top % 2 else (0.0, 0.5, 1.0))
        ],
        frame.share(onset),
        (frame.share(low), frame.share(high)),
        None if usual is None else HEIGHT - usual * scale,
        tone,
    )


def _round_up(value: float) -> float:
    """The next round number: 1, 2, 2.5, 4, 5 or 8 of a power of ten."""
    power = 10.0 ** floor(log10(value))
    return next(power * step for step in (1, 2, 2.5, 4, 5, 8, 10) if power * step >= value * 0.999)


@attrs.frozen
class SmallLine:
    """A small line in two parts, before and after an onset, as the points of polylines."""

    before: str
    after: str


def line_frame(until: datetime) -> ChartFrame:
    """The slots of a small line that ends at a moment: a week."""
    end = slot_at(until.timestamp()) + 1
    return ChartFrame(end - LINE_STEPS * _LINE_WIDTH, _LINE_WIDTH, LINE_STEPS)


def small_line(
    frame: ChartFrame, values: Sequence[float | None], onset: datetime, width: float = 84, height: float = 28
) -> SmallLine | None:
    """The line of some values; None where there are too few to draw. Steps without any are passed over."""
    there = [(place, value) for place, value in enumerate(values) if value is not None]
    if len(there) < 2:
        return None
    low, high = min(value for _, value in there), max(value for _, value in there)
    low = min(low, 0.0) if high <= 1.0 else low
    room = (high - low) or 1.0
    points = [
        (
            frame.at(place + 0.5) >= onset,
            f"{1 + place * (width - 2) / max(len(values) - 1, 1):.1f}"
            f",{height - 3 - (value - low) / room * (height - 6):.1f}",
        )
        for place, value in there
    ]
    before = [text for after, text in points if not after]
    after = [text for after, text in points if after]
    return SmallLine(" ".join(before), " ".join(before[-1:] + after))


@attrs.frozen
class Curve:
    """A distribution as the points of a polyline in a box of 100 by `HEIGHT`, and its median's place."""

    name: str
    points: str
    median: float
    total: int


@attrs.frozen
class LogAxis:
    """Distributions over one logarithmic axis; `ticks` are shares of the width with their values."""

    curves: Sequence[Curve]
    ticks: Sequence[tuple[float, float]]


def log_axis(named: Sequence[tuple[str, Histogram]], unit: float) -> LogAxis | None:
    """Curves of distributions, each of the same area; None when one of them is empty."""
    if any(not histogram.total for _, histogram in named):
        return None
    first = max(min(histogram.bins[0] for _, histogram in named) - 2, 0)
    last = max(histogram.bins[-1] for _, histogram in named) + 2
    # Four bins a step: 22 % wide, so that a few hundred rows make a curve and no comb.
    groups = {name: _grouped(histogram, first, last) for name, histogram in named}
    most = max(max(shares) for shares in groups.values())
    curves = []
    for name, histogram in named:
        shares = groups[name]
        points = [
            f"{(place + 0.5) / len(shares) * 100:.2f},{HEIGHT - share / most * (HEIGHT - _HEAD):.1f}"
            for place, share in enumerate(shares)
        ]
        median = (_bin_of_quantile(histogram) - first) / (last - first)
        curves.append(Curve(name, " ".join(points), min(max(median, 0.0), 1.0), histogram.total))
    return LogAxis(curves, _log_ticks(first, last, unit))


def _grouped(histogram: Histogram, first: int, last: int) -> list[float]:
    shares = [0.0] * (-(-(last - first) // 4) or 1)
    for bin_, count in zip(histogram.bins, histogram.counts, strict=True):
        shares[min((bin_ - first) // 4, len(shares) - 1)] += count / histogram.total
    return shares


def _bin_of_quantile(histogram: Histogram) -> float:
    seen = 0
    for bin_, count in zip(histogram.bins, histogram.counts, strict=True):
        seen += count
        if seen * 2 >= histogram.total:
            return bin_ + 0.5
    return float(histogram.bins[-1])


def _log_ticks(first: int, last: int, unit: float) -> list[tuple[float, float]]:
    """1, 2 and 5 of each power of ten that lie on the axis; fewer when they would stand too close."""
    low, high = unit * exp(first * LN_RATIO), unit * exp(last * LN_RATIO)
    every = (1, 2, 5) if high / low < 300 else (1,)
    found = []
    for power in range(floor(log10(low)), floor(log10(high)) + 1):
        for step in every:
            value = step * 10.0**power
            if low <= value <= high:
                found.append((log10(value / low) / log10(high / low), value))
    return found


@attrs.frozen
class ClimbLine:
    """A statistic over its bar: the points of a line in a box of 100 by `HEIGHT`, the height of the bar, and
    what was highest in each step, for the table.
    """

    frame: ChartFrame
    points: str
    bar: float
    onset: float
    fired: float | None
    steps: Sequence[tuple[datetime, float]]


def climb(
    frame: ChartFrame, path: Sequence[tuple[int, float]], onset: datetime, fired: datetime | None
) -> ClimbLine | None:
    """The drawing of a statistic; None when nothing of it lies in the frame."""
    cells = frame.steps * 4
    width = frame.width / 4
    highest: dict[int, float] = {}
    for slot, ratio in path:
        place = int((slot - frame.first) / width)
        if 0 <= place < cells:
            highest[place] = max(highest.get(place, 0.0), ratio)
    if not highest:
        return None
    top = max(*highest.values(), 1.25)
    scale = (HEIGHT - _HEAD) / top
    points = " ".join(
        f"{(place + 0.5) / cells * 100:.2f},{HEIGHT - ratio * scale:.1f}"
        for place, ratio in sorted(highest.items())
    )
    steps: dict[int, float] = {}
    for place, ratio in highest.items():
        steps[place // 4] = max(steps.get(place // 4, 0.0), ratio)
    return ClimbLine(
        frame,
        points,
        HEIGHT - scale,
        frame.share(onset),
        None if fired is None else frame.share(fired),
        [(frame.at(place), ratio) for place, ratio in sorted(steps.items())],
    )
