"""Laws of the bars: run lengths as simulated, the published table, and beta bounds against known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.detect.engine import bars, beta
from svc.domain.detect.engine.bars import GRAIN
from svc.domain.detect.engine.change_point import Climb, climb, climb_on
from tests.domain.detect.engine.traffic import simulated_run_length


@pytest.mark.parametrize("p0", [0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7])
def test_chance_alone_reaches_the_bar_once_in_the_stated_number_of_units(p0: float) -> None:
    # Measured 2026-11 with three times as many units: within 6 % to 40 %, within 13 % above; from 50 % to
    # 60 % one failure more or less is a fifth of the run length, and nothing lies between.
    weights = bars.weights(p0, min(max(2 * p0, p0 + 0.005), 0.99))
    bar = bars.bar(p0, weights, 5_000)
    simulated = simulated_run_length(p0, weights, bar, 20_000_000, 7)
    assert simulated == pytest.approx(5_000, rel=0.15)
    assert simulated == pytest.approx(bars.units_between(p0, weights, bar / GRAIN), rel=0.07)


def test_fewer_failures_are_held_to_the_same_run_length() -> None:
    weights = bars.weights(0.95, 0.975)
    bar = bars.bar(0.95, weights, 5_000)
    assert simulated_run_length(0.95, weights, bar, 20_000_000, 8) == pytest.approx(5_000, rel=0.15)


@pytest.mark.parametrize(
    ("p0", "p1", "units", "height", "delay"),
    [
        (0.001, 0.006, 250_000, 6.13, 1_006),
        (0.001, 0.006, 5_000_000, 9.10, 1_523),
        (0.005, 0.01, 250_000, 5.74, 2_570),
        (0.005, 0.01, 5_000_000, 8.72, 4_097),
        (0.05, 0.1, 250_000, 8.07, 356),
        (0.1, 0.2, 250_000, 8.82, 184),
        (0.2, 0.4, 250_000, 9.63, 86),
    ],
)
def test_heights_and_delays_are_those_of_the_design(
    p0: float, p1: float, units: float, height: float, delay: float
) -> None:
    weights = bars.weights(p0, p1)
    bar = bars.bar(p0, weights, units) / GRAIN
    assert bar == pytest.approx(height, rel=0.015)
    assert bars.units_between(p1, weights, bar) == pytest.approx(delay, rel=0.02)


def test_ten_times_rarer_is_ln_ten_higher() -> None:
    for p0 in (0.002, 0.03, 0.1, 0.3):
        weights = bars.weights(p0, min(max(2 * p0, p0 + 0.005), 0.99))
        heights = [bars.bar(p0, weights, units) / GRAIN for units in (1e6, 1e7)]
        assert heights[1] - heights[0] == pytest.approx(math.log(10), abs=2 * weights.cell / GRAIN)


def test_the_bar_rises_with_the_run_length_over_the_whole_range_of_rates() -> None:
    for rate in np.geomspace(bars.LOWEST_RATE, 0.94, 25):
        p0 = bars.on_grid(float(rate))
        weights = bars.weights(p0, min(max(2 * p0, p0 + 0.005), 0.99))
        heights = [bars.bar(p0, weights, units) for units in (2e4, 1e6, 1e8, 1e10)]
        assert heights == sorted(set(heights))


def test_rates_are_rounded_up_by_two_percent_at_most() -> None:
    for rate in (0.00012, 0.004, 0.05, 0.33):
        assert rate <= bars.on_grid(rate) <= rate * 1.0201
        assert bars.on_grid(bars.on_grid(rate)) == bars.on_grid(rate)
    assert bars.on_grid(0.0) == bars.LOWEST_RATE
    assert bars.on_grid(1.0) == 0.999


def test_the_gaussian_bar_is_that_of_its_run_length_as_simulated() -> None:
    h = bars.gaussian_bar(0.5, 1_000)
    assert bars.gaussian_run_length(h, 0.5) == pytest.approx(1_000, rel=1e-3)
    random = np.random.default_rng(3)
    heights, alarms = np.zeros(2_000), 0
    for _ in range(5_000):
        heights = np.maximum(heights + random.normal(-0.5, 1, 2_000), 0)
        alarms += int((heights >= h).sum())
        heights[heights >= h] = 0
    assert 5_000 * 2_000 / alarms == pytest.approx(1_000, rel=0.15)


def test_each_bucket_gets_its_share_of_the_budget_and_fifty_months_at_least() -> None:
    assert bars.months_between_alarms(400, 2) == 200
    assert bars.months_between_alarms(3, 2) == 50
    assert bars.alarm_units(50, 100) == bars.SHORTEST_UNITS
    assert bars.alarm_units(50, 1_000) == 50_000
    with pytest.raises(ValueError, match="budget"):
        bars.months_between_alarms(3, 0)


# --- the statistic ---------------------------------------------------------------------------------------


@given(st.lists(st.integers(-50, 50), max_size=60), st.integers(0, 60), st.integers(0, 99))
def test_a_climb_is_the_same_wherever_it_is_cut(steps: list[int], cut: int, start: int) -> None:
    slots = np.arange(10, 10 + len(steps))
    whole = climb(start, np.array(steps, np.int64))
    height, heights = start, []
    for step in steps:
        height = max(0, height + step)
        heights.append(height)
    assert whole.tolist() == heights
    first = climb(start, np.array(steps[:cut], np.int64))
    rest = climb(int(first[-1]) if len(first) else start, np.array(steps[cut:], np.int64))
    assert [*first, *rest] == heights
    before = Climb(start, 3)
    between = climb_on(before, first, slots[:cut])
    assert climb_on(between, rest, slots[cut:]) == climb_on(before, whole, slots)


# --- the beta distribution -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "a", "b", "share"),
    [
        (0.3, 1, 1, 0.3),
        (0.5, 2, 3, 0.6875),
        (0.25, 0.5, 0.5, 1 / 3),
        (0.1, 3, 1, 0.001),
        (0.9, 1, 3, 0.999),
        (0.5, 1_000, 1_000, 0.5),
        (0.0, 2, 2, 0),
        (1.0, 2, 2, 1),
    ],
)
def test_the_share_below_a_point_is_the_known_one(x: float, a: float, b: float, share: float) -> None:
    assert beta.share_below(x, a, b) == pytest.approx(share, rel=1e-10)


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.01, 0.99))
def test_the_share_of_whole_numbers_is_a_binomial_tail(a: int, b: int, x: float) -> None:
    # I_x(a, b) is the chance of at least a successes of a + b − 1 at rate x.
    a, b = a + 1, b + 1
    n = a + b - 1
    tail = math.fsum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(a, n + 1))
    assert beta.share_below(x, a, b) == pytest.approx(tail, rel=1e-8, abs=1e-12)


@given(st.floats(0.001, 0.999), st.integers(0, 5_000), st.integers(0, 200_000))
def test_a_quantile_is_the_point_that_its_share_lies_below(q: float, failures: int, more: int) -> None:
    a, b = failures + 0.5, more + 0.5
    x = beta.quantile(q, a, b)
    assert beta.share_below(x, a, b) == pytest.approx(q, abs=1e-8)


@pytest.mark.parametrize("q", [0.001, 0.025, 0.2, 0.8, 0.975])
def test_quantiles_are_those_of_the_closed_forms(q: float) -> None:
    assert beta.quantile(q, 1, 30) == pytest.approx(1 - (1 - q) ** (1 / 30), rel=1e-10)
    assert beta.quantile(q, 30, 1) == pytest.approx(q ** (1 / 30), rel=1e-10)
    assert beta.quantile(q, 0.5, 0.5) == pytest.approx(math.sin(math.pi * q / 2) ** 2, rel=1e-10)


def test_an_interval_holds_the_proportion_and_ends_where_all_agree() -> None:
    assert beta.interval(0, 20)[0] == 0
    assert beta.interval(20, 20)[1] == 1
    low, high = beta.interval(5, 20)
    assert low < 0.25 < high
    assert beta.interval(15, 20) == (pytest.approx(1 - high), pytest.approx(1 - low))
    covered = 0
    random = np.random.default_rng(4)
    for failed in random.binomial(200, 0.1, 1_000).tolist():
        low, high = beta.interval(failed, 200)
        covered += low <= 0.1 <= high
    assert covered / 1_000 == pytest.approx(0.95, abs=0.025)
