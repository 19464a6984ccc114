"""What a month comes to at the present pace, as an interval.

Owns the forecast of the first look. Traces are taken to come at random, each with its cost: what they sum up
to has the variance of their squares. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from svc.domain.first_look.facts import Month
from svc.domain.rca.statistics import Z_95

#: A month is forecast from so many traces over so long.
MONTH_TRACES: Final = 10
MONTH_AFTER: Final = timedelta(minutes=10)
MONTH: Final = timedelta(days=30)


def month_of(
    costs: Sequence[float], spans: Sequence[int], bytes_a_span: float | None, seconds: float
) -> Month | None:
    """What a month comes to, of the priced cost and the spans of each trace over so many seconds; None as
    long as that is too little to tell.
    """
    if len(spans) < MONTH_TRACES or seconds < MONTH_AFTER.total_seconds():
        return None
    scale = MONTH.total_seconds() / seconds
    disk = None if bytes_a_span is None else _interval([n * bytes_a_span for n in spans], scale)
    return Month(seconds, _interval(costs, scale), disk)


def _interval(values: Sequence[float], scale: float) -> tuple[float, float] | None:
    """The 95 % interval of what a month sums up to, of values that come at random: as compound Poisson."""
    total = math.fsum(values)
    if total <= 0:
        return None
    # On the log axis, so that no bound is below zero.
    spread = math.exp(Z_95 * math.sqrt(math.fsum(value * value for value in values)) / total)
    return total * scale / spread, total * scale * spread
