"""Bars: how high a CUSUM must climb so that chance alone takes it there once in a stated number of units.

Owns: the weights of the Bernoulli CUSUM on a lattice, its average run length as an exact Markov chain, the
bar for an average run length, Siegmund's bar of the Gaussian CUSUM, and the share of the alarm budget that a
bucket gets. The engines call it. Never simulates, never reads a table. Measured 2026-11: a rate of 0.1 %
takes 2 ms for all its bars at once (3,500 cells), the slowest 50 ms, all 462 rates of the grid 0.7 s; each is
remembered for the project's other buckets.
"""

from __future__ import annotations

import functools
import math
from typing import Final

import attrs

from svc.domain.detect.engine.arrays import Floats
from svc.domain.lazy_numpy import np

#: Statistics are kept as whole numbers of this many to a nat, so that sums are exact in any order and a
#: judgement that goes on from a checkpoint equals one from the start, bit by bit.
GRAIN: Final = 1 << 24
#: How far curves are solved: to a mean of e^24 units, or to 28 nats where the event is frequent.
LN_LONGEST: Final = 24.0
HIGHEST_NATS: Final = 28.0
#: No bar stands for fewer units than this.
SHORTEST_UNITS: Final = 20_000
#: Each bucket may count on so many months of its own before chance alone raises an alarm.
LEAST_MONTHS: Final = 50.0
MONTH_DAYS: Final = 30.0
#: Rates are rounded up to steps of 2 %, so that buckets share their curves.
_STEP: Final = math.log(1.02)
LOWEST_RATE: Final = 1e-4


@attrs.frozen
class Weights:
    """What a failure and a success add to the statistic, as `up` and `down` cells of `cell` grains.

    `up` cells are added by the event watched for, a failure unless the arm looks for fewer of them.
    """

    up: int
    down: int
    cell: int

    @property
    def up_grains(self) -> int:
        """What the event adds, in grains."""
        return self.up * self.cell

    @property
    def down_grains(self) -> int:
        """What its absence takes away, in grains."""
        return self.down * self.cell


def on_grid(rate: float) -> float:
    """The rate rounded up to the grid of rates that share a bar, never below `LOWEST_RATE`."""
    steps = math.ceil(math.log(max(rate, LOWEST_RATE) / LOWEST_RATE) / _STEP - 1e-9)
    return min(LOWEST_RATE * math.exp(steps * _STEP), 0.999)


@functools.lru_cache(4096)
def weights(p0: float, p1: float) -> Weights:
    """The log-likelihood weights of an event of rate p0 against p1 > p0, on a lattice.

    Their ratio is rounded by at most 4 % so that both are whole cells: then the statistic itself walks on
    the lattice and the Markov chain is exact. The cell is such that the weights are those of an alternative
    near p1, so that ln 10 more is ten times rarer. Measured 2026-11, delays as with p1 itself within 2 %.
    """
    ratio = math.log(p1 / p0) / math.log((1 - p0) / (1 - p1))
    for parts in range(1, 1_000):
        cells = max(round(ratio * parts), 1)
        if abs(cells / parts / ratio - 1) <= 0.04:
            break
    # The alternative is p0·exp(up) and its complement (1 − p0)·exp(−down): find where they add up to one.
    low, high = 1e-9, -math.log(p0) / cells
    for _ in range(80):
        middle = (low + high) / 2
        total = p0 * math.exp(cells * middle) + (1 - p0) * math.exp(-parts * middle)
        low, high = (middle, high) if total < 1 else (low, middle)
    return Weights(cells, parts, max(round(high * GRAIN), 1))


@functools.lru_cache(2048)
def run_lengths(p: float, walk: Weights) -> tuple[Floats, Floats]:
    """Bars in nats, ascending, and ln of the mean number of units until the statistic reaches each of them.

    The statistic starts at zero and every unit is the event with probability p.
    """
    if walk.down == 1:
        lengths = _one_cell_down(p, walk.up, _cells(walk))
    elif walk.up == 1:
        lengths = _one_cell_up(p, walk.down, _cells(walk))
    else:
        return _by_matrix(p, walk)
    bars: Floats = np.arange(1, len(lengths) + 1, dtype=np.float64) * (walk.cell / GRAIN)
    return bars, np.log(lengths)


def _cells(walk: Weights) -> int:
    return int(HIGHEST_NATS * GRAIN / walk.cell) + 1


def _one_cell_down(p: float, up: int, most: int) -> Floats:
    """Mean run lengths to 1, 2, 3 … cells, of a walk that goes down by one cell or up by `up`.

    Going down from the bar, the run length d cells below it is `x·w[d] − v[d]` with one unknown x, which the
    reflection at zero fixes: one pass solves every bar. Both series grow, so rounding stays small.
    """
    q = 1 - p
    w, v = [0.0] * up + [0.0, 1.0], [0.0] * (up + 2)
    lengths: list[float] = []
    d = up + 1
    while not lengths or (lengths[-1] < math.exp(LN_LONGEST) and len(lengths) < most):
        ahead_w, ahead_v = w[d - up], v[d - up]
        x = (1 + p * (v[d] - ahead_v)) / (p * (w[d] - ahead_w))
        lengths.append(x * w[d] - v[d])
        w.append((w[d] - p * ahead_w) / q)
        v.append((v[d] + 1 - p * ahead_v) / q)
        d += 1
    return np.array(lengths)


def _one_cell_up(p: float, down: int, most: int) -> Floats:
    """Mean run lengths to 1, 2, 3 … cells, of a walk that goes up by one cell or down by `down`, never
    below zero.
    """
    passed = [0.0]
    while len(passed) == 1 or (passed[-1] < math.exp(LN_LONGEST) and len(passed) <= most):
        last_length = passed[-1]
        back = passed[max(len(passed) - 1 - down, 0)]
        passed.append((last_length + 1 - (1 - p) * back) / p)
    return np.array(passed[1:])


def _by_matrix(p: float, walk: Weights) -> tuple[Floats, Floats]:
    """The same of a walk whose steps are several cells both ways, solved at a few bars only."""
    bars: list[float] = []
    lengths: list[float] = []
    cells = max(walk.up, walk.down) // 4 + 1
    while not lengths or (lengths[-1] < LN_LONGEST and cells < _cells(walk)):
        bars.append(cells * walk.cell / GRAIN)
        lengths.append(_ln_length(p, walk, cells))
        cells += max(1, cells // 5)
    return np.array(bars), np.array(lengths)


@functools.lru_cache(16_384)
def _ln_length(p: float, walk: Weights, cells: int) -> float:
    """ln of the mean run length to a bar of so many cells, of a walk whose steps are any cells both ways."""
    states = np.arange(cells)
    chain = np.eye(cells)
    above = states + walk.up
    inside = above < cells
    np.add.at(chain, (states[inside], above[inside]), -p)
    np.add.at(chain, (states, np.maximum(states - walk.down, 0)), -(1 - p))
    return math.log(np.linalg.solve(chain, np.ones(cells))[0])


def bar(p0: float, walk: Weights, units: float) -> int:
    """The bar, in grains, that chance alone reaches once in so many units of rate p0 on average.

    A whole number of cells, the one that comes nearest.
    """
    # Steps of a hundredth, so that traffic that changes from day to day does not solve it anew.
    return _cells_for(p0, walk, round(math.log(max(units, 1.0)), 2)) * walk.cell


@functools.lru_cache(16_384)
def _cells_for(p0: float, walk: Weights, ln_units: float) -> int:
    bars, ln_lengths = run_lengths(p0, walk)
    cells = max(round(float(np.interp(ln_units, ln_lengths, bars)) * GRAIN / walk.cell), 1)
    if 1 in (walk.up, walk.down):
        return cells
    # Between the few bars solved the run length goes in steps, wide ones where the event is frequent.
    near = range(max(cells - walk.up, 1), cells + walk.up + 1)
    return min(near, key=lambda n: abs(_ln_length(p0, walk, n) - ln_units)) if len(near) <= 15 else cells


def units_between(p0: float, walk: Weights, nats: float) -> float:
    """How many units of rate p0 chance alone takes on average to bring the statistic so high."""
    bars, ln_lengths = run_lengths(p0, walk)
    cells = math.ceil(nats * GRAIN / walk.cell - 1e-6)
    if 1 in (walk.up, walk.down) or nats > bars[-1]:
        return math.exp(float(np.interp(nats, bars, ln_lengths)))
    return math.exp(_ln_length(p0, walk, max(cells, 1)))


def gaussian_run_length(h: float, k: float) -> float:
    """Siegmund's mean run length of the one-sided CUSUM of independent standard normal steps less k > 0."""
    reach = 2 * k * (h + 1.166)
    return (math.exp(min(reach, 700.0)) - reach - 1) / (2 * k * k)


def gaussian_bar(k: float, steps: float) -> float:
    """The bar h whose run length by `gaussian_run_length` is so many steps."""
    low, high = 0.0, 100.0 / k
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_run_length(middle, k) < steps else (low, middle)
    return high


def months_between_alarms(armed_buckets: int, false_alarms_per_month: float) -> float:
    """How many of its own months each armed bucket must run without a false alarm, so that together they
    raise no more than the budget. Raises `ValueError` of a budget that is not above 0.
    """
    if false_alarms_per_month <= 0:
        raise ValueError("the budget of false alarms must be above 0")
    return max(armed_buckets / false_alarms_per_month, LEAST_MONTHS)


def budget_months(buckets: int, false_alarms_per_month: float) -> float:
    """The same in steps of twice as many buckets: a new subject must not move the bars of all others."""
    return months_between_alarms(1 << max(buckets - 1, 0).bit_length(), false_alarms_per_month)


def alarm_units(months: float, units_a_month: float) -> float:
    """The average run length of a rate's bar in units; never so short that a quiet bucket cries wolf."""
    return max(months * units_a_month, float(SHORTEST_UNITS))
