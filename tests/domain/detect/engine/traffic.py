"""Simulated failures for the rate engine, over whole days from a Monday on.

The tests and the bench share them. Everything is drawn from the generator that is handed in.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from svc.domain.detect.engine.arrays import Floats
from svc.domain.detect.engine.bars import Weights
from svc.domain.detect.engine.rate_engine import RateJudgement, RateSettings, RateState, judge_rates
from svc.domain.detect.engine.slots import SLOTS_PER_DAY
from svc.domain.detect.engine.tallies import RateTallies

#: A Monday, 00:00.
START: Final = SLOTS_PER_DAY * (7 * 2_900 + 4)
DAY: Final = SLOTS_PER_DAY
HOUR: Final = 12


def failures(random: np.random.Generator, days: int, units_a_day: float, rate: float | Floats) -> RateTallies:
    """Units by Poisson, each failed at `rate`, one for all slots or one a slot."""
    units = random.poisson(units_a_day / DAY, days * DAY)
    failed = random.binomial(units, rate)
    seen = np.flatnonzero(units)
    return RateTallies(seen + START, units[seen], failed[seen])


def hiccups(random: np.random.Generator, days: int, rate: float, a_day: float, share: float) -> Floats:
    """The rate of each slot when bad five minutes come `a_day` at random, in which `share` fails."""
    rates = np.full(days * DAY, rate)
    rates[random.integers(0, days * DAY, random.poisson(a_day * days))] = share
    return rates


def judged(tallies: RateTallies, days: int, settings: RateSettings | None = None) -> RateJudgement:
    """Judged from the start, as if live."""
    return judge_rates(tallies, settings or RateSettings(), RateState.start(START), START + days * DAY)


def from_slot(days: int, first: int, value: float, end: int | None = None) -> Floats:
    """`value` from a slot after the start on, until `end` if there is one, and 0 elsewhere; one a slot."""
    shift = np.zeros(days * DAY)
    shift[first:end] = value
    return shift


def simulated_run_length(p: float, weights: Weights, bar: int, units: int, seed: int) -> float:
    """Units between alarms of many CUSUMs side by side, each beginning anew at zero after one."""
    random = np.random.default_rng(seed)
    beside = 2_000
    heights = np.zeros(beside, np.int64)
    alarms = 0
    for _ in range(units // beside):
        failed = random.random(beside) < p
        heights += np.where(failed, weights.up_grains, -weights.down_grains)
        np.maximum(heights, 0, out=heights)
        fired = heights >= bar
        if fired.any():
            alarms += int(fired.sum())
            heights[fired] = 0
    return units / alarms
