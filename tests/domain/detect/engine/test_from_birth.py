"""Laws of what is bad from birth: few false alarms however often one looks, and quick all the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from svc.domain.detect.engine import beta
from svc.domain.detect.engine.from_birth import (
    ALPHA,
    CASE_EVIDENCE,
    bad_from_birth,
    ln_evidence,
    ln_threshold,
    surely_high,
)
from svc.domain.detect.engine.rate_engine import RateSettings, RateState, judge_rates
from svc.domain.detect.engine.slots import SLOTS_PER_DAY
from svc.domain.detect.engine.tallies import RateTallies
from tests.domain.detect.engine.traffic import HOUR, START

UNITS = 100


def told_within(rate: float, fires: Callable[[int, int], bool]) -> tuple[float, int | None]:
    """The exact chance that a rule fires within `UNITS` units of this failure rate, and the median unit."""
    quiet, told, median = np.zeros(UNITS + 2), 0.0, None
    quiet[0] = 1.0
    for units in range(1, UNITS + 1):
        quiet = quiet * (1 - rate) + np.concatenate(([0.0], quiet[:-1])) * rate
        for failures in range(units + 1):
            if quiet[failures] and fires(units, failures):
                told += quiet[failures]
                quiet[failures] = 0.0
        if median is None and told >= 0.5:
            median = units
    return float(told), median


@cache
def by_evidence(units: int, failures: int) -> bool:
    return ln_evidence(units, failures) >= math.log(1 / ALPHA)


@cache
def by_bound(units: int, failures: int) -> bool:
    """The rule as it was, of 20 units and a lower bound of 95 %."""
    if units < 20 or failures <= 0.25 * units:
        return False
    return beta.share_below(0.25, failures + 0.5, units - failures + 0.5) < 0.05


@pytest.mark.parametrize(
    ("rate", "told", "median", "bound_told", "bound_median"),
    [
        (0.05, 0, None, 0, None),
        (0.10, 0.0002, None, 0.0002, None),
        (0.20, 0.006, None, 0.041, None),
        (0.25, 0.040, None, 0.199, None),
        (0.30, 0.213, None, 0.536, 87),
        (0.40, 0.879, 49, 0.976, 22),
        (0.60, 1, 12, 1, 20),
        (0.80, 1, 6, 1, 20),
        (1.00, 1, 4, 1, 20),
    ],
)
def test_how_often_and_how_soon_it_is_told_is_as_the_table_says(
    rate: float, told: float, median: int | None, bound_told: float, bound_median: int | None
) -> None:
    chance, unit = told_within(rate, by_evidence)
    assert chance == pytest.approx(told, abs=1e-3)
    assert unit == median
    chance, unit = told_within(rate, by_bound)
    assert chance == pytest.approx(bound_told, abs=1e-3)
    assert unit == bound_median


def test_both_rules_together_stay_within_twice_the_chance_of_a_false_alarm() -> None:
    assert told_within(0.2, surely_high)[0] <= ALPHA
    assert told_within(0.2, lambda n, f: by_evidence(n, f) or surely_high(n, f))[0] <= 2 * ALPHA
    # The second is there for the middle.
    assert told_within(0.4, lambda n, f: by_evidence(n, f) or surely_high(n, f))[1] == 36


def test_the_evidence_is_no_larger_on_average_after_another_unit_at_any_tolerated_rate() -> None:
    for rate in (0.01, 0.1, 0.2):
        for units in range(60):
            for failures in range(units + 1):
                now = math.exp(ln_evidence(units, failures))
                next_unit = rate * math.exp(ln_evidence(units + 1, failures + 1))
                next_unit += (1 - rate) * math.exp(ln_evidence(units + 1, failures))
                assert next_unit <= now * (1 + 1e-9)
    assert ln_evidence(0, 0) == pytest.approx(0)


def test_the_shares_of_all_subjects_add_up_to_one_chance() -> None:
    shares = [math.exp(-ln_threshold(order)) for order in range(1, 5_001)]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(ALPHA, rel=1e-3)
    assert sum(shares) <= ALPHA


def test_no_number_of_units_is_too_large_for_it() -> None:
    assert ln_evidence(1_000_000, 0) < -100
    assert ln_evidence(1_000_000, 1_000_000) > 1e6
    assert ln_evidence(100_000, 20_000) < 0


# --- in the engine ---------------------------------------------------------------------------------------


def every(slots: int, failures: list[int], first: int = START) -> RateTallies:
    return RateTallies.of((first + i * slots, 1, failed) for i, failed in enumerate(failures))


def early_of(tallies: RateTallies, order: int = 1, until: int = START + SLOTS_PER_DAY):  # type: ignore[no-untyped-def]
    return judge_rates(tallies, RateSettings(order=order), RateState.start(START), until).state.early


@pytest.mark.parametrize(("order", "units"), [(1, 5), (2, 5), (3, 6), (5, 7)])
def test_a_tool_that_always_fails_is_told_after_so_many_traces(order: int, units: int) -> None:
    early = early_of(every(2, [1] * 20), order)
    assert early is not None
    assert (early.seen.units, early.seen.failures) == (units, units)
    assert early.since == START + 2 * (units - 1)
    assert early_of(every(2, [1] * (units - 1)), order) is None
    # All that came since is counted with it.
    assert (early.total.units, early.total.failures) == (20, 20)


def test_there_is_enough_for_a_case_from_a_thousandfold_evidence_on() -> None:
    assert early_of(every(2, [1] * 5)).certain is None
    early = early_of(every(2, [1] * 6))
    assert early.certain == START + 10
    assert ln_evidence(5, 5) < math.log(CASE_EVIDENCE) <= ln_evidence(6, 6)


def test_it_lives_on_when_a_baseline_is_there_and_ends_when_the_failures_do() -> None:
    broken = every(2, [1] * 600)
    week = 7 * SLOTS_PER_DAY
    armed = judge_rates(broken, RateSettings(), RateState.start(START), START + week)
    assert armed.state.reference is not None
    assert armed.early is not None
    assert armed.early.known is None
    mended = every(2, [1] * 600 + [0] * 200)
    over = judge_rates(mended, RateSettings(), RateState.start(START), START + week)
    assert over.early is not None
    assert over.early.recovered == START + 2 * 599 + 1
    assert over.early.known is not None
    assert over.early.known + 1 - over.early.recovered >= 6 * HOUR
    # What is over is told in the look in which it ended, and not again.
    later = judge_rates(mended, RateSettings(), over.state, START + week + HOUR)
    assert later.early is None


def ends(seed: int, later: float) -> bool | None:
    """Whether it is said to be over within three weeks: of a unit every ten minutes three in ten fail in the
    first days, then so many. None: it was never told.
    """
    dice = np.random.default_rng(seed)
    failed = np.concatenate((dice.random(500) < 0.3, dice.random(2_500) < later)).astype(int)
    all_units = every(2, failed.tolist())
    soon = all_units.between(START, START + 900)
    told = bad_from_birth(
        soon.slots, soon.units.cumsum(), soon.failures.cumsum(), soon.units > 0, order=1, first=START
    )
    if told is None:
        return None
    return told.followed(all_units.between(told.since + 1, START + 6_000)).known is not None


def test_what_goes_on_failing_as_it_did_is_not_said_to_be_over() -> None:
    assert [ends(seed, later=0.3) for seed in range(20)].count(True) == 0
    mended = [ends(seed, later=0.1) for seed in range(20)]
    assert mended.count(False) == 0
    assert mended.count(True) >= 10


def test_silence_does_not_end_it() -> None:
    early = early_of(every(2, [1] * 10), until=START + 30 * SLOTS_PER_DAY)
    assert early.known is None


def test_people_who_saw_to_it_do_not_hear_of_it_again() -> None:
    state = judge_rates(
        every(2, [1] * 10), RateSettings(), RateState.start(START), START + 30
    ).state.cleared()
    later = judge_rates(every(2, [1] * 40), RateSettings(), state, START + 80)
    assert later.early is None


def test_a_look_cut_anywhere_says_the_same() -> None:
    dice = np.random.default_rng(5)
    tallies = every(3, [int(failed) for failed in dice.random(400) < 0.5])
    end = START + 1_200
    whole = judge_rates(tallies, RateSettings(), RateState.start(START), end).state
    assert whole.early is not None
    state = RateState.start(START)
    for until in range(START + 7, end, 37):
        state = judge_rates(tallies.between(state.needs_from, until), RateSettings(), state, until).state
    assert judge_rates(tallies.between(state.needs_from, end), RateSettings(), state, end).state == whole
