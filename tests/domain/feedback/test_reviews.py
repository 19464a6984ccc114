"""What reviewers agree on: by how often they say the same, and how often chance alone would."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from svc.domain.feedback.reviews import MOST_COMPARED, Review, ReviewProgress, agreements, progress


def reviews(**answers: str) -> list[Review]:
    """Answers of each reviewer to the entries 0, 1, …: y, n, or - for none."""
    return [
        Review(str(entry), reviewer, said == "y")
        for reviewer, line in answers.items()
        for entry, said in enumerate(line)
        if said != "-"
    ]


def test_progress_counts_each_reviewer_alone_the_furthest_first() -> None:
    assert progress(reviews(bob="yn-", ada="nny")) == [
        ReviewProgress("ada", 1, 2),
        ReviewProgress("bob", 1, 1),
    ]


def test_agreement_is_over_what_both_answered_and_beside_what_chance_gives() -> None:
    (pair,) = agreements(reviews(ada="yyyynnnn--", bob="yyynnnny-y"))
    assert (pair.first, pair.second, pair.both, pair.same) == ("bob", "ada", 8, 6)
    assert (pair.share, pair.by_chance, pair.kappa) == (0.75, 0.5, 0.5)
    low, high = pair.interval
    assert math.isclose(low, 0.409, abs_tol=0.001)
    assert math.isclose(high, 0.929, abs_tol=0.001)


def test_who_always_says_the_same_single_answer_has_no_kappa() -> None:
    (pair,) = agreements(reviews(ada="yyy", bob="yyy"))
    assert (pair.share, pair.kappa) == (1.0, None)


def test_who_shares_no_entry_is_not_compared_nor_is_more_than_so_many() -> None:
    assert agreements(reviews(ada="yy--", bob="--yy")) == []
    many = reviews(**{f"r{number}": "y" * (20 - number) for number in range(MOST_COMPARED + 3)})
    compared = {name for pair in agreements(many) for name in (pair.first, pair.second)}
    assert compared == {f"r{number}" for number in range(MOST_COMPARED)}


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
@example([(True, True)] * 4)
def test_kappa_lies_below_one_and_is_one_for_the_same_answers(pairs: list[tuple[bool, bool]]) -> None:
    said = [
        Review(str(entry), who, yes)
        for entry, both in enumerate(pairs)
        for who, yes in zip("ab", both, strict=True)
    ]
    (pair,) = agreements(said)
    low, high = pair.interval
    assert low <= pair.share <= high
    if pair.kappa is not None:
        assert -1 - 1e-9 <= pair.kappa <= 1 + 1e-9
        assert (pair.same == pair.both) == math.isclose(pair.kappa, 1)
