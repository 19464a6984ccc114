"""How many false alarms a tuning implies: what chance alone raises over the buckets of a detector.

Owns: `implied_alarms`. Whoever tunes a detector is told it, for the tuning in force or for one that is tried.
By the very arms that judge the buckets, so by their references, their traffic and their bars as they are: a
bucket that is still learning raises nothing, and one of little traffic less than its share of the budget,
because no bar stands for fewer units than `bars.SHORTEST_UNITS`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from svc.domain.detect.engine import bars
from svc.domain.detect.engine.bars import GRAIN
from svc.domain.detect.engine.drift_engine import DriftArms, DriftSettings, DriftState
from svc.domain.detect.engine.rate_engine import RateSettings, RateState, arms_of
from svc.domain.detect.engine.rate_track import Arm
from svc.domain.detect.engine.slots import SLOTS_PER_DAY
from svc.domain.detect.findings.bucket import BucketState


def implied_alarms(states: Iterable[BucketState], months: float, tuning: Mapping[str, float]) -> float:
    """Alarms a month over these buckets; improvements, which alarm nobody, are not among them.

    A shift that is found but lies below the floor is not told, so that of sizes it is no more than this.
    """
    rates, sizes = RateSettings.tuned(months, tuning), DriftSettings.tuned(months, tuning)
    return sum(
        _of_rate(state.rate, rates)
        if state.rate is not None
        else _of_size(state.drift, sizes)
        if state.drift is not None
        else 0.0
        for state in states
    )


def _of_rate(state: RateState, settings: RateSettings) -> float:
    if state.reference is None:
        return 0.0
    rises, _ = arms_of(state.reference, state.units_a_day, settings)
    return sum(_a_month(arm, state.units_a_day) for arm in rises if arm is not None)


def _of_size(state: DriftState, settings: DriftSettings) -> float:
    reference = state.reference
    if reference is None:
        return 0.0
    arms = DriftArms.of(reference, state.rows_a_day, settings)
    span = max(reference.end - reference.first, SLOTS_PER_DAY)
    windows_a_month = reference.windows * SLOTS_PER_DAY / span * bars.MONTH_DAYS
    location = windows_a_month / arms.up.windows_between(arms.up.bar_sigmas)
    return location + _a_month(arms.tail, state.rows_a_day)


def _a_month(arm: Arm, units_a_day: float) -> float:
    return units_a_day * bars.MONTH_DAYS / arm.units_between(arm.bar / GRAIN)
