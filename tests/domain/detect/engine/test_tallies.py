"""Laws of slots, tallies and histograms: sums that forget their order, subtraction that undoes addition."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.detect.engine import slots
from svc.domain.detect.engine.axis import BINS, LN_RATIO, UNIT_DOLLARS, UNIT_MS, bin_of
from svc.domain.detect.engine.histogram import Histogram, bins_of, centres, log_distance, winsorised
from svc.domain.detect.engine.tallies import RateTallies, SizeTallies, blocks_held

ROWS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 9), st.integers(0, 9)).map(
        lambda row: (row[0], max(row[1], row[2]), row[2])
    ),
    max_size=40,
)
VALUES = st.lists(st.floats(0, 1e8), max_size=60)
SIZES = st.lists(st.tuples(st.integers(0, 20), VALUES.filter(bool)), max_size=8)


def same(one: RateTallies | SizeTallies, other: RateTallies | SizeTallies) -> bool:
    names = ("slots", "units", "failures") if isinstance(one, RateTallies) else ("slots", "bins", "counts")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def histograms(rows: list[tuple[int, list[float]]]) -> list[tuple[int, Histogram]]:
    return [(slot, Histogram.of_values(values, UNIT_MS)) for slot, values in rows]


@given(VALUES)
def test_one_value_lies_in_the_bin_that_many_lie_in(values: list[float]) -> None:
    borders = [math.exp(n * LN_RATIO) for n in range(BINS + 2)]
    for unit in (UNIT_MS, UNIT_DOLLARS):
        several = [*values, *(unit * border for border in borders)]
        assert [bin_of(value, unit) for value in several] == bins_of(np.array(several), unit).tolist()


@pytest.mark.parametrize("unit", [UNIT_MS, UNIT_DOLLARS])
def test_any_value_lies_in_a_bin(unit: float) -> None:
    assert [bin_of(value, unit) for value in (-1e308, 0.0, 1e308)] == [0, 0, BINS - 1]


# --- slots -----------------------------------------------------------------------------------------------


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_a_slot_knows_its_hour_its_weekday_and_its_stratum(moment: datetime) -> None:
    slot = slots.slot_at(moment.timestamp())
    assert 0 <= moment.timestamp() - slots.slot_start_s(slot) < slots.SLOT_S
    assert slots.stratum(slot) == moment.hour // 6 + 4 * (moment.weekday() >= 5)
    assert slots.block_of_week(slot) == moment.weekday() * 4 + moment.hour // 6
    assert (
        slots.slot_start_s(slots.day_start(slot)) == datetime(*moment.timetuple()[:3], tzinfo=UTC).timestamp()
    )


def test_nothing_is_judged_within_ten_minutes_of_the_newest_event() -> None:
    assert slots.watermark(3_599) == 9
    assert slots.watermark(3_600) == 10


def test_a_week_holds_every_block() -> None:
    week = np.arange(7 * slots.SLOTS_PER_DAY)
    assert blocks_held(week) == 2**slots.BLOCKS - 1
    assert blocks_held(week[:0]) == 0


# --- tallies ---------------------------------------------------------------------------------------------


@given(ROWS, st.randoms(use_true_random=False))
def test_rates_forget_the_order_they_were_folded_in(rows: list[tuple[int, int, int]], chance: object) -> None:
    shuffled = list(rows)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    folded = RateTallies.of([])
    for row in shuffled:
        folded = folded.add(RateTallies.of([row]))
    assert same(folded, RateTallies.of(rows))


@given(ROWS, ROWS)
def test_subtracting_rates_undoes_adding_them(
    one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]
) -> None:
    a, b = RateTallies.of(one), RateTallies.of(other)
    assert same(a.add(b).subtract(b), a)


@given(SIZES, SIZES)
def test_subtracting_sizes_undoes_adding_them(
    one: list[tuple[int, list[float]]], other: list[tuple[int, list[float]]]
) -> None:
    a, b = SizeTallies.of(histograms(one)), SizeTallies.of(histograms(other))
    assert same(a.add(b).subtract(b), a)
    assert same(a.add(b), b.add(a))


def test_what_was_never_added_cannot_be_subtracted() -> None:
    with pytest.raises(ValueError, match="failures"):
        RateTallies.of([(1, 2, 1)]).subtract(RateTallies.of([(1, 3, 0)]))
    with pytest.raises(ValueError, match="above zero"):
        SizeTallies.of(histograms([(1, [5.0])])).subtract(SizeTallies.of(histograms([(1, [50.0])])))
    with pytest.raises(ValueError, match="ascend"):
        Histogram((1,), (1,)).subtract(Histogram((2,), (1,)))


def test_a_slice_of_tallies_is_half_open() -> None:
    tallies = RateTallies.of([(1, 5, 1), (2, 5, 2), (3, 5, 3)])
    assert tallies.between(1, 3).failures.tolist() == [1, 2]


def test_tails_count_rows_from_the_threshold_of_their_slot_on() -> None:
    tallies = SizeTallies.of([(1, Histogram((3, 5), (2, 4))), (2, Histogram((5,), (7,)))])
    tails = tallies.tails(np.array([5, 5, 6]))
    assert (tails.units.tolist(), tails.failures.tolist()) == ([6, 7], [4, 0])


# --- histograms ------------------------------------------------------------------------------------------


@given(VALUES, VALUES)
def test_merging_histograms_is_the_histogram_of_all(one: list[float], other: list[float]) -> None:
    a, b = Histogram.of_values(one, UNIT_MS), Histogram.of_values(other, UNIT_MS)
    assert a.merge(b) == b.merge(a) == Histogram.of_values(one + other, UNIT_MS)
    assert a.merge(b).subtract(b) == a
    assert a.total == len(one)


@given(st.lists(st.floats(UNIT_DOLLARS, 50), min_size=1, max_size=60), st.floats(0, 1))
def test_a_quantile_lies_within_a_bin_of_the_value_of_that_rank(values: list[float], q: float) -> None:
    estimate = Histogram.of_values(values, UNIT_DOLLARS).quantile(q, UNIT_DOLLARS)
    ranked = sorted(values)
    near = [
        ranked[max(math.ceil(q * len(values)) - 1, 0)],
        ranked[min(int(q * len(values)), len(values) - 1)],
    ]
    assert min(near) / 1.06 <= estimate <= max(near) * 1.06


def test_an_empty_histogram_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no rows"):
        Histogram().quantile(0.5, UNIT_MS)


def test_the_axis_reaches_from_a_millisecond_to_over_an_hour_and_takes_in_what_lies_beyond() -> None:
    assert bins_of(np.array([0.0, 1.0, 1.05, 1e9]), UNIT_MS).tolist() == [0, 0, 1, BINS - 1]
    assert 1.05**BINS / 60_000 > 60
    assert 1.05**BINS * UNIT_DOLLARS > 50


@given(VALUES, st.floats(1, 1e6))
def test_a_tail_counts_the_bins_from_its_value_on(values: list[float], least: float) -> None:
    counted = Histogram.of_values(values, UNIT_MS).at_least(least, UNIT_MS)
    reached = [max(value, UNIT_MS) for value in values]
    assert sum(v >= least * 1.05 for v in reached) <= counted <= sum(v >= least / 1.0501 for v in reached)


def test_the_distance_on_the_log_axis_is_the_shift() -> None:
    one = np.zeros(BINS)
    one[100:120] = 3
    assert log_distance(one, np.roll(one, 7)) == pytest.approx(7 * LN_RATIO)
    assert log_distance(one, one) == 0
    assert log_distance(one, np.zeros(BINS)) == 0


def test_a_few_wild_rows_do_not_move_the_winsorised_mean() -> None:
    random = np.random.default_rng(1)
    logs = random.normal(7, 0.8, 5_000)
    rows = np.bincount(bins_of(np.exp(logs), UNIT_MS), minlength=BINS).astype(float)
    n, mean, variance = winsorised(rows[None, :])
    assert (n[0], mean[0], variance[0]) == (5_000, pytest.approx(7, abs=0.03), pytest.approx(0.64, rel=0.06))
    rows[BINS - 1] += 20
    assert np.average(centres(), weights=rows) > mean[0] + 0.03
    assert winsorised(rows[None, :])[1][0] == pytest.approx(mean[0], abs=0.015)
    assert winsorised(np.zeros((1, BINS)))[1].tolist() == [0]
