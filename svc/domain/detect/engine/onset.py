"""When it began: the posterior of the start of a change, over every start that is possible.

Owns: `Onset` and its two makers, for rates and for locations. The engines call them once an alarm. Never
looks past the alarm.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from svc.domain.detect.engine.arrays import Floats, Ints
from svc.domain.detect.engine.beta import ln_beta


@attrs.frozen
class Onset:
    """The first slot of the change: posterior median, and the ends of its 90 % interval, as slots."""

    low: int
    median: int
    high: int


def rate_onset(slots: Ints, units: Ints, failures: Ints, p0: float, phi: float) -> Onset:
    """The start of a change of rate, from the slots in which it may lie, up to the alarm.

    Each slot may be the first one; from there on the rate is unknown and uniform, before it p0. The
    likelihood is tempered by the over-dispersion, so that a bursty bucket gets the wider interval it
    deserves. Raises `ValueError` without slots.
    """
    m = np.cumsum(units[::-1])[::-1]
    c = np.cumsum(failures[::-1])[::-1]
    ln_p, ln_q = math.log(p0), math.log1p(-p0)
    odds = [
        (ln_beta(fails + 1, all_ - fails + 1) - fails * ln_p - (all_ - fails) * ln_q) / phi
        for all_, fails in zip(m.tolist(), c.tolist(), strict=True)
    ]
    return _posterior(slots, np.array(odds))


def location_onset(starts: Ints, residuals: Floats, variances: Floats) -> Onset:
    """The start of a shift of location, from the windows in which it may lie, up to the alarm.

    `starts` are first slots of windows. From the first shifted window on the shift is unknown and flat.
    Raises `ValueError` without windows.
    """
    precision = np.cumsum((1 / variances)[::-1])[::-1]
    weighed = np.cumsum((residuals / variances)[::-1])[::-1]
    return _posterior(starts, weighed**2 / (2 * precision) - np.log(precision) / 2)


def _posterior(starts: Ints, ln_weights: Floats) -> Onset:
    if not len(starts):
        raise ValueError("a change without a start")
    weights = np.exp(ln_weights - ln_weights.max())
    cumulative = np.cumsum(weights) / weights.sum()
    low, median, high = (
        int(starts[min(int(np.searchsorted(cumulative, q)), len(starts) - 1)]) for q in (0.05, 0.5, 0.95)
    )
    return Onset(low, median, high)
