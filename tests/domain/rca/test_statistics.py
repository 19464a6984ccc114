"""The tests of a root-cause analysis against known values, and laws that hold for any counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.rca import figures
from svc.domain.rca.attributes import BucketOf, attributes_of_buckets, marks_of, size_word, turn_word
from svc.domain.rca.cohort import Cohort, Unit
from svc.domain.rca.parts import cost_factors
from svc.domain.rca.shares import check_attributes
from svc.domain.rca.statistics import (
    benjamini_hochberg,
    chi2_above,
    fisher,
    g_test,
    normal_beyond,
    odds_ratio,
    total_variation,
    wilson,
)
from tests.domain.rca.cohorts import claim

COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 500), max_size=6)


@pytest.mark.parametrize(
    ("x", "freedom", "share"),
    [(3.841459, 1, 0.05), (6.634897, 1, 0.01), (11.0705, 5, 0.05), (67.5048, 50, 0.05), (0.5, 50, 1.0)],
)
def test_the_chi_square_tail_is_that_of_the_tables(x: float, freedom: int, share: float) -> None:
    assert chi2_above(x, freedom) == pytest.approx(share, abs=2e-6)


def test_intervals_odds_and_tails_are_those_of_the_books() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
    assert normal_beyond(1.959964) == pytest.approx(0.05, abs=1e-6)
    found = odds_ratio(10, 20, 5, 40)
    assert found.ratio == pytest.approx(10.5 * 40.5 / (20.5 * 5.5))
    assert found.low < 1.2 < found.ratio < 12 < found.high
    # Fisher's own: a lady tastes which of eight cups had the milk first, and is right in all and in six.
    assert fisher(4, 0, 0, 4) == pytest.approx(2 / 70)
    assert fisher(3, 1, 1, 3) == pytest.approx(34 / 70)
    assert fisher(1, 9, 11, 3) == pytest.approx(0.002759456)
    assert odds_ratio(27, 254, 0, 304).p_value == pytest.approx(1.27667e-9, rel=1e-4)
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.5], 0.05) == [True, False, False, False]
    assert benjamini_hochberg([0.01, 0.02, 0.03, 0.5], 0.05) == [True, True, True, False]
    assert benjamini_hochberg([], 0.05) == []


@given(COUNTS, COUNTS)
def test_shares_move_between_nothing_and_all_and_chance_is_a_probability(
    before: dict[str, int], after: dict[str, int]
) -> None:
    assert 0 <= total_variation(before, after) <= 1 + 1e-12
    assert 0 <= g_test(before, after) <= 1
    assert total_variation(before, after) == pytest.approx(total_variation(after, before))
    assert total_variation(before, before) == 0
    assert g_test(before, before) == pytest.approx(1)


@given(*[st.integers(0, 40) | st.integers(0, 1_000)] * 4)
def test_an_exact_test_adds_up_every_table_that_is_no_likelier(a: int, b: int, c: int, d: int) -> None:
    having, failed, every = a + b, a + c, a + b + c + d

    def weight(k: int) -> int:
        return math.comb(failed, k) * math.comb(every - failed, having - k)

    weights = [weight(k) for k in range(max(0, having + failed - every), min(having, failed) + 1)]
    expected = sum(one for one in weights if one * 10**7 <= weight(a) * (10**7 + 1)) / sum(weights)
    assert fisher(a, b, c, d) == pytest.approx(expected, rel=1e-8)


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_a_proportion_lies_in_its_interval(failures: int, others: int) -> None:
    low, high = wilson(failures, failures + others)
    if failures + others:
        assert 0 <= low <= failures / (failures + others) + 1e-12
        assert failures / (failures + others) - 1e-12 <= high <= 1


def _unit(number: int, cost: float, calls: int, tokens: int, cached: int) -> Unit:
    return Unit(
        number.to_bytes(16, "big"), 0, size=cost, cost=cost, calls=calls, tokens=tokens, cached_tokens=cached
    )


_UNITS = st.lists(
    st.builds(
        _unit,
        st.integers(1, 2**30),
        st.floats(1e-5, 10),
        st.integers(1, 9),
        st.integers(10, 10**6),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=20,
)


@given(_UNITS, _UNITS)
def test_the_parts_of_a_cost_add_up_to_its_change(before: list[Unit], after: list[Unit]) -> None:
    sides = [Cohort(tuple(units), 0, 1, len(units)) for units in (before, after)]
    factors = cost_factors(*sides)
    costs = [math.fsum(u.cost or 0 for u in side.units) / len(side.units) for side in sides]
    assert math.prod(f.before for f in factors) == pytest.approx(costs[0])
    assert math.prod(f.after for f in factors) == pytest.approx(costs[1])
    assert sum(f.dollars for f in factors) == pytest.approx(costs[1] - costs[0], abs=1e-9)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=60, max_size=200), st.data())
def test_where_every_value_behaves_as_before_moved_shares_explain_it_all(
    seen: list[tuple[str, bool]], data: st.DataObject
) -> None:
    # The later side repeats units of the earlier one: values behave alike, their shares differ.
    means = {"a": False, "b": True, "c": False}
    before = [Unit(bytes([n]) * 16, 0, means[v], attributes={"user": v}) for n, (v, _) in enumerate(seen)]
    picks = data.draw(st.lists(st.sampled_from(before), min_size=60, max_size=120))
    sides = [Cohort(tuple(units), 0, 1, len(units)) for units in (before, picks)]
    (check,) = [c for c in check_attributes(claim(), *sides, ()) if c.name == "user"]
    if sides[1].mean != sides[0].mean:
        assert check.explained == pytest.approx(1)
    else:
        assert check.explained is None
    assert sum(row.share_before for row in check.rows) == pytest.approx(1)
    assert sum(row.share_after for row in check.rows) == pytest.approx(1)


def test_a_value_of_a_client_stands_in_backticks_that_it_cannot_leave() -> None:
    assert figures.value("a`b\nc") == "`a'b c`"


def test_buckets_say_what_a_trace_was_and_the_first_of_a_call_site_is_no_mark() -> None:
    old: BucketOf = ("answered_model", "site:a", '["m","m-1"]')
    new: BucketOf = ("answered_model", "site:a", '["m","m-2"]')
    release: BucketOf = ("seen_release", "site:a", "1.0")
    other: BucketOf = ("seen_release", "site:a", '["other"]')
    cut: BucketOf = ("answered_model", "site:a", '["m","m-…')
    assert attributes_of_buckets([old, new, release, other, cut]) == {
        "requested_model": "m",
        "answered_model": "m-1 + m-2",
        "release": "1.0",
    }
    marks = marks_of({old: 100, new: 900, release: 100, other: 500})
    assert [(m.attribute, m.value, m.call_site_id, m.slot) for m in marks] == [
        ("answered_model", "m-2", "a", 900)
    ]


def test_turns_and_sizes_are_few_words() -> None:
    assert len({turn_word(n) for n in range(1, 100)}) == 5
    assert len({size_word(n) for n in range(0, 50_000, 100)}) == 5
