"""What each attribute says of a change: whether its shares moved, whether that explains it, whether it holds.

Owns: `AttributeCheck`, `ValueRow` and `check_attributes`. `verdict` reads them. A unit whose attribute is not
known is left out of that attribute's figures only. Pure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from svc.domain.rca.cohort import (
    ATTRIBUTES,
    JOINED,
    LEAST_UNITS,
    TENANT,
    AttributeName,
    Claim,
    Cohort,
    Group,
    Mark,
    Unit,
    group_of,
)
from svc.domain.rca.statistics import (
    OddsRatio,
    benjamini_hochberg,
    g_test,
    normal_beyond,
    odds_ratio,
    total_variation,
)

#: Values of an attribute that are kept apart; a tenant-like attribute with more is left out.
VALUES: Final = 50
OTHERS: Final = "all others"
#: Units of a value on a side before its mean says anything.
STRATUM_UNITS: Final = 20
#: The shift stands inside a stratum that has this share of the whole shift, less twice its own noise.
STANDS_SHARE: Final = 0.5
#: Strata speak for an attribute when they hold this share of the units after.
STRATA_SHARE: Final = 0.6
#: The share of values reported to hold the failures that may be reported wrongly.
FALSE_DISCOVERY: Final = 0.05
LIFT: Final = 2.0
COVERAGE: Final = 0.3
#: Beyond this, moved shares are chance.
MOVED_P: Final = 0.001


@attrs.frozen
class ValueRow:
    """One value of an attribute: its units and means on both sides, the means None without units.

    `contribution` is the share of the whole change that came about inside the value. `odds` compares its
    units after the onset with all others of them, for rates; `stands` says that it does so beyond chance.
    """

    value: str
    before: int
    after: int
    share_before: float
    share_after: float
    mean_before: float | None
    mean_after: float | None
    failures_after: int
    contribution: float
    coverage: float = 0.0
    odds: OddsRatio | None = None
    p_value: float = 1.0
    stands: bool = False

    @property
    def lift(self) -> float:
        """How many times its share of the traffic its share of the failures is."""
        return self.coverage / self.share_after if self.share_after else 0.0

    @property
    def holds(self) -> bool:
        """Whether it holds far more of the failures than of the traffic, and enough of them."""
        return self.stands and self.lift >= LIFT and self.coverage >= COVERAGE


@attrs.frozen
class AttributeCheck:
    """What one attribute says. `known` is its units on both sides. `explained` is the share of the change
    that follows from the moved shares alone, None when it cannot be told; `everywhere` whether the change
    stands inside every value, None when too few values were there before. `mark` is the first sight of one
    of its values, close before the onset.
    """

    name: AttributeName
    known: tuple[int, int]
    rows: tuple[ValueRow, ...] = ()
    variation: float = 0.0
    p_value: float = 1.0
    explained: float | None = None
    everywhere: bool | None = None
    mark: Mark | None = None

    @property
    def group(self) -> Group:
        return group_of(self.name)

    @property
    def grown(self) -> frozenset[str]:
        """The values with a larger share than before."""
        return frozenset(row.value for row in self.rows if row.share_after > row.share_before)

    @property
    def usable(self) -> bool:
        """Whether it is known of enough units on both sides."""
        return min(self.known) >= LEAST_UNITS

    @property
    def moved(self) -> bool:
        """Whether its shares moved beyond chance."""
        return self.usable and self.p_value < MOVED_P


def check_attributes(
    claim: Claim, before: Cohort, after: Cohort, marks: Sequence[Mark]
) -> tuple[AttributeCheck, ...]:
    """Every attribute of the table, and the tenant-like ones that the units have, in order."""
    tenants = sorted(
        {
            name
            for unit in (*before.units, *after.units)
            for name in unit.attributes
            if name.startswith(TENANT)
        }
    )
    near_marks = [mark for mark in marks if claim.near(mark)]
    checks = [_check(name, claim, before.units, after.units, near_marks) for name in (*ATTRIBUTES, *tenants)]
    return _judged([check for check in checks if check is not None])


def _judged(checks: list[AttributeCheck]) -> tuple[AttributeCheck, ...]:
    """With `stands` after Benjamini and Hochberg over all values of all attributes."""
    rows = [row for check in checks for row in check.rows]
    stands = iter(benjamini_hochberg([row.p_value for row in rows], FALSE_DISCOVERY))
    return tuple(
        attrs.evolve(check, rows=tuple(attrs.evolve(row, stands=next(stands)) for row in check.rows))
        for check in checks
    )


def _check(
    name: AttributeName, claim: Claim, before: Sequence[Unit], after: Sequence[Unit], marks: Sequence[Mark]
) -> AttributeCheck | None:
    sides = _Sides.of(name, before, after)
    if sides is None:
        return None
    sample = (sides.n, sides.m)
    if min(sample) < LEAST_UNITS:
        return AttributeCheck(name, sample)
    counts = ({v: len(us) for v, us in side.items()} for side in (sides.before, sides.after))
    counts_before, counts_after = counts
    rows = sides.rows(claim.rate)
    return AttributeCheck(
        name,
        sample,
        rows,
        total_variation(counts_before, counts_after),
        g_test(counts_before, counts_after),
        sides.explained(),
        _everywhere(sides, rows),
        _mark(name, rows, marks),
    )


@attrs.frozen(eq=False)
class _Sides:
    """Units by value on both sides, those whose value is known."""

    before: Mapping[str, Sequence[float]]
    after: Mapping[str, Sequence[float]]
    n: int
    m: int

    @classmethod
    def of(cls, name: AttributeName, before: Iterable[Unit], after: Iterable[Unit]) -> _Sides | None:
        """None for a tenant-like attribute with more values than tell anything."""
        sides: list[dict[str, list[float]]] = []
        for units in (before, after):
            side: defaultdict[str, list[float]] = defaultdict(list)
            for unit in units:
                if (value := unit.attributes.get(name)) is not None:
                    side[value].append(unit.moved_value)
            sides.append(dict(side))
        values = sides[0].keys() | sides[1].keys()
        if len(values) > VALUES:
            if name.startswith(TENANT):
                return None
            size = {v: sum(len(side.get(v, ())) for side in sides) for v in values}
            frequent = set(sorted(values, key=lambda v: (-size[v], v))[: VALUES - 1])
            sides = [_gathered(side, frequent) for side in sides]
        return cls(sides[0], sides[1], *(sum(map(len, side.values())) for side in sides))

    @property
    def shift(self) -> float:
        """How far the mean moved."""
        return _mean_of(self.after.values()) - _mean_of(self.before.values())

    def explained(self) -> float | None:
        """The share of the shift that moved shares alone make, with the means as they were.

        A value without a past is taken out; what the shift loses by that is explained too.
        """
        shift = self.shift
        if not shift:
            return None
        shared = {v: values for v, values in self.after.items() if v in self.before}
        m = sum(map(len, shared.values()))
        if m < STRATUM_UNITS:
            return None
        usual = _mean_of(self.before.values())
        remainder = _mean_of(shared.values()) - usual
        mix = sum(len(values) / m * _mean_of([self.before[v]]) for v, values in shared.items()) - usual
        return (shift - remainder + mix) / shift

    def rows(self, rate: bool) -> tuple[ValueRow, ...]:
        """The values, the most frequent after the onset first."""
        shift, usual = self.shift, _mean_of(self.before.values())
        everything = [value for values in self.after.values() for value in values]
        failures = round(math.fsum(everything)) if rate else 0
        rows = []
        for value in sorted(
            self.before.keys() | self.after.keys(), key=lambda v: (-len(self.after.get(v, ())), v)
        ):
            old, new = self.before.get(value, ()), self.after.get(value, ())
            mean_old, mean_new = _mean_or_none(old), _mean_or_none(new)
            share = len(new) / self.m
            moved = 0.0 if mean_new is None else mean_new - (usual if mean_old is None else mean_old)
            failed = round(math.fsum(new)) if rate else 0
            odds = (
                odds_ratio(
                    failed, len(new) - failed, failures - failed, self.m - len(new) - failures + failed
                )
                if rate
                else None
            )
            rows.append(
                ValueRow(
                    value,
                    len(old),
                    len(new),
                    len(old) / self.n,
                    share,
                    mean_old,
                    mean_new,
                    failed,
                    share * moved / shift if shift else 0.0,
                    failed / failures if failures else 0.0,
                    odds,
                    odds.p_value if odds is not None else _apart(new, everything),
                )
            )
        return tuple(rows)


def _gathered(side: Mapping[str, list[float]], frequent: set[str]) -> dict[str, list[float]]:
    rare = [value for v, values in side.items() if v not in frequent for value in values]
    return {v: values for v, values in side.items() if v in frequent} | ({OTHERS: rare} if rare else {})


def _mean_of(groups: Iterable[Sequence[float]]) -> float:
    total, n = 0.0, 0
    for values in groups:
        total, n = total + math.fsum(values), n + len(values)
    return total / n if n else 0.0


def _mean_or_none(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)


def _apart(values: Sequence[float], everything: Sequence[float]) -> float:
    """How likely chance alone makes the mean of some differ so from that of the others, after Welch."""
    n, m = len(values), len(everything) - len(values)
    if n < 2 or m < 2:
        return 1.0
    total, own = math.fsum(everything), math.fsum(values)
    noise = _variance(values) / n + _variance(everything) / m
    return normal_beyond((own / n - (total - own) / m) / math.sqrt(noise)) if noise else 1.0


def _everywhere(sides: _Sides, rows: Iterable[ValueRow]) -> bool | None:
    shift = sides.shift
    strata = [row for row in rows if min(row.before, row.after) >= STRATUM_UNITS]
    if not shift or sum(row.share_after for row in strata) < STRATA_SHARE:
        return None
    for row in strata:
        old, new = sides.before[row.value], sides.after[row.value]
        moved = (_mean_of([new]) - _mean_of([old])) / shift
        noise = math.sqrt(_variance(old) / len(old) + _variance(new) / len(new)) / abs(shift)
        if moved < STANDS_SHARE - 2 * noise or moved <= 0:
            return False
    return True


def _mark(name: AttributeName, rows: Iterable[ValueRow], marks: Iterable[Mark]) -> Mark | None:
    """The last of the marks whose value has a larger share than before."""
    grown = {part for row in rows if row.share_after > row.share_before for part in row.value.split(JOINED)}
    own_marks = [mark for mark in marks if mark.attribute == name and mark.value in grown]
    return max(own_marks, key=lambda mark: mark.slot, default=None)
