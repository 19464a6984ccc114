"""One direction of a rate, watched: quiet until an arm fires, then followed until it has recovered.

Owns: `Arm` (a CUSUM with its bar), `RateTrack` (what must be kept between two looks), `RateAlarm`, and
`advance`. The rate engine calls it a day at a time, the drift engine for its fast arm. Never looks past the
rows it is given, never decides what is usual.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import attrs

from svc.domain.detect.engine import bars, beta, change_point
from svc.domain.detect.engine.arrays import Floats, Ints
from svc.domain.detect.engine.bars import GRAIN
from svc.domain.detect.engine.change_point import Climb, Onset, climb, climb_on, first_true, rate_onset
from svc.domain.detect.engine.rate_reference import RateReference
from svc.domain.detect.engine.slots import SLOTS_PER_DAY
from svc.domain.detect.engine.tallies import RateTallies
from svc.domain.lazy_numpy import np

ArmName = Literal["cusum", "outage", "fewer"]

#: The statistic that is ten times rarer than the bar lies this much above it, before over-dispersion.
TEN_TIMES_RARER: Final = math.log(10)
#: For that a slot may add so many times as much as for the alarm itself. Held to the same, half an hour in
#: which all fails ends before it is rare enough: measured 2026-11, 95 % failing for 30 minutes at 1,200 to
#: 5,000 calls a day, 30 buckets, 0.63-0.67 of the alarms were made rarer, with this 1.00.
WIDE: Final = 2
#: A statistic may touch zero once more after the change, so starts up to two days before its last zero are
#: weighed too. Measured 2026-11: 90 % intervals then hold the onset in 0.85-0.94 in place of 0.28-0.66, and
#: the median error is a third smaller.
BEFORE_ZERO: Final = 2 * SLOTS_PER_DAY


@attrs.frozen
class Arm:
    """A CUSUM of one alternative, p1 against p0. `bar` is its bar in grains, widened by the over-dispersion
    `phi`; `cap` is the most that one slot may add.
    """

    name: ArmName
    p0: float
    p1: float
    weights: bars.Weights
    bar: int
    cap: int
    phi: float

    @classmethod
    def of(cls, name: ArmName, p0: float, p1: float, phi: float, units: float) -> Arm:
        """The arm that takes p0 for p1 once in so many units; p1 below p0 looks for fewer failures.

        A slot adds a fifth of the bar at most, so that one bad five minutes cannot fire alone, but always
        the whole of one failure: else a bucket with a call an hour would be held to another bar than its own.
        The fifth is of the widened bar. Measured 2026-11, 5,000 calls a day, 30 buckets: a fifth of the bar
        by chance alone brings false alarms among six hiccups a day from 0.03-0.10 to 0, but a 60 % outage
        takes 37 minutes in place of 27 with 0.2 of them, and hours where the over-dispersion is large.
        """
        weights = bars.weights(p0, p1) if p1 > p0 else bars.weights(1 - p0, 1 - p1)
        height = bars.bar(p0 if p1 > p0 else 1 - p0, weights, units)
        bar = round(height * phi)
        cap = max(bar // 5, weights.up_grains)
        return cls(name, p0, p1, weights, bar, cap, phi)

    def steps(self, units: Ints, failures: Ints, times: int = 1) -> Ints:
        """What each slot adds, in grains, shape (n,), at most so many times the cap."""
        events = failures if self.p1 > self.p0 else units - failures
        net = events * self.weights.up_grains - (units - events) * self.weights.down_grains
        return np.minimum(net, times * self.cap)

    def units_between(self, statistic: float) -> float:
        """How many units chance alone takes on average to bring the statistic, in nats, so high."""
        p0 = self.p0 if self.p1 > self.p0 else 1 - self.p0
        return bars.units_between(p0, self.weights, statistic / self.phi)


@attrs.frozen
class Proportion:
    """A number of units and how many of them failed."""

    units: int
    failures: int

    @property
    def rate(self) -> float:
        """The share of failures, 0 of nothing."""
        return self.failures / self.units if self.units else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval."""
        return beta.interval(self.failures, self.units)


@attrs.frozen
class RateAlarm:
    """A change of rate, from the slot it fired in to its recovery. Slots, but for nats and shares.

    `fired` is the slot after whose end the alarm was known (`detected_at`), `statistic` and `bar` stand in
    nats as of then, `chance_units` is how many units chance alone needs for that. `present` is the rate from
    the onset until now or the recovery. `confirmed` is when it had become ten times rarer than an alarm,
    before the statistic fell to half its bar; `wide` weighs in for that, in grains, while it has not fired
    again. `recurrences` counts firings after such a fall. `recovered` is
    when the old rate came back, `recovery_known` when that was sure; both None while the alarm is live.
    """

    arm: ArmName
    fired: int
    onset: Onset
    statistic: float
    bar: float
    phi: float
    p1: float
    chance_units: float
    at_firing: Proportion
    reference: RateReference
    present: Proportion
    last_fired: int
    confirmed: int | None
    recurrences: int
    way_back: change_point.Return
    fell: bool = False
    wide: int = 0
    back: Climb = attrs.field(factory=Climb)
    since_back: Proportion = attrs.field(factory=lambda: Proportion(0, 0))
    recovered: int | None = None
    recovery_known: int | None = None


@attrs.frozen
class RateTrack:
    """What is known of one direction after the last slot judged: each arm's climb, and the live alarm.

    Nothing before `begun` can be the onset of an alarm to come. `spoiled` are the slots of the day's alarms
    that are over, which no reference may take in.
    """

    climbs: tuple[Climb, ...]
    begun: int
    alarm: RateAlarm | None = None
    spoiled: tuple[tuple[int, int], ...] = ()

    @classmethod
    def start(cls, slot: int, arms: int) -> RateTrack:
        """Nothing seen yet, from this slot on."""
        return cls((Climb(0, slot),) * arms, slot)

    def cleared(self, slot: int) -> RateTrack:
        """Begun anew at this slot; a live alarm is over, and its slots stay out of any reference."""
        live = ((self.alarm.onset.low, slot),) if self.alarm is not None else ()
        return attrs.evolve(RateTrack.start(slot, len(self.climbs)), spoiled=(*self.spoiled, *live))

    def needs_from(self, slot: int) -> int:
        """The first slot whose tallies are needed to judge from `slot` on."""
        climbing = [c.since for c in self.climbs if c.height and self.alarm is None]
        return max(min([slot, *climbing]) - BEFORE_ZERO, min(self.begun, slot))

    def quiet(self, arms: tuple[Arm | None, ...]) -> bool:
        """Whether no alarm is live and every arm stands below half its bar."""
        return self.alarm is None and all(
            arm is None or 2 * c.height < arm.bar for arm, c in zip(arms, self.climbs, strict=True)
        )


@attrs.frozen(eq=False)
class Advance:
    """What a stretch of slots led to: the track after it, alarms over by then, S/h after each slot."""

    track: RateTrack
    over: tuple[RateAlarm, ...]
    ratios: Floats


def advance(
    track: RateTrack,
    arms: tuple[Arm | None, ...],
    reference: RateReference,
    rows: RateTallies,
    history: RateTallies,
) -> Advance:
    """Judge these rows slot by slot; `history` holds them too, and what came before, back to
    `RateTrack.needs_from`.
    """
    alarms: list[RateAlarm] = []
    ratios = np.zeros(len(rows.slots))
    track = attrs.evolve(
        track,
        climbs=tuple(
            Climb(0, c.since) if arm is None else c for arm, c in zip(arms, track.climbs, strict=True)
        ),
    )
    position = 0
    while position < len(rows.slots):
        tail = RateTallies(rows.slots[position:], rows.units[position:], rows.failures[position:])
        paths = [
            None if arm is None else climb(c.height, arm.steps(tail.units, tail.failures))
            for arm, c in zip(arms, track.climbs, strict=True)
        ]
        if track.alarm is None:
            track, count = _watch(track, arms, paths, reference, tail, history)
        else:
            track, count = _follow(track, track.alarm, arms, paths, tail)
        for arm, path in zip(arms, paths, strict=True):
            if arm is not None and path is not None:
                part = ratios[position : position + count]
                np.maximum(part, path[:count] / arm.bar, out=part)
        position += count
        if track.alarm is not None and track.alarm.recovery_known is not None:
            alarms.append(track.alarm)
            track = RateTrack(
                climbs=(Climb(0, track.alarm.recovery_known + 1),) * len(arms),
                begun=track.alarm.recovery_known + 1,
                spoiled=(*track.spoiled, (track.alarm.onset.low, track.alarm.recovery_known + 1)),
            )
    return Advance(track, tuple(alarms), ratios)


def _moved(track: RateTrack, paths: list[Ints | None], slots: Ints, count: int) -> tuple[Climb, ...]:
    return tuple(
        c if path is None else climb_on(c, path[:count], slots[:count])
        for c, path in zip(track.climbs, paths, strict=True)
    )


def _watch(
    track: RateTrack,
    arms: tuple[Arm | None, ...],
    paths: list[Ints | None],
    reference: RateReference,
    rows: RateTallies,
    history: RateTallies,
) -> tuple[RateTrack, int]:
    """Until an arm fires, or to the end: the track then, and how many rows it took."""
    firing_index, arm, which = len(rows.slots), None, 0
    for i, (candidate, path) in enumerate(zip(arms, paths, strict=True)):
        if candidate is not None and path is not None:
            index = first_true(path >= candidate.bar)
            if index < firing_index:
                firing_index, arm, which = index, candidate, i
    count = min(firing_index + 1, len(rows.slots))
    climbs = _moved(track, paths, rows.slots, count)
    track = attrs.evolve(track, climbs=climbs)
    if arm is None:
        return track, count
    slot, height = int(rows.slots[firing_index]), climbs[which].height
    run = history.between(max(climbs[which].since - BEFORE_ZERO, track.begun), slot + 1)
    onset = rate_onset(run.slots, run.units, run.failures, arm.p0, arm.phi)
    changed = run.between(onset.median, slot + 1)
    present = Proportion(int(changed.units.sum()), int(changed.failures.sum()))
    wide = int(arm.steps(changed.units, changed.failures, WIDE).sum())
    alarm = RateAlarm(
        arm=arm.name,
        fired=slot,
        onset=onset,
        statistic=height / GRAIN,
        bar=arm.bar / GRAIN,
        phi=arm.phi,
        p1=arm.p1,
        chance_units=arm.units_between(height / GRAIN),
        at_firing=present,
        reference=reference.before(onset.median, changed),
        present=present,
        last_fired=slot,
        confirmed=slot if max(height, wide) >= _rarer(arm.bar, arm.phi) else None,
        wide=wide,
        recurrences=0,
        way_back=change_point.rate_return(
            arm.p0, arm.p1, present.units, present.failures, reference.units_a_day, arm.phi
        ),
        back=Climb(0, slot + 1),
    )
    return attrs.evolve(track, alarm=alarm), count


def _rarer(bar: int, phi: float) -> int:
    return bar + round(phi * TEN_TIMES_RARER * GRAIN)


def _follow(
    track: RateTrack,
    alarm: RateAlarm,
    arms: tuple[Arm | None, ...],
    paths: list[Ints | None],
    rows: RateTallies,
) -> tuple[RateTrack, int]:
    """Until the live alarm has recovered, or to the end: the track then, and how many rows it took."""
    slots = rows.slots
    back = climb(alarm.back.height, alarm.way_back.steps(rows.units, rows.failures))
    since = np.maximum.accumulate(np.maximum(np.where(back == 0, slots + 1, 0), alarm.back.since))
    end = first_true((back >= alarm.way_back.bar) & (slots + 1 - since >= change_point.RETURNED_SLOTS))
    count = min(end + 1, len(slots))
    for arm, path in zip(arms, paths, strict=True):
        if arm is not None and path is not None and arm.name == alarm.arm:
            steps = arm.steps(rows.units[:count], rows.failures[:count], WIDE)
            wide = alarm.wide + np.cumsum(steps)
            alarm = attrs.evolve(_events(alarm, path[:count], wide, slots[:count]), wide=int(wide[-1]))
    units, failures = rows.units[:count], rows.failures[:count]
    lately = slots[:count] >= since[count - 1]
    total = Proportion(
        alarm.present.units + alarm.since_back.units + int(units.sum()),
        alarm.present.failures + alarm.since_back.failures + int(failures.sum()),
    )
    earlier = alarm.since_back if int(since[count - 1]) == alarm.back.since else Proportion(0, 0)
    # What came after the reverse statistic last stood at zero may be the recovery, and is no part of it.
    since_back = Proportion(
        earlier.units + int(units[lately].sum()), earlier.failures + int(failures[lately].sum())
    )
    recovered = end < len(slots)
    alarm = attrs.evolve(
        alarm,
        back=Climb(int(back[count - 1]), int(since[count - 1])),
        since_back=since_back,
        present=Proportion(total.units - since_back.units, total.failures - since_back.failures),
        recovered=int(since[end]) if recovered else None,
        recovery_known=int(slots[end]) if recovered else None,
    )
    return attrs.evolve(track, climbs=_moved(track, paths, slots, count), alarm=alarm), count


def _events(alarm: RateAlarm, path: Ints, wide: Ints, slots: Ints) -> RateAlarm:
    """The alarm after its own statistic took this path: made rarer, fallen, or fired again.

    `wide` is what weighs in for the first, as long as it never fell.
    """
    bar = round(alarm.bar * GRAIN)
    position = 0
    while position < len(path):
        tail = path[position:]
        if alarm.fell:
            position += first_true(tail >= bar)
            if position < len(path):
                alarm = attrs.evolve(
                    alarm, fell=False, recurrences=alarm.recurrences + 1, last_fired=int(slots[position])
                )
            continue
        fall = first_true(2 * tail <= bar)
        if alarm.confirmed is None:
            height = tail[:fall] if alarm.recurrences else np.maximum(tail, wide[position:])[:fall]
            rarer = first_true(height >= _rarer(bar, alarm.phi))
            if rarer < fall:
                alarm = attrs.evolve(alarm, confirmed=int(slots[position + rarer]))
        position += fall
        if position < len(path):
            alarm = attrs.evolve(alarm, fell=True)
    return alarm
