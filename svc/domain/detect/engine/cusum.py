"""A CUSUM over whole numbers: many slots at once, exact, and able to go on where it stopped.

Owns: `climb` (the path of the statistic over an array of steps) and where its present climb began. Both
engines call it, forwards for alarms and in reverse for recoveries. Never knows what a step means. Whole
numbers make the sum of any stretch exact, so it does not matter where a stretch is cut.
"""

from __future__ import annotations

import attrs
import numpy as np

from svc.domain.detect.engine.arrays import Flags, Ints


@attrs.frozen
class Climb:
    """Where a statistic stands, in grains, and the first slot after it last was at zero."""

    height: int = 0
    since: int = 0


def climb(start: int, steps: Ints) -> Ints:
    """The statistic after each step, from `start`, never below zero. Shapes (n,)."""
    sums = np.cumsum(steps)
    # S[t] = C[t] − min(−start, min of C up to t): the path as if reflected at zero.
    return sums - np.minimum(np.minimum.accumulate(sums), -start) if len(sums) else sums


def climb_on(previous: Climb, path: Ints, slots: Ints) -> Climb:
    """Where the statistic stands after this path over these slots."""
    if not len(path):
        return previous
    zeros = np.flatnonzero(path == 0)
    since = previous.since if not len(zeros) else int(slots[zeros[-1]]) + 1
    return Climb(int(path[-1]), since)


def first_true(flags: Flags) -> int:
    """The first place that is true, or the length when none is."""
    index = int(np.argmax(flags)) if len(flags) else 0
    return index if len(flags) and flags[index] else len(flags)
