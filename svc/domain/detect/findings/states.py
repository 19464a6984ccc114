"""What a bucket says of itself: learning, armed, in alarm, stale, or quiet for a reason.

Owns: `BucketView` (what the states of both engines have in common), how it is taken of either, and `report`.
Whoever shows buckets calls it after a look. Never leaves a silence without a reason.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import attrs

from svc.domain.detect.engine.drift_engine import DriftArms, DriftSettings, DriftState
from svc.domain.detect.engine.drift_reference import ARMED_ROWS, ARMED_SLOTS
from svc.domain.detect.engine.rate_engine import RateSettings, RateState, arms_of
from svc.domain.detect.engine.rate_reference import ARMED_AT
from svc.domain.detect.engine.rate_track import Arm
from svc.domain.detect.engine.slots import SLOTS_PER_DAY

StateName = Literal["learning", "armed", "alarm", "stale", "quiet"]
Reason = Literal[
    "no_traffic",
    "below_minimum",
    "within_bar",
    "below_effect_floor",
    "no_schema_and_not_json",
    "unpriced",
    "encoder_missing",
    "muted",
    "by_agent",
]
#: Reasons that the engines cannot know.
Hindrance = Literal["no_schema_and_not_json", "unpriced", "encoder_missing", "by_agent"]

#: Without traffic for the longer of these a bucket is stale.
STALE_SLOTS: Final = 7 * SLOTS_PER_DAY
STALE_GAPS: Final = 10
#: A bucket that would learn for longer than tallies of five minutes are kept is below the minimum.
LONGEST_LEARNING_DAYS: Final = 35.0
#: The smallest change that would have been seen is that which reaches the bar within so many days.
SEEN_WITHIN_DAYS: Final = 7.0


@attrs.frozen
class BucketView:
    """What `report` needs of a bucket. `needs` are the routes to a reference as (units, slots), any of which
    will do; `ratio` is S/h of its highest arm; `smallest` the smallest change it would have seen within a
    week, a rate for rates, a ratio for sizes.
    """

    units: int
    needs: tuple[tuple[int, int], ...]
    units_a_day: float
    first: int | None
    last_seen: int | None
    armed: int | None
    live: bool
    below_floor: bool
    ratio: float
    smallest: float | None


@attrs.frozen
class BucketReport:
    """The state of a bucket. While learning `have` of `need` units and the days until it is armed, None when
    no traffic tells; when within its bar, S/h and the smallest change that it would have seen.
    """

    state: StateName
    reason: Reason | None = None
    have: int | None = None
    need: int | None = None
    eta_days: float | None = None
    ratio: float | None = None
    smallest: float | None = None


def rate_view(state: RateState, settings: RateSettings) -> BucketView:
    """The view of a rate."""
    ratio, smallest = 0.0, None
    if state.reference is not None:
        rise, fewer = arms_of(state.reference, state.units_a_day, settings)
        climbs = (*state.rise.climbs, *state.fall.climbs)
        pairs = zip((*rise, *fewer), climbs, strict=True)
        ratio = max((c.height / arm.bar for arm, c in pairs if arm is not None), default=0.0)
        smallest = _smallest_rate(rise[0], state.units_a_day * SEEN_WITHIN_DAYS)
    return BucketView(
        units=state.learned,
        needs=ARMED_AT,
        units_a_day=state.units_a_day,
        first=state.first_seen,
        last_seen=state.last_seen,
        armed=state.armed,
        live=state.rise.alarm is not None,
        below_floor=False,
        ratio=ratio,
        smallest=smallest,
    )


def _smallest_rate(arm: Arm | None, units: float) -> float | None:
    """The rate whose drift brings the statistic to its bar in so many units."""
    if arm is None or not units:
        return None
    up, down = arm.weights.up_grains, arm.weights.down_grains
    return min((arm.bar / units + down) / (up + down), 1.0)


def drift_view(state: DriftState, settings: DriftSettings) -> BucketView:
    """The view of a size."""
    ratio, smallest, below_floor = 0.0, None, False
    if (reference := state.reference) is not None:
        arms = DriftArms.of(reference, state.rows_a_day, settings)
        ratio = max(
            state.up.height / arms.up.bar,
            state.down.height / arms.down.bar,
            state.tail.climbs[0].height / arms.tail.bar,
        )
        below_floor = state.up.below_floor(arms.up) or state.down.below_floor(arms.down)
        windows_a_day = reference.windows * SLOTS_PER_DAY / max(reference.end - reference.first, 1)
        windows = max(windows_a_day * SEEN_WITHIN_DAYS, 1.0)
        deviation = math.sqrt(reference.sigma2 / reference.window_rows + reference.tau2)
        shift = deviation * (arms.up.allowance + arms.up.bar_sigmas / windows)
        smallest = math.exp(max(settings.floor, shift))
    return BucketView(
        units=state.rows,
        needs=((ARMED_ROWS, ARMED_SLOTS),),
        units_a_day=state.rows_a_day,
        first=state.first_seen,
        last_seen=state.last_seen,
        armed=state.armed,
        live=state.up.alarm is not None or state.tail.alarm is not None,
        below_floor=below_floor,
        ratio=ratio,
        smallest=smallest,
    )


def report(
    view: BucketView, now: int, *, hindrance: Hindrance | None = None, muted: bool = False
) -> BucketReport:
    """The state at this slot, which is the watermark. What hinders measuring comes first, then a mute."""
    if hindrance is not None:
        return BucketReport("quiet", hindrance)
    if muted:
        return BucketReport("quiet", "muted", ratio=view.ratio)
    if view.last_seen is None or view.first is None:
        return BucketReport("quiet", "no_traffic")
    if view.live:
        return BucketReport("alarm", ratio=view.ratio)
    per_day = view.units_a_day
    gap = SLOTS_PER_DAY / per_day if per_day else 0.0
    if now - view.last_seen > max(STALE_SLOTS, STALE_GAPS * gap):
        return BucketReport("stale")
    if view.armed is None:
        return _learning(view, view.first, now)
    if view.last_seen < view.armed:
        return BucketReport("armed", ratio=0.0, smallest=view.smallest)
    reason: Reason = "below_effect_floor" if view.below_floor else "within_bar"
    return BucketReport("quiet", reason, ratio=view.ratio, smallest=view.smallest)


def _learning(view: BucketView, first: int, now: int) -> BucketReport:
    days = max((now - first) / SLOTS_PER_DAY, 1 / 24)
    per_day = view.units_a_day or view.units / days
    etas = [
        (max((units - view.units) / per_day, slots / SLOTS_PER_DAY - days, 0.0), units)
        for units, slots in view.needs
        if per_day
    ]
    eta, need = min(etas, default=(None, min(units for units, _ in view.needs)))
    if eta is not None and eta > LONGEST_LEARNING_DAYS:
        return BucketReport("quiet", "below_minimum", have=view.units, need=need, eta_days=eta)
    return BucketReport("learning", have=view.units, need=need, eta_days=eta)
