"""A size's location, watched window by window, and a shift of it as a finding needs it.

Owns: `LocationArm`, `LocationTrack` (kept between two windows), `LocationAlarm` and `step`, which
the drift engine calls once for each closed window and direction: quiet, then live until it is back; and
`DriftAlarm`, `clusters` (which alarms of the arms are one) and `Shown`, the two distributions that it shows.
Arms never look at a row, only at residuals of windows: ln of the location over the usual one, so 0.14 is 15 %
more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, Literal

import attrs

from svc.domain.detect.engine import bars, change_point
from svc.domain.detect.engine.bars import GRAIN
from svc.domain.detect.engine.change_point import Onset, location_onset
from svc.domain.detect.engine.drift_reference import DriftReference
from svc.domain.detect.engine.histogram import log_distance, log_quantile
from svc.domain.detect.engine.rate_track import RateAlarm
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, STRATA, stratum
from svc.domain.detect.engine.tallies import SizeTallies
from svc.domain.lazy_numpy import np

#: One window counts for no more standard deviations than this.
CLIP: Final = 4.0
#: Windows before the last zero in which a change may begin: see `rate_track.BEFORE_ZERO`.
BEFORE_ZERO: Final = 8
#: Below the floor a statistic may stand above its bar for ever; a month of windows is kept.
LONGEST_RUN: Final = 120
#: How many of the newest windows must lie within half the floor for a recovery.
LATELY: Final = 4


@attrs.frozen
class Residual:
    """A closed window `[start, end)`: its residual, and the variance that a usual window of its rows has."""

    start: int
    end: int
    rows: int
    value: float
    variance: float


@attrs.frozen
class LocationArm:
    """The CUSUM of residuals in standard deviations less `allowance`; `bar` in grains, widened by `widening`
    for windows that hang together. `sign` is 1 for slower and dearer, −1 for faster and cheaper.
    """

    sign: int
    allowance: float
    bar: int
    widening: float
    floor: float

    @classmethod
    def of(cls, sign: int, reference: DriftReference, floor: float, windows: float) -> LocationArm:
        """The arm that fires by chance alone once in so many windows."""
        k = reference.allowance(floor)
        bar = round(bars.gaussian_bar(k, windows) * reference.widening * GRAIN)
        return cls(sign, k, bar, reference.widening, floor)

    @property
    def bar_sigmas(self) -> float:
        """The bar in standard deviations."""
        return self.bar / GRAIN

    def windows_between(self, statistic: float) -> float:
        """How many windows chance alone takes on average to bring the statistic, in sigmas, so high."""
        return bars.gaussian_run_length(statistic / self.widening, self.allowance)


@attrs.frozen
class LocationAlarm:
    """A shift of location. Slots, but for `statistic` and `bar` in standard deviations and `shift` in ln.

    `fired` is the last slot of the window after which it was known, `shift` the mean residual since the
    onset as of then and `shift_sd` its standard deviation. `confirmed` is when the window after a firing
    stood above the bar too. `recovered` is when windows went back, `recovery_known` when that was sure.
    """

    fired: int
    onset: Onset
    statistic: float
    bar: float
    shift: float
    shift_sd: float
    chance_windows: float
    last_fired: int
    confirmed: int | None = None
    recurrences: int = 0
    just_fired: bool = True
    fell: bool = False
    back: int = 0
    back_since: int = 0
    run_back: tuple[Residual, ...] = ()
    recovered: int | None = None
    recovery_known: int | None = None


@attrs.frozen
class LocationTrack:
    """The statistic in grains, how many windows ago it last was at zero, the windows in which an alarm to
    come may begin, and the live alarm.
    """

    height: int = 0
    climbing: int = 0
    run: tuple[Residual, ...] = ()
    alarm: LocationAlarm | None = None

    def quiet(self, arm: LocationArm) -> bool:
        """Whether no alarm is live and the statistic stands below half its bar."""
        return self.alarm is None and 2 * self.height < arm.bar

    def below_floor(self, arm: LocationArm) -> bool:
        """Whether the statistic stands above its bar for a shift too small to be told."""
        return self.alarm is None and self.height >= arm.bar


def step(
    track: LocationTrack, arm: LocationArm, window: Residual
) -> tuple[LocationTrack, LocationAlarm | None]:
    """The track after this window, and the alarm that it ended."""
    z = arm.sign * window.value / math.sqrt(window.variance)
    height = max(0, track.height + round((min(max(z, -CLIP), CLIP) - arm.allowance) * GRAIN))
    climbing = track.climbing + 1 if height else 0
    if track.alarm is None:
        run = (*track.run, window)[-min(climbing + BEFORE_ZERO, LONGEST_RUN) :]
        alarm = _fired(arm, height, run, window) if height >= arm.bar else None
        return LocationTrack(height, climbing, run, alarm), None
    alarm = _back(_again(track.alarm, arm, height, window), arm, window)
    if alarm.recovery_known is not None:
        return LocationTrack(), alarm
    # While it lasts only the height of the statistic matters: its windows would pile up for weeks.
    return LocationTrack(height, climbing, (), alarm), None


def _fired(
    arm: LocationArm, height: int, run: tuple[Residual, ...], window: Residual
) -> LocationAlarm | None:
    """The alarm, unless the shift since its onset lies below the floor."""
    starts, ends = np.array([(w.start, w.end) for w in run], np.int64).T
    residuals = np.array([w.value for w in run])
    variances = np.array([w.variance for w in run])
    onset = location_onset(starts, ends, residuals, variances)
    since = ends > onset.median
    shift = float(residuals[since].mean())
    if arm.sign * shift < arm.floor:
        return None
    return LocationAlarm(
        fired=window.end - 1,
        onset=onset,
        statistic=height / GRAIN,
        bar=arm.bar / GRAIN,
        shift=shift,
        shift_sd=float(math.sqrt(variances[since].sum())) / int(since.sum()),
        chance_windows=arm.windows_between(height / GRAIN),
        last_fired=window.end - 1,
    )


def _again(alarm: LocationAlarm, arm: LocationArm, height: int, window: Residual) -> LocationAlarm:
    """Whether the statistic is still above its bar, has fallen to half of it, or has fired anew."""
    bar = round(alarm.bar * GRAIN)
    slot = window.end - 1
    if alarm.fell and height >= bar:
        return attrs.evolve(
            alarm, fell=False, just_fired=True, recurrences=alarm.recurrences + 1, last_fired=slot
        )
    confirmed = slot if alarm.just_fired and height >= bar and alarm.confirmed is None else alarm.confirmed
    return attrs.evolve(alarm, confirmed=confirmed, just_fired=False, fell=alarm.fell or 2 * height <= bar)


def _back(alarm: LocationAlarm, arm: LocationArm, window: Residual) -> LocationAlarm:
    """The reverse CUSUM; recovered when it is sure and the windows since lie within half the floor."""
    steps = change_point.location_return(alarm.shift, np.array([window.value]), np.array([window.variance]))
    back = max(0, alarm.back + int(steps[0]))
    run = (*alarm.run_back, window) if back else ()
    since = alarm.back_since if alarm.back else window.start
    alarm = attrs.evolve(alarm, back=back, back_since=since, run_back=run[-LATELY:])
    if back < change_point.RETURNED or window.end - since < change_point.RETURNED_SLOTS:
        return alarm
    # A mean that wavers about half the floor must not keep the alarm, so the newest windows decide.
    lately = [w.value for w in alarm.run_back]
    if abs(sum(lately) / len(lately)) > arm.floor / 2:
        return alarm
    return attrs.evolve(alarm, recovered=since, recovery_known=window.end - 1, run_back=())


Direction = Literal["up", "down"]
Part = LocationAlarm | RateAlarm

#: What a finding shows is taken from the newest seven days since the onset.
SHOWN_SLOTS: Final = 7 * SLOTS_PER_DAY


@attrs.frozen
class Shown:
    """A distribution against the usual one of the same hours. `w1` is their distance on the log axis and
    `ratio` e to it, below one when smaller; quantiles are in units of the axis (1 ms or $0.00001).
    """

    rows: int
    w1: float
    ratio: float
    p50: float
    p95: float
    usual_p50: float
    usual_p95: float


@attrs.frozen
class DriftAlarm:
    """A shift of a size, by either arm or both: alarms that were live together are one. Slots.

    `locations` and `tails` are in order of firing. `shown` is None where no row is left to show.
    """

    direction: Direction
    locations: tuple[LocationAlarm, ...]
    tails: tuple[RateAlarm, ...]
    reference: DriftReference
    shown: Shown | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The alarms of both arms in order of firing."""
        parts: list[Part] = [*self.locations, *self.tails]
        return tuple(sorted(parts, key=_by_firing))

    @property
    def fired(self) -> int:
        """The slot after whose end it was known."""
        return self.parts[0].fired

    @property
    def onset(self) -> Onset:
        """The onset by the arm that fired first."""
        return self.parts[0].onset

    @property
    def confirmed(self) -> int | None:
        """When either arm had become ten times rarer than an alarm."""
        return min((p.confirmed for p in self.parts if p.confirmed is not None), default=None)

    @property
    def recurrences(self) -> int:
        """How often an arm fired while it was live."""
        return len(self.parts) - 1 + sum(p.recurrences for p in self.parts)

    @property
    def last_fired(self) -> int:
        """The newest firing of either arm."""
        return max(p.last_fired for p in self.parts)

    @property
    def recovered(self) -> int | None:
        """When the last of its arms went back, None while one is live."""
        ends = [p.recovered for p in self.parts]
        return None if None in ends else max(end for end in ends if end is not None)

    @property
    def recovery_known(self) -> int | None:
        """The slot in which the recovery was certain."""
        ends = [p.recovery_known for p in self.parts]
        return None if None in ends else max(end for end in ends if end is not None)


def _by_firing(part: Part) -> int:
    return part.fired


def clusters(direction: Direction, fired: Iterable[tuple[Part, DriftReference]]) -> tuple[DriftAlarm, ...]:
    """The alarms of both arms, oldest first: one that fires while another is live belongs to it.

    Each comes with the reference it fired against, which stays as it is as long as an alarm is live.
    """
    groups: list[list[tuple[Part, DriftReference]]] = []
    until: float = -math.inf
    for part, reference in sorted(fired, key=lambda pair: pair[0].fired):
        if part.fired > until:
            groups.append([])
            until = -math.inf
        groups[-1].append((part, reference))
        until = max(until, math.inf if part.recovery_known is None else part.recovery_known)
    return tuple(
        DriftAlarm(
            direction,
            tuple(part for part, _ in group if isinstance(part, LocationAlarm)),
            tuple(part for part, _ in group if isinstance(part, RateAlarm)),
            group[0][1],
        )
        for group in groups
    )


def with_shown(alarm: DriftAlarm, tallies: SizeTallies, now: int) -> DriftAlarm:
    """The alarm with the distribution of its newest rows, until its recovery or `now`."""
    end = now if alarm.recovered is None else alarm.recovered
    rows = tallies.between(max(alarm.onset.median, end - SHOWN_SLOTS), end)
    if not len(rows.slots):
        return alarm
    by_stratum = rows.by_group(stratum(rows.slots), STRATA)
    present = by_stratum.sum(axis=0)
    usual = alarm.reference.mixture(by_stratum.sum(axis=1))
    w1 = log_distance(present, usual)
    return attrs.evolve(
        alarm,
        shown=Shown(
            rows=int(present.sum()),
            w1=w1,
            ratio=math.exp(w1 if alarm.direction == "up" else -w1),
            p50=math.exp(log_quantile(present, 0.5)),
            p95=math.exp(log_quantile(present, 0.95)),
            usual_p50=math.exp(log_quantile(usual, 0.5)),
            usual_p95=math.exp(log_quantile(usual, 0.95)),
        ),
    )
