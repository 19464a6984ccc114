"""A figure over a window against its bound: judged live, and over the hours of history.

`HourFigures` add up, so a window is the sum of what lies in it. A rule fires when its condition begins to
hold, and not again before it has ceased to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import attrs

from svc.domain.alerts.params import MetricParams
from svc.domain.detect.engine.arrays import Floats
from svc.domain.detect.engine.axis import BINS, UNIT_MS
from svc.domain.detect.engine.histogram import Histogram
from svc.domain.lazy_numpy import np

#: The days before whose same windows a change is measured against, and how many of them must have rows.
DAYS_BEFORE: Final = 7
DAYS_NEEDED: Final = 3
_HOUR: Final = timedelta(hours=1)


@attrs.frozen(eq=False)
class HourFigures:
    """What some time held: rows, those that failed, cost in USD of those priced, durations by bin."""

    n: int = 0
    failed: int = 0
    cost: float = 0.0
    durations: Floats = attrs.field(factory=lambda: np.zeros(BINS))


@attrs.frozen
class JudgedFigure:
    """Whether the condition holds, the figure, and what it was compared with."""

    holds: bool
    value: float | None
    against: float | None


def figures_of(n: int, failed: int, cost: float | None, bins: Mapping[int, int]) -> HourFigures:
    """From counts, durations by their bin."""
    durations = np.zeros(BINS)
    durations[list(bins)] = list(bins.values())
    return HourFigures(n, failed, cost or 0.0, durations)


def summed(parts: Iterable[HourFigures]) -> HourFigures:
    """All of them together."""
    n = failed = 0
    cost, durations = 0.0, np.zeros(BINS)
    for part in parts:
        n, failed, cost = n + part.n, failed + part.failed, cost + part.cost
        durations = durations + part.durations
    return HourFigures(n, failed, cost, durations)


def figure_of(params: MetricParams, window: HourFigures) -> float | None:
    """The figure of a window; None where it has none, as the error rate of nothing."""
    match params.figure:
        case "count":
            return float(window.n)
        case "cost":
            return window.cost
        case "error_rate":
            return window.failed / window.n if window.n else None
        case "p95_ms":
            if not window.durations.any():
                return None
            return Histogram.of_dense(window.durations).quantile(0.95, UNIT_MS)


def is_too_small(params: MetricParams, window: HourFigures) -> bool:
    """Whether a window has too few rows to be judged; where a count or cost falls, few are what is sought."""
    falls = params.bound in ("below", "falls") and params.figure in ("count", "cost")
    return window.n < params.least and not falls


def judge(params: MetricParams, window: HourFigures, before: Sequence[HourFigures] = ()) -> JudgedFigure:
    """Whether the rule's condition holds of a window. `before` are the same windows of the days before."""
    value = figure_of(params, window)
    if value is None or is_too_small(params, window):
        return JudgedFigure(False, value, None)
    if params.bound in ("above", "below"):
        holds = value > params.value if params.bound == "above" else value < params.value
        return JudgedFigure(holds, value, params.value)
    references = [
        figure
        for figure in (figure_of(params, earlier) for earlier in before if earlier.n >= max(params.least, 1))
        if figure is not None
    ]
    if len(references) < DAYS_NEEDED:
        return JudgedFigure(False, value, None)
    usual = sum(references) / len(references)
    if usual <= 0:
        return JudgedFigure(False, value, usual)
    change = (value - usual) / usual * 100
    holds = change >= params.value if params.bound == "rises" else change <= -params.value
    return JudgedFigure(holds, value, usual)


def firings(
    params: MetricParams, hours: Sequence[HourFigures], first: datetime, since: datetime
) -> list[datetime]:
    """When the rule would have fired since then, by whole hours of which the first begins at `first`."""
    moments: list[datetime] = []
    firing = False
    width = params.window_hours
    windows: dict[int, HourFigures] = {}

    def window(end: int) -> HourFigures | None:
        """The window that ends before hour `end`; None when history does not reach so far."""
        if end < width:
            return None
        if end not in windows:
            windows[end] = summed(hours[end - width : end])
        return windows[end]

    for end in range(width, len(hours) + 1):
        current = window(end)
        assert current is not None, "the loop begins where a window fits"
        days = (window(end - 24 * day) for day in range(1, DAYS_BEFORE + 1))
        holds = judge(params, current, [figures for figures in days if figures is not None]).holds
        moment = first + end * _HOUR
        if holds and not firing and moment >= since:
            moments.append(moment)
        firing = holds
    return moments


def too_small(
    params: MetricParams, hours: Sequence[HourFigures], first: datetime, since: datetime
) -> tuple[int, int]:
    """Of the windows with rows that end after a moment: how many have too few to be judged, and all."""
    width = params.window_hours
    ends = range(max(width, int((since - first) / _HOUR) + 1), len(hours) + 1)
    windows = [summed(hours[end - width : end]) for end in ends]
    filled_windows = [window for window in windows if window.n]
    return sum(is_too_small(params, window) for window in filled_windows), len(filled_windows)
