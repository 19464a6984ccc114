"""When a change is over, and what that makes of its case.

Owns: the reverse CUSUM's steps for rates and locations, how high and how long it must climb, and the outcome
of a case whose causes recover, return or grow worse. The engines call the first half, whoever keeps cases the
second. Never takes silence for recovery: without traffic nothing climbs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal

import attrs
import numpy as np

from protocol.detection import ESCALATES_BY, REOPENS_WITHIN
from svc.domain.detect.engine import beta
from svc.domain.detect.engine.arrays import Floats, Ints
from svc.domain.detect.engine.bars import GRAIN
from svc.domain.detect.engine.slots import SLOT_S, SLOTS_PER_WINDOW

#: The old state must be a hundred times likelier than the present one …
RETURNED: Final = round(math.log(100) * GRAIN)
#: … and have been so for six hours.
RETURNED_SLOTS: Final = SLOTS_PER_WINDOW
#: A rate that lasts is taken for a recovery once in so many days of its traffic; by a likelihood of a hundred
#: alone it would be every 5,000 units where it has doubled. Measured 2026-11, 40 buckets of 1,000 calls a day
#: at 4 % that rise to 8 % for ten days: 41 false ends by a hundred alone, 6 with this. The true end is known
#: after 10.8 hours in place of 5.9, of 75 calls a day at 30 % after 22 in place of 15.
LASTING_DAYS: Final = 60.0
#: Failures that come in clumps leave gaps: over-dispersion widens that bar too, but by no more than this.
WIDEST: Final = 4.0
#: The same cause within this time is the same case.
REOPENED_SLOTS: Final = REOPENS_WITHIN // timedelta(seconds=SLOT_S)


@attrs.frozen
class Return:
    """What a failure and a success add, in grains, when the present rate is doubted in favour of p0, and how
    high they must climb for a recovery.
    """

    failure: int
    success: int
    bar: int = RETURNED

    def steps(self, units: Ints, failures: Ints) -> Ints:
        """What each slot adds, shape (n,)."""
        return failures * self.failure + (units - failures) * self.success


def rate_return(p0: float, p1: float, units: int, failures: int, units_a_day: float, phi: float) -> Return:
    """The way back to p0 from a rate measured as failures of units, which lies beyond p1.

    What stands for it lies half way, on a log axis, between p1 and the bound of that rate nearer to p0: an
    alarm fires on a run of bad luck, so what was measured by then is too far out. Measured 2026-11, 75 calls
    a day of which 30 % fail: by the bound itself a dozen calls without a failure, which come every other
    week, were taken for a recovery; half way it takes forty.
    """
    a, b = failures + 0.5, units - failures + 0.5
    if p1 > p0:
        # The arm for outages looks for half of all calls: a third that fails is no recovery either.
        p1 = min(p1, max(2 * p0, p0 + 0.005))
    bound = max(beta.quantile(0.2, a, b), p0) if p1 > p0 else min(beta.quantile(0.8, a, b), p0)
    present = min(max(math.sqrt(bound * p1), 1e-6), 0.99)
    failure, success = math.log(p0 / present), math.log((1 - p0) / (1 - present))
    # Wald: a walk that falls by so much a unit climbs to h once in e^h over that many units.
    fall = -(present * failure + (1 - present) * success)
    lasting = math.log1p(LASTING_DAYS * units_a_day * max(fall, 0.0)) * GRAIN
    return Return(
        failure=round(failure * GRAIN),
        success=round(success * GRAIN),
        bar=round(max(lasting, RETURNED) * min(phi, WIDEST)),
    )


def location_return(shift: float, residuals: Floats, variances: Floats) -> Ints:
    """What each window adds, in grains, when a shift is doubted in favour of none. Shapes (n,)."""
    steps: Ints = np.rint(shift / variances * (shift / 2 - residuals) * GRAIN).astype(np.int64)
    return steps


def recovered(causes_recovered: Sequence[bool]) -> bool:
    """Whether a case is over: every one of its causes is. A case without causes never is."""
    return bool(causes_recovered) and all(causes_recovered)


def returned(resolved_at: int, last_onset: int, onset: int) -> Literal["same", "reopened", "new"]:
    """What a firing of a known key means for the case that was resolved, all as slots.

    Within seven days of its resolution a new onset reopens it; the old onset is the old news; later it is
    a new case.
    """
    if onset <= last_onset:
        return "same"
    return "reopened" if onset - resolved_at <= REOPENED_SLOTS else "new"


def escalated(last_severity: float, severity: float) -> bool:
    """Whether the severity rose enough over the one last reported to be reported again."""
    return severity - last_severity >= ESCALATES_BY - 1e-9
