"""One direction of a size's location, watched window by window: quiet, then live until it is back.

Owns: `LocationArm`, `LocationTrack` (what must be kept between two windows), `LocationAlarm`, and `step`.
The drift engine calls it once for each closed window and direction. Never looks at a row, only at residuals
of windows: ln of the location over the usual one, so 0.14 is 15 % more.
"""

from __future__ import annotations

import math
from typing import Final

import attrs
import numpy as np

from svc.domain.detect.engine import bars, recover
from svc.domain.detect.engine.bars import GRAIN
from svc.domain.detect.engine.drift_reference import DriftReference
from svc.domain.detect.engine.onset import Onset, location_onset

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
    starts = np.array([w.start for w in run], np.int64)
    residuals = np.array([w.value for w in run])
    variances = np.array([w.variance for w in run])
    onset = location_onset(starts, residuals, variances)
    since = starts >= onset.median
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
    steps = recover.location_return(alarm.shift, np.array([window.value]), np.array([window.variance]))
    back = max(0, alarm.back + int(steps[0]))
    run = (*alarm.run_back, window) if back else ()
    since = alarm.back_since if alarm.back else window.start
    alarm = attrs.evolve(alarm, back=back, back_since=since, run_back=run[-LATELY:])
    if back < recover.RETURNED or window.end - since < recover.RETURNED_SLOTS:
        return alarm
    # A mean that wavers about half the floor must not keep the alarm, so the newest windows decide.
    lately = [w.value for w in alarm.run_back]
    if abs(sum(lately) / len(lately)) > arm.floor / 2:
        return alarm
    return attrs.evolve(alarm, recovered=since, recovery_known=window.end - 1, run_back=())
