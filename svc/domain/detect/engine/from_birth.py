"""Bad from birth: a rate of failures that is surely too high before there is a baseline to compare it with.

Owns: the e-process of the first units, the thresholds that keep its false alarms below `ALPHA` a project, and
`BadFromBirth`, an alarm from the telling to its recovery. The rate engine calls it while a subject learns and
follows what it told afterwards. Pure; it never says that something changed.

The evidence is `∫ p^f (1−p)^(n−f) dp` over the rates above `TOLERATED`, uniformly weighed, divided by the
likelihood of that rate. At any rate up to it the evidence is a supermartingale, so by Ville's
inequality the chance that it ever reaches 1/α is at most α, however often one looks.
"""

from __future__ import annotations

import math
from typing import Final

import attrs

from svc.domain.detect.engine import beta, change_point
from svc.domain.detect.engine.arrays import Flags, Ints
from svc.domain.detect.engine.change_point import Climb, climb, first_true
from svc.domain.detect.engine.rate_track import Proportion
from svc.domain.detect.engine.slots import SLOTS_PER_DAY
from svc.domain.detect.engine.tallies import RateTallies
from svc.domain.lazy_numpy import np

#: The share of failures up to which a tool may be bad without being reported before it has a baseline.
TOLERATED: Final = 0.2
#: The share that the way back looks for. Simulated 2026-11, 26 days of 150 units: with `TOLERATED`
#: itself a tool that went on failing in 30 % of them was said to be over in 137 of 139 runs; with half of it
#: in 6, and what is mended to 10 % is over after ten hours where it was six.
MENDED: Final = TOLERATED / 2
#: The chance that a project in which no rate is higher ever hears of one, over all subjects of a measure.
ALPHA: Final = 0.01
#: From so much evidence and so many units on there is a case without a baseline.
CASE_EVIDENCE: Final = 1_000.0
CASE_UNITS: Final = 5
#: The rule beside it, which is quicker in the middle: so many units, and surely so large a share.
UNITS: Final = 20
RATE: Final = 0.25


def ln_evidence(units: int, failures: int) -> float:
    """The logarithm of the evidence against every rate up to `TOLERATED`."""
    a, b = failures + 1.0, units - failures + 1.0
    above = 1 - beta.share_below(TOLERATED, a, b)
    if above < 1e-300:
        # The rest lies below what a float can tell from nothing: no evidence at all.
        return -math.inf
    likelihood = failures * math.log(TOLERATED) + (units - failures) * math.log1p(-TOLERATED)
    return beta.ln_beta(a, b) + math.log(above) - math.log1p(-TOLERATED) - likelihood


def ln_threshold(order: int) -> float:
    """What the evidence of the subject that appeared as number `order`, from 1 on, has to reach.

    The shares `ALPHA / (k (k + 1))` add up to `ALPHA`, however many subjects are still to come.
    """
    return math.log(order * (order + 1) / ALPHA)


def surely_high(units: int, failures: int) -> bool:
    """The rule from `UNITS` on: the lower bound of the rate lies above `RATE`."""
    if units < UNITS or failures <= RATE * units:
        return False
    return beta.share_below(RATE, failures + 0.5, units - failures + 0.5) < ALPHA


@attrs.frozen
class BadFromBirth:
    """A rate that was surely too high in its first units.

    `since` is the slot after whose end that was sure, `seen` the units until then and `a_day` their pace;
    `present` all units until now or the recovery. `certain` is the slot in which there was enough for a
    case. `recovered` is when it came down to what is mended, `known` when that was sure.
    """

    since: int
    seen: Proportion
    present: Proportion | None = None
    a_day: float = 0.0
    certain: int | None = None
    back: Climb = attrs.field(factory=Climb)
    recovered: int | None = None
    known: int | None = None

    @property
    def total(self) -> Proportion:
        """All units until now or the recovery."""
        return self.present or self.seen

    def closed(self, slot: int) -> BadFromBirth:
        """After people saw to it, before this slot: it is over, and does not come again."""
        if self.known is not None:
            return self
        return attrs.evolve(self, recovered=slot, known=slot - 1)

    def followed(self, rows: RateTallies) -> BadFromBirth:
        """With the units of later slots, until it has recovered: fifteen traces or so without a failure over
        six hours at least. Silence is no recovery.
        """
        slots = rows.slots
        if self.known is not None or not len(slots):
            return self
        seen = self.seen
        way_back = change_point.rate_return(MENDED, 1.0, seen.units, seen.failures, self.a_day, 1.0)
        path = climb(self.back.height, way_back.steps(rows.units, rows.failures))
        begun = np.maximum.accumulate(np.maximum(np.where(path == 0, slots + 1, 0), self.back.since))
        end = first_true((path >= way_back.bar) & (slots + 1 - begun >= change_point.RETURNED_SLOTS))
        count = min(end + 1, len(slots))
        units = self.total.units + np.cumsum(rows.units[:count])
        failures = self.total.failures + np.cumsum(rows.failures[:count])
        certain = self.certain
        if certain is None:
            certain = _certain_from(slots[:count], units, failures)
        return attrs.evolve(
            self,
            present=Proportion(int(units[-1]), int(failures[-1])),
            certain=certain,
            back=Climb(int(path[count - 1]), int(begun[count - 1])),
            recovered=int(begun[end]) if end < len(slots) else None,
            known=int(slots[end]) if end < len(slots) else None,
        )


def bad_from_birth(
    slots: Ints, units: Ints, failures: Ints, eligible: Flags, order: int, first: int
) -> BadFromBirth | None:
    """The first eligible slot in which units and failures, added up until then from slot `first` on, are
    surely bad; None while they are not.
    """
    threshold = ln_threshold(order)
    for i in np.flatnonzero(eligible & (failures > TOLERATED * units)):
        n, f = int(units[i]), int(failures[i])
        if ln_evidence(n, f) >= threshold or surely_high(n, f):
            slot = int(slots[i])
            return BadFromBirth(
                since=slot,
                seen=Proportion(n, f),
                a_day=n * SLOTS_PER_DAY / max(slot + 1 - first, 1),
                certain=_certain_from(slots[i : i + 1], units[i : i + 1], failures[i : i + 1]),
                back=Climb(0, slot + 1),
            )
    return None


def _certain_from(slots: Ints, units: Ints, failures: Ints) -> int | None:
    """The first slot with enough for a case."""
    for i in np.flatnonzero((units >= CASE_UNITS) & (failures > TOLERATED * units)):
        if ln_evidence(int(units[i]), int(failures[i])) >= math.log(CASE_EVIDENCE):
            return int(slots[i])
    return None
