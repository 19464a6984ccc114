"""The rate engine: whether a share of failures is what it used to be, judged slot by slot as if live.

Owns: `judge_rates`, its settings, its state and what it answers. The detectors of failures call it with the
tallies of a bucket, a backtest with those of its history. It gathers a reference, arms, refines while quiet,
raises alarms and sees them recover; nothing it says of a slot depends on a later one, and going on from a
state says what judging from the start would have said, bit by bit. It never writes a reference down: the
caller stores the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from svc.domain.detect.engine import bars
from svc.domain.detect.engine.arrays import Flags, Floats, Ints
from svc.domain.detect.engine.from_birth import BadFromBirth, bad_from_birth
from svc.domain.detect.engine.rate_reference import (
    SEALED_SLOTS,
    Gathered,
    RateReference,
    armed_from,
    reference_of,
)
from svc.domain.detect.engine.rate_track import Arm, RateAlarm, RateTrack, advance
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, day_start
from svc.domain.detect.engine.tallies import RateTallies
from svc.domain.lazy_numpy import np

#: The least factor by which a rate must rise to be looked for, unless the project sets another.
RISE: Final = 2.0
#: Subjects with less traffic than this have an arm of their own for outages. Measured 2026-11, half an hour
#: in which 95 % fail, of 1 %, made rarer in 0.00, 0.17 and 0.67 of 30 buckets of 300, 600 and 1,200 calls a
#: day while only those below 200 had one and `rate_track.WIDE` was 1, in 0.85, 1.00 and 1.00 of 20 now.
OUTAGE_UNITS_A_DAY: Final = 2_000.0
#: Below this rate fewer failures cannot be told from none.
FEWER_FROM: Final = 0.01
#: Above this rate no rise is left to look for.
RISE_BELOW: Final = 0.95
TRAFFIC_DAYS: Final = 7


@attrs.frozen
class RateSettings:
    """What the project sets. `months` is how many of its own months the bucket runs between false alarms
    (see `bars.months_between_alarms`), `rise` the factor whose rise is found soonest; ranges of slots in
    `barred` never become part of a reference. `order` is the place of the subject, from 1 on, among those of
    its measure by when they appeared: they share the false alarms of their first units.
    """

    months: float = bars.LEAST_MONTHS
    rise: float = RISE
    barred: tuple[tuple[int, int], ...] = ()
    fewer: bool = True
    order: int = 1

    @classmethod
    def tuned(cls, months: float, tuning: Mapping[str, float], order: int = 1) -> RateSettings:
        """With what people set by name."""
        return cls(months=months, rise=tuning.get("rise", RISE), order=order)


@attrs.frozen
class RateState:
    """All that must be kept of a bucket between two looks; whole numbers, floats and tuples of them.

    Slots before `cursor` are judged. `gathered` is the baseline up to the last whole day taken in, `held`
    whole days not yet known to be quiet, `learned` the units until it armed, today's too. `traffic` is the
    units of the last whole days, at most seven.
    """

    cursor: int
    rise: RateTrack
    fall: RateTrack
    reference: RateReference | None = None
    gathered: Gathered = attrs.field(factory=Gathered)
    held: Gathered = attrs.field(factory=Gathered)
    learned: int = 0
    armed: int | None = None
    early: BadFromBirth | None = None
    traffic: tuple[int, ...] = ()
    first_seen: int | None = None
    last_seen: int | None = None

    @classmethod
    def start(cls, slot: int, reference: RateReference | None = None) -> RateState:
        """Nothing judged before this slot; with a reference, armed at once, and never refined."""
        return cls(
            cursor=slot,
            reference=None if reference is None else attrs.evolve(reference, sealed=True),
            armed=None if reference is None else slot,
            rise=RateTrack.start(slot, 2),
            fall=RateTrack.start(slot, 1),
        )

    def cleared(self, reference: RateReference | None = None) -> RateState:
        """After a person resolved its alarms: nothing has climbed, and what is usual stays, or is this
        from now on.
        """
        return attrs.evolve(
            self,
            reference=self.reference if reference is None else attrs.evolve(reference, sealed=True),
            held=Gathered(),
            rise=self.rise.cleared(self.cursor),
            fall=self.fall.cleared(self.cursor),
            early=None if self.early is None else self.early.closed(self.cursor),
        )

    @property
    def needs_from(self) -> int:
        """The first slot whose tallies `judge_rates` needs to go on from here."""
        start = day_start(self.cursor)
        return min(self.rise.needs_from(start), self.fall.needs_from(start))

    @property
    def units_a_day(self) -> float:
        """The larger of the baseline's traffic and that of the last whole days."""
        usual = self.reference.units_a_day if self.reference is not None else 0.0
        return max(usual, sum(self.traffic) / len(self.traffic) if self.traffic else 0.0)


@attrs.frozen(eq=False)
class RatePath:
    """The statistic over its bar after each slot with traffic, upwards and for fewer failures."""

    slots: Ints
    rise: Floats
    fall: Floats


@attrs.frozen(eq=False)
class RateJudgement:
    """What a look came to: the state to keep, rises and falls that were live in it, oldest first, a state for
    each UTC midnight passed, and the path when it was asked for. `early` is what is bad from birth, unless
    that was over before.
    """

    state: RateState
    rises: tuple[RateAlarm, ...]
    falls: tuple[RateAlarm, ...]
    checkpoints: tuple[RateState, ...]
    path: RatePath | None
    early: BadFromBirth | None = None


def arms_of(
    reference: RateReference, units_a_day: float, settings: RateSettings
) -> tuple[tuple[Arm | None, Arm | None], tuple[Arm | None]]:
    """The arms for a rise, the plain one and the one for outages, and the arm for fewer failures.

    Where both of the first stand they share the budget, half each.
    """
    p0, phi = reference.p0, reference.phi
    units = bars.alarm_units(settings.months, units_a_day * bars.MONTH_DAYS)
    p1, outage_p1 = min(max(settings.rise * p0, p0 + 0.005), 0.99), min(max(0.5, 4 * p0), 0.99)
    outages = units_a_day < OUTAGE_UNITS_A_DAY and outage_p1 > p1
    rise = outage = fewer = None
    if p0 < RISE_BELOW:
        rise = Arm.of("cusum", p0, p1, phi, units * (2 if outages else 1))
        outage = Arm.of("outage", p0, outage_p1, phi, 2 * units) if outages else None
    if settings.fewer and reference.p0_low >= FEWER_FROM:
        fewer = Arm.of("fewer", reference.p0_low, reference.p0_low / 2, phi, units)
    return (rise, outage), (fewer,)


def judge_rates(
    tallies: RateTallies, settings: RateSettings, state: RateState, until: int, *, path: bool = False
) -> RateJudgement:
    """Judge the slots from the state's cursor to `until`, which is the watermark.

    The tallies must reach back to `state.needs_from`; later ones than `until` are left alone.
    """
    look = _Look(tallies, settings, state)
    while look.state.cursor < until:
        cursor = look.state.cursor
        midnight = day_start(cursor) + SLOTS_PER_DAY
        look.judge(min(midnight, until))
        if look.state.cursor == midnight:
            look.close_day()
    alarms = [
        (*over, *([track.alarm] if track.alarm is not None else []))
        for over, track in ((look.rises, look.state.rise), (look.falls, look.state.fall))
    ]
    drawn = None
    if path:
        slots, rises, falls = zip(*look.drawn, strict=True) if look.drawn else ((), (), ())
        drawn = RatePath(
            np.concatenate((*slots, np.zeros(0, np.int64))),
            np.concatenate((*rises, np.zeros(0))),
            np.concatenate((*falls, np.zeros(0))),
        )
    early = look.state.early
    if early is not None and early.known is not None and early.known < state.cursor:
        early = None
    return RateJudgement(look.state, alarms[0], alarms[1], tuple(look.checkpoints), drawn, early)


def outside(slots: Ints, ranges: Sequence[tuple[int, int]]) -> Flags:
    """Which of the slots lie in none of the ranges `[first, end)`."""
    flags = np.ones(len(slots), np.bool_)
    for first, end in ranges:
        flags &= (slots < first) | (slots >= end)
    return flags


class _Look:
    """One run over a bucket's slots, a day at a time."""

    def __init__(self, tallies: RateTallies, settings: RateSettings, state: RateState) -> None:
        self.tallies = tallies
        self.settings = settings
        self.state = state
        self.rises: list[RateAlarm] = []
        self.falls: list[RateAlarm] = []
        self.checkpoints: list[RateState] = []
        self.drawn: list[tuple[Ints, Floats, Floats]] = []

    def judge(self, end: int) -> None:
        """The slots from the cursor to `end`, all of one day."""
        rows = self.tallies.between(self.state.cursor, end)
        if len(rows.slots):
            first = int(rows.slots[0]) if self.state.first_seen is None else self.state.first_seen
            self.state = attrs.evolve(self.state, first_seen=first, last_seen=int(rows.slots[-1]))
            armed = self._learn() if self.state.reference is None else self.state.cursor
            if self.state.early is not None:
                followed = self.state.early.followed(rows.between(self.state.early.since + 1, end))
                self.state = attrs.evolve(self.state, early=followed)
            rows = rows.between(armed, end)
            reference = self.state.reference
            if reference is not None and len(rows.slots):
                self._watch(reference, rows)
        self.state = attrs.evolve(self.state, cursor=end)

    def _learn(self) -> int:
        """Gather until there is enough; the first slot that may be judged then, or one past all slots."""
        state = self.state
        day = day_start(state.cursor)
        today = self._usable(self.tallies.between(day, day + SLOTS_PER_DAY), ())
        gathered = state.gathered
        units = gathered.units + np.cumsum(today.units)
        failures = gathered.failures + np.cumsum(today.failures)
        eligible = (today.slots >= state.cursor) & (today.slots <= (state.last_seen or 0))
        if state.early is None:
            birth = day if state.first_seen is None else state.first_seen
            early = bad_from_birth(today.slots, units, failures, eligible, self.settings.order, birth)
            state = attrs.evolve(state, early=early)
        if len(today.slots):
            judged = int(np.searchsorted(today.slots, state.last_seen or 0, side="right"))
            learned = int(units[judged - 1]) if judged else gathered.units
            state = attrs.evolve(state, learned=learned)
        self.state = state
        if not len(today.slots):
            return state.cursor + SLOTS_PER_DAY
        first = gathered.first if gathered.first is not None else int(today.slots[0])
        enough = np.flatnonzero(eligible & armed_from(units, today.slots, first))
        if not len(enough):
            return state.cursor + SLOTS_PER_DAY
        armed = int(today.slots[enough[0]]) + 1
        reference = reference_of(gathered.add(Gathered.of(today.between(day, armed))))
        self.state = attrs.evolve(
            state,
            reference=reference,
            armed=armed,
            rise=RateTrack.start(armed, 2),
            fall=RateTrack.start(armed, 1),
        )
        return armed

    def _watch(self, reference: RateReference, rows: RateTallies) -> None:
        state = self.state
        up, down = arms_of(reference, state.units_a_day, self.settings)
        rise = advance(state.rise, up, reference, rows, self.tallies)
        fall = advance(state.fall, down, reference, rows, self.tallies)
        self.rises += rise.over
        self.falls += fall.over
        self.drawn.append((rows.slots, rise.ratios, fall.ratios))
        self.state = attrs.evolve(state, rise=rise.track, fall=fall.track)

    def _usable(self, rows: RateTallies, spoiled: Sequence[tuple[int, int]]) -> RateTallies:
        ranges = (*self.settings.barred, *spoiled)
        return rows.only(outside(rows.slots, ranges)) if ranges else rows

    def close_day(self) -> None:
        """Midnight: count the day's traffic, take it into the baseline if it may be, keep a checkpoint."""
        state = self.state
        day = self.tallies.between(state.cursor - SLOTS_PER_DAY, state.cursor)
        if state.last_seen is not None:
            units = int(day.units.sum())
            state = attrs.evolve(state, traffic=(*state.traffic, units)[-TRAFFIC_DAYS:])
        if state.reference is None:
            usable = Gathered.of(self._usable(day, ()))
            state = attrs.evolve(state, gathered=state.gathered.add(usable))
        elif not state.reference.sealed:
            state = self._refined(state, state.reference, day)
        self.state = attrs.evolve(
            state, rise=attrs.evolve(state.rise, spoiled=()), fall=attrs.evolve(state.fall, spoiled=())
        )
        self.checkpoints.append(self.state)

    def _refined(self, state: RateState, reference: RateReference, day: RateTallies) -> RateState:
        """The baseline with the day in it, once it is quiet; what was held when an alarm came is dropped."""
        if state.cursor - reference.first > SEALED_SLOTS:
            # Never quiet for three weeks: what it began with has to do, until people move it.
            return attrs.evolve(state, held=Gathered(), reference=attrs.evolve(reference, sealed=True))
        if state.rise.alarm is not None or state.fall.alarm is not None:
            return attrs.evolve(state, held=Gathered())
        spoiled = (*state.rise.spoiled, *state.fall.spoiled)
        today = Gathered.of(self._usable(day, spoiled))
        pending = today if spoiled else state.held.add(today)
        up, down = arms_of(reference, state.units_a_day, self.settings)
        if not (state.rise.quiet(up) and state.fall.quiet(down)):
            return attrs.evolve(state, held=pending)
        gathered = state.gathered.add(pending)
        return attrs.evolve(state, gathered=gathered, held=Gathered(), reference=reference_of(gathered))
