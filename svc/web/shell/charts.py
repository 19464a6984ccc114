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

from svc.domain.detect.engine.axis import LN_RATIO
from svc.domain.detect.engine.histogram import Histogram
from svc.domain.detect.engine.slots import SLOT_S, SLOTS_PER_DAY, SLOTS_PER_HOUR, slot_at, slot_start_s
from svc.domain.feedback.rating_detectors import RATES, SHARES
from svc.domain.quantities import WRITERS, unit_of
from svc.store.detection.counting.charts import ChartStep, drawn_unit

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
        start, end = slot_at(onset.timestamp()), slot_at(until.timestamp()) + 1
        slots_after = max(end - start, SLOTS_PER_HOUR)
        slots_before = min(max(2 * slots_after, _BEFORE[0]), _BEFORE[1])
        width = next(
            (candidate for candidate in _WIDTHS if (slots_before + slots_after) / candidate <= _STEPS),
            _WIDTHS[-1],
        )
        steps = min(-(-(slots_before + slots_after) // width), 2 * _STEPS)
        aligned_end = -(-end // width) * width
        return cls(aligned_end - steps * width, width, steps)

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
    the height of what is usual; `label` names the values and `write` writes one.
    """

    label: str
    write: Callable[[float | None], str]

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
    tone: str,
    measure: str,
    metric: str | None,
    baseline: float | None,
) -> Chart:
    """The chart of a measure step by step, for a finding whose values are of `metric`.

    The two may differ: a new kind of failure is counted in traces and drawn as its tool's share of failures.
    What is usual is drawn where both are of one unit. A step of events that are only counted lies after the
    onset when any of it does, another when most does.
    """
    unit = drawn_unit(measure)
    counted, write = unit == "count", WRITERS[unit]
    usual = baseline if unit == unit_of(metric) and not counted else None
    if (metric or "").startswith("p95"):
        steps = [attrs.evolve(step, value=step.upper) for step in steps]
    most = max([step.value or 0.0 for step in steps] + [usual or 0.0]) or 1.0
    top = round_up(most)
    scale = (HEIGHT - _HEAD) / top
    bars = [
        ChartBar(
            index / frame.steps,
            1 / frame.steps,
            HEIGHT - step.value * scale,
            step.value * scale,
            frame.at(index + (1 if counted else 0.5)) > onset,
            frame.at(index),
            step,
        )
        for index, step in enumerate(steps)
        if step.value is not None
    ]
    low, high = band[0] or onset, band[1] or onset
    return Chart(
        _label(measure, unit, metric),
        write,
        frame,
        bars,
        [
            (HEIGHT - share * top * scale, write(share * top) if share else "0")
            # Half an event is none: one event has no middle.
            for share in ((0.0, 1.0) if counted and top % 2 else (0.0, 0.5, 1.0))
        ],
        frame.share(onset),
        (frame.share(low), frame.share(high)),
        None if usual is None else HEIGHT - usual * scale,
        tone,
    )


def _label(measure: str, unit: str, metric: str | None) -> str:
    if measure in RATES.values():
        return "share of ratings that are bad"
    if measure in SHARES:
        return "share of ratings in this category"
    match unit:
        case "share":
            return "share of traces that failed" + ("" if unit_of(metric) == "share" else ", in whatever way")
        case "count":
            return "traces"
        case _:
            size = {"ms": "durations", "score": "scores"}.get(unit, "costs")
            return f"95th percentile of {size}" if (metric or "").startswith("p95") else f"median of {size}"


def round_up(value: float, tops: Sequence[float] = (1, 2, 2.5, 4, 5, 8, 10)) -> float:
    """The next round number: one of `tops` of a power of ten."""
    power = 10.0 ** floor(log10(value))
    return next(power * top for top in tops if power * top >= value * 0.999)


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
    samples = [(index, value) for index, value in enumerate(values) if value is not None]
    if len(samples) < 2:
        return None
    low, high = min(value for _, value in samples), max(value for _, value in samples)
    low = min(low, 0.0) if high <= 1.0 else low
    room = (high - low) or 1.0
    points = [
        (
            frame.at(index + 0.5) >= onset,
            f"{1 + index * (width - 2) / max(len(values) - 1, 1):.1f}"
            f",{height - 3 - (value - low) / room * (height - 6):.1f}",
        )
        for index, value in samples
    ]
    earlier_points = [text for is_later, text in points if not is_later]
    later_points = [text for is_later, text in points if is_later]
    return SmallLine(" ".join(earlier_points), " ".join(earlier_points[-1:] + later_points))


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


def log_axis(histograms: Sequence[tuple[str, Histogram]], unit: float) -> LogAxis | None:
    """Curves of distributions, each of the same area; None when one of them is empty."""
    if any(not histogram.total for _, histogram in histograms):
        return None
    first = max(min(histogram.bins[0] for _, histogram in histograms) - 2, 0)
    last_bin = max(histogram.bins[-1] for _, histogram in histograms) + 2
    # Four bins a step: 22 % wide, so that a few hundred rows make a curve and no comb.
    groups = {name: _grouped(histogram, first, last_bin) for name, histogram in histograms}
    most = max(max(shares) for shares in groups.values())
    curves = []
    for name, histogram in histograms:
        shares = groups[name]
        points = [
            f"{(index + 0.5) / len(shares) * 100:.2f},{HEIGHT - share / most * (HEIGHT - _HEAD):.1f}"
            for index, share in enumerate(shares)
        ]
        median = (_bin_of_quantile(histogram) - first) / (last_bin - first)
        curves.append(Curve(name, " ".join(points), min(max(median, 0.0), 1.0), histogram.total))
    return LogAxis(curves, _log_ticks(first, last_bin, unit))


def _grouped(histogram: Histogram, first: int, last_bin: int) -> list[float]:
    shares = [0.0] * (-(-(last_bin - first) // 4) or 1)
    for bin_, count in zip(histogram.bins, histogram.counts, strict=True):
        shares[min((bin_ - first) // 4, len(shares) - 1)] += count / histogram.total
    return shares


def _bin_of_quantile(histogram: Histogram) -> float:
    running_total = 0
    for bin_, count in zip(histogram.bins, histogram.counts, strict=True):
        running_total += count
        if running_total * 2 >= histogram.total:
            return bin_ + 0.5
    return float(histogram.bins[-1])


def _log_ticks(first: int, last_bin: int, unit: float) -> list[tuple[float, float]]:
    """1, 2 and 5 of each power of ten that lie on the axis; fewer when they would stand too close."""
    low, high = unit * exp(first * LN_RATIO), unit * exp(last_bin * LN_RATIO)
    factors = (1, 2, 5) if high / low < 300 else (1,)
    ticks = []
    for power in range(floor(log10(low)), floor(log10(high)) + 1):
        for step in factors:
            value = step * 10.0**power
            if low <= value <= high:
                ticks.append((log10(value / low) / log10(high / low), value))
    return ticks


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
        cell = int((slot - frame.first) / width)
        if 0 <= cell < cells:
            highest[cell] = max(highest.get(cell, 0.0), ratio)
    if not highest:
        return None
    top = max(*highest.values(), 1.25)
    scale = (HEIGHT - _HEAD) / top
    points = " ".join(
        f"{(cell + 0.5) / cells * 100:.2f},{HEIGHT - ratio * scale:.1f}"
        for cell, ratio in sorted(highest.items())
    )
    steps: dict[int, float] = {}
    for cell, ratio in highest.items():
        steps[cell // 4] = max(steps.get(cell // 4, 0.0), ratio)
    return ClimbLine(
        frame,
        points,
        HEIGHT - scale,
        frame.share(onset),
        None if fired is None else frame.share(fired),
        [(frame.at(step), ratio) for step, ratio in sorted(steps.items())],
    )
