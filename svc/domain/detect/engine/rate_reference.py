"""What is usual for a rate: gathered from the first units, refined while quiet, then stored.

Owns: `Gathered` (sums of a baseline), `RateReference` made of them, when there is enough of it, and the run
that people declare expected. The rate engine calls it, and whoever absorbs a case. Never moves a sealed
reference: after that only people do.
"""

from __future__ import annotations

from typing import Final

import attrs

from svc.domain.detect.engine import bars, beta
from svc.domain.detect.engine.arrays import Flags, Ints
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, SLOTS_PER_HOUR
from svc.domain.detect.engine.tallies import RateTallies, blocks_held
from svc.domain.lazy_numpy import np

#: Enough to judge by: either of (units, slots) …
ARMED_AT: Final = ((200, 7 * SLOTS_PER_DAY), (500, SLOTS_PER_DAY))
#: … and enough to stop refining: either of these. So many units never end it before a week is whole: a busy
#: bucket would be held to the one day it began on.
SEALED_SLOTS: Final = 21 * SLOTS_PER_DAY
SEALED_AT: Final = ((5_000, 7 * SLOTS_PER_DAY), (0, SEALED_SLOTS))
#: A run that people declare expected takes this many units to become the reference.
EXPECTED_UNITS: Final = 500
#: The reference rate is this upper bound of what the baseline allows (measured: detectors too eager at the
#: mean, too slow at 90 %); arms that look for fewer failures take the lower bound.
BOUND: Final = 0.8


@attrs.frozen
class Spread:
    """Sums over the hours or days of a baseline, from which their scatter about any rate follows exactly."""

    units_squared: int = 0
    units_failures: int = 0
    failures_squared: int = 0

    def add(self, other: Spread) -> Spread:
        return Spread(
            self.units_squared + other.units_squared,
            self.units_failures + other.units_failures,
            self.failures_squared + other.failures_squared,
        )

    @classmethod
    def of(cls, groups: Ints, units: Ints, failures: Ints) -> Spread:
        """Of units and failures added up by group; groups ascend."""
        if not len(groups):
            return cls()
        starts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
        n, f = np.add.reduceat(units, starts), np.add.reduceat(failures, starts)
        return cls(int(n @ n), int(n @ f), int(f @ f))

    def over_binomial(self, units: int, failures: int) -> float:
        """Σ(F − Np)² over what chance would make of it, p the rate of the whole; 1 without a failure."""
        if not 0 < failures < units:
            return 1.0
        p = failures / units
        squares = self.failures_squared - 2 * p * self.units_failures + p * p * self.units_squared
        return squares / (units * p * (1 - p))


@attrs.frozen
class Gathered:
    """Sums of a baseline. `first` and `end` bound its slots; `blocks` are those of the week, as bits."""

    units: int = 0
    failures: int = 0
    first: int | None = None
    end: int = 0
    blocks: int = 0
    hours: Spread = attrs.field(factory=Spread)
    days: Spread = attrs.field(factory=Spread)

    @classmethod
    def of(cls, rows: RateTallies) -> Gathered:
        """Of whole UTC days, or of the one that is under way."""
        if not len(rows.slots):
            return cls()
        return cls(
            units=int(rows.units.sum()),
            failures=int(rows.failures.sum()),
            first=int(rows.slots[0]),
            end=int(rows.slots[-1]) + 1,
            blocks=blocks_held(rows.slots),
            hours=Spread.of(rows.slots // SLOTS_PER_HOUR, rows.units, rows.failures),
            days=Spread.of(rows.slots // SLOTS_PER_DAY, rows.units, rows.failures),
        )

    def add(self, other: Gathered) -> Gathered:
        """Both together, of different days."""
        firsts = [first for first in (self.first, other.first) if first is not None]
        return Gathered(
            self.units + other.units,
            self.failures + other.failures,
            min(firsts, default=None),
            max(self.end, other.end),
            self.blocks | other.blocks,
            self.hours.add(other.hours),
            self.days.add(other.days),
        )


@attrs.frozen
class RateReference:
    """What is usual. `p0` is the upper bound that alarms are judged by, `p0_low` the lower one; `phi` is how
    many times the failures scatter more than chance; `[first, end)` are its slots. A sealed one never moves.
    """

    units: int
    failures: int
    p0: float
    p0_low: float
    phi: float
    first: int
    end: int
    blocks: int
    sealed: bool

    @property
    def rate(self) -> float:
        """The share of failures that was measured."""
        return self.failures / self.units

    @property
    def units_a_day(self) -> float:
        """The traffic of the baseline, over a day at least."""
        return self.units * SLOTS_PER_DAY / max(self.end - self.first, SLOTS_PER_DAY)

    def before(self, onset: int, changed: RateTallies) -> RateReference:
        """Without what it had taken in since an onset that was found later; `changed` are the rows since.

        What is told of it then stands beside what changed, and no failure is in both. What alarms are judged
        by stays.
        """
        taken = changed.between(onset, self.end)
        units = self.units - int(taken.units.sum())
        failures = self.failures - int(taken.failures.sum())
        if not len(taken.slots) or onset <= self.first or not 0 <= failures <= units or not units:
            return self
        return attrs.evolve(self, units=units, failures=failures, end=onset)


def armed_from(units: Ints, slots: Ints, first: int) -> Flags:
    """Whether a baseline from `first` is enough after each slot, given the units it holds by then."""
    spans = slots + 1 - first
    enough: Flags = np.zeros(len(slots), np.bool_)
    for least, span in ARMED_AT:
        enough |= (units >= least) & (spans >= span)
    return enough


def reference_of(gathered: Gathered, sealed: bool = False) -> RateReference:
    """The reference that a baseline makes; one that is long enough is sealed. Raises `ValueError` of none.

    The over-dispersion is pooled, Σ(F − Np)² / Σ Np(1 − p), rather than a mean of ratios: hours of a unit or
    two then cannot outweigh the busy ones, and whole sums keep it exact.
    """
    if gathered.first is None:
        raise ValueError("a reference needs a baseline")
    n, f = gathered.units, gathered.failures
    long = any(n >= least and gathered.end - gathered.first >= span for least, span in SEALED_AT)
    return RateReference(
        units=n,
        failures=f,
        p0=bars.on_grid(beta.quantile(BOUND, f + 0.5, n - f + 0.5)),
        p0_low=bars.on_grid(beta.quantile(1 - BOUND, f + 0.5, n - f + 0.5)),
        phi=max(1.0, gathered.hours.over_binomial(n, f), gathered.days.over_binomial(n, f)),
        first=gathered.first,
        end=gathered.end,
        blocks=gathered.blocks,
        sealed=sealed or long,
    )


def expected_reference(run: RateTallies) -> RateReference | None:
    """The sealed reference that a run declared expected makes, or None as long as it has too few units."""
    gathered = Gathered.of(run)
    return reference_of(gathered, sealed=True) if gathered.units >= EXPECTED_UNITS else None
