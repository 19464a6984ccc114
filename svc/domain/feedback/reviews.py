"""What several people who review the same set agree on. Pure; called by the page of a set.

Each reviewer's answers stay their own: nothing is averaged, no answer outvotes another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations

import attrs

from svc.domain.quantities import score
from svc.domain.rca.statistics import wilson

#: Reviewers who are compared with one another, those with most answers first.
MOST_COMPARED = 5


@attrs.frozen
class Review:
    """One reviewer's answer to one entry of a set: whether it was helpful."""

    entry: str
    reviewer: str
    yes: bool


@attrs.frozen
class ReviewProgress:
    """How far a reviewer is."""

    reviewer: str
    yes: int
    no: int

    @property
    def answered(self) -> int:
        """Entries with an answer."""
        return self.yes + self.no


@attrs.frozen
class Agreement:
    """Two reviewers over the entries that both answered: to how many they gave the same answer.

    `by_chance` is the share that they would agree on if each gave as many answers of yes, blindly.
    """

    first: str
    second: str
    both: int
    same: int
    by_chance: float

    @property
    def share(self) -> float:
        """Of the entries that both answered, those with the same answer."""
        return self.same / self.both

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share."""
        return wilson(self.same, self.both)

    @property
    def kappa_text(self) -> str:
        """Cohen's kappa as it is written."""
        return "" if self.kappa is None else score(round(self.kappa, 2))

    @property
    def kappa(self) -> float | None:
        """Cohen's: 1 for always the same, 0 for as often as by chance; None where chance always agrees."""
        if self.by_chance >= 1:
            return None
        return (self.share - self.by_chance) / (1 - self.by_chance)


def progress(reviews: Iterable[Review]) -> list[ReviewProgress]:
    """How far each reviewer is, those with most answers first."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for review in reviews:
        counts[review.reviewer][0 if review.yes else 1] += 1
    rows = [ReviewProgress(reviewer, yes, no) for reviewer, (yes, no) in counts.items()]
    return sorted(rows, key=lambda row: (-row.answered, row.reviewer))


def agreements(reviews: Sequence[Review]) -> list[Agreement]:
    """Every two of the reviewers with most answers who answered the same entries."""
    answers: dict[str, dict[str, bool]] = defaultdict(dict)
    for review in reviews:
        answers[review.reviewer][review.entry] = review.yes
    compared = [row.reviewer for row in progress(reviews)[:MOST_COMPARED]]
    pairs = (_agreement(first, second, answers) for first, second in combinations(compared, 2))
    return [pair for pair in pairs if pair is not None]


def _agreement(first: str, second: str, answers: dict[str, dict[str, bool]]) -> Agreement | None:
    shared = answers[first].keys() & answers[second].keys()
    if not shared:
        return None
    first_yes = sum(answers[first][entry] for entry in shared) / len(shared)
    second_yes = sum(answers[second][entry] for entry in shared) / len(shared)
    by_chance = first_yes * second_yes + (1 - first_yes) * (1 - second_yes)
    same = sum(answers[first][entry] == answers[second][entry] for entry in shared)
    return Agreement(first, second, len(shared), same, by_chance)
