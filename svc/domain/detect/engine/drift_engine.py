"""The drift engine: whether a duration or a cost is what it used to be, judged as if live.

Owns: `judge_drift`, its settings, its state and what it answers. The detectors of sizes call it with the
histograms of a bucket by slot, a backtest with those of its history. Two arms look upwards: the location of
six-hour windows, which sees small and slow shifts, and the rate engine on the share of rows in the
reference's tail, which sees large ones first; downwards only the location looks. Nothing it says of a slot
depends on a later one, and going on from a state says what judging from the start would have said. It never
writes a reference down: the caller stores the state.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from svc.domain.detect.engine import bars
from svc.domain.detect.engine.arrays import Floats, Ints
from svc.domain.detect.engine.drift_reference import (
    FLOOR,
    SEALED_SLOTS,
    DriftReference,
    Windows,
    drift_reference,
)
from svc.domain.detect.engine.drift_track import (
    SHOWN_SLOTS,
    DriftAlarm,
    LocationAlarm,
    LocationArm,
    LocationTrack,
    Part,
    Residual,
    clusters,
    step,
    with_shown,
)
from svc.domain.detect.engine.rate_engine import TRAFFIC_DAYS, outside
from svc.domain.detect.engine.rate_track import Arm, RateAlarm, RateTrack, advance
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, SLOTS_PER_WINDOW, day_start
from svc.domain.detect.engine.tallies import SizeTallies
from svc.domain.lazy_numpy import np


@attrs.frozen
class DriftSettings:
    """What the project sets. `months` is how many of its own months the bucket runs between false alarms;
    `floor` is the least shift of ln(value) worth telling; slots in `barred` never become part of a reference.
    """

    months: float = bars.LEAST_MONTHS
    floor: float = FLOOR
    barred: tuple[tuple[int, int], ...] = ()

    @classmethod
    def tuned(cls, months: float, tuning: Mapping[str, float]) -> DriftSettings:
        """With what people set by name."""
        return cls(months=months, floor=tuning.get("w1_floor", FLOOR))


@attrs.frozen
class DriftState:
    """All that must be kept of a bucket between two looks; whole numbers, floats and tuples of them.

    Slots before `cursor` are judged. `open_from` begins the window that is not closed yet, `rows` counts all
    that was seen; `spoiled` are slots of alarms that are over. `locations` and `tails` are
    the parts that are over of upward alarms that are not.
    """

    cursor: int
    tail: RateTrack
    up: LocationTrack = attrs.field(factory=LocationTrack)
    down: LocationTrack = attrs.field(factory=LocationTrack)
    reference: DriftReference | None = None
    armed: int | None = None
    first_seen: int | None = None
    open_from: int = 0
    rows: int = 0
    spoiled: tuple[tuple[int, int], ...] = ()
    locations: tuple[LocationAlarm, ...] = ()
    tails: tuple[RateAlarm, ...] = ()
    traffic: tuple[int, ...] = ()
    last_seen: int | None = None

    @classmethod
    def start(cls, slot: int, reference: DriftReference | None = None) -> DriftState:
        """Nothing judged before this slot; with a reference, armed at once and never refined, windows from
        the next border on.
        """
        return cls(
            cursor=slot,
            tail=RateTrack.start(slot, 1),
            reference=None if reference is None else attrs.evolve(reference, sealed=True),
            armed=None if reference is None else slot,
            open_from=slot + -slot % SLOTS_PER_WINDOW,
        )

    def cleared(self, reference: DriftReference | None = None) -> DriftState:
        """After a person resolved its alarms: nothing has climbed, and what is usual stays, or is this
        from now on. Slots of live alarms stay out of any reference.
        """
        alarms = (self.up.alarm, self.down.alarm, self.tail.alarm)
        return attrs.evolve(
            self,
            reference=self.reference if reference is None else attrs.evolve(reference, sealed=True),
            spoiled=(*self.spoiled, *((a.onset.low, self.cursor) for a in alarms if a is not None)),
            tail=RateTrack.start(self.cursor, 1),
            up=LocationTrack(),
            down=LocationTrack(),
            locations=(),
            tails=(),
        )

    @property
    def needs_from(self) -> int:
        """The first slot whose tallies `judge_drift` needs to go on from here."""
        start = day_start(self.cursor)
        needed = [start, self.tail.needs_from(start)]
        if self.reference is not None:
            needed.append(self.open_from)
        if self.reference is None or not self.reference.sealed:
            needed.append(self.baseline_from)
        if self.tail.alarm is not None:
            needed.append(min(start, self.tail.alarm.back.since) - SHOWN_SLOTS)
        for live in (self.up.alarm, self.down.alarm):
            if live is not None:
                needed.append(min(start, live.back_since if live.back else start) - SHOWN_SLOTS)
        return min(needed)

    @property
    def baseline_from(self) -> int:
        """The midnight at which the baseline begins, the next one as long as nothing was seen."""
        if self.reference is not None:
            return self.reference.first
        return day_start(self.cursor if self.first_seen is None else self.first_seen)

    @property
    def rows_a_day(self) -> float:
        """The larger of the baseline's traffic and that of the last whole days."""
        usual = self.reference.tail.units_a_day if self.reference is not None else 0.0
        return max(usual, sum(self.traffic) / len(self.traffic) if self.traffic else 0.0)


@attrs.frozen(eq=False)
class DriftPath:
    """The statistics over their bars: of the location after each window, named by its last slot, and of the
    tail after each slot with traffic.
    """

    windows: Ints
    up: Floats
    down: Floats
    slots: Ints
    tail: Floats


@attrs.frozen(eq=False)
class DriftJudgement:
    """What a look came to: the state to keep, the alarms that were live in it, oldest first, a state for each
    UTC midnight passed, and the path when it was asked for.
    """

    state: DriftState
    ups: tuple[DriftAlarm, ...]
    downs: tuple[DriftAlarm, ...]
    checkpoints: tuple[DriftState, ...]
    path: DriftPath | None


@attrs.frozen
class DriftArms:
    """The arms of a bucket. The two upward ones share the budget, half each."""

    up: LocationArm
    down: LocationArm
    tail: Arm

    @classmethod
    def of(cls, reference: DriftReference, rows_a_day: float, settings: DriftSettings) -> DriftArms:
        """For this reference and traffic."""
        span = max(reference.end - reference.first, SLOTS_PER_DAY)
        windows_a_day = reference.windows * SLOTS_PER_DAY / span
        windows = settings.months * bars.MONTH_DAYS * windows_a_day
        units = bars.alarm_units(settings.months, rows_a_day * bars.MONTH_DAYS)
        p0 = reference.tail.p0
        return cls(
            up=LocationArm.of(1, reference, settings.floor, 2 * windows),
            down=LocationArm.of(-1, reference, settings.floor, windows),
            tail=Arm.of("cusum", p0, min(2 * p0, 0.99), reference.tail.phi, 2 * units),
        )


def judge_drift(
    tallies: SizeTallies, settings: DriftSettings, state: DriftState, until: int, *, path: bool = False
) -> DriftJudgement:
    """Judge the slots from the state's cursor to `until`, which is the watermark.

    The tallies must reach back to `state.needs_from`; later ones than `until` are left alone.
    """
    look = _Look(tallies, settings, state)
    while look.state.cursor < until:
        midnight = day_start(look.state.cursor) + SLOTS_PER_DAY
        look.judge(min(midnight, until))
        if look.state.cursor == midnight:
            look.close_day()
    state = look.kept()
    ups, downs = look.alarms()
    return DriftJudgement(
        state=state,
        ups=tuple(with_shown(alarm, tallies, state.cursor) for alarm in ups),
        downs=tuple(with_shown(alarm, tallies, state.cursor) for alarm in downs),
        checkpoints=tuple(look.checkpoints),
        path=look.path() if path else None,
    )


class _Look:
    """One run over a bucket's slots, a day at a time."""

    def __init__(self, tallies: SizeTallies, settings: DriftSettings, state: DriftState) -> None:
        self.tallies = tallies
        self.settings = settings
        self.state = state
        self.ups: list[tuple[Part, DriftReference]] = []
        self.downs: list[tuple[Part, DriftReference]] = []
        if state.reference is not None:
            self.ups += [(part, state.reference) for part in state.locations]
            self.ups += [(part, state.reference) for part in state.tails]
        self.checkpoints: list[DriftState] = []
        self.windows: list[tuple[int, float, float]] = []
        self.slots: list[tuple[Ints, Floats]] = []

    def judge(self, end: int) -> None:
        """The slots from the cursor to `end`, all of one day."""
        state = self.state
        rows = self.tallies.between(state.cursor, end)
        if len(rows.slots):
            state = attrs.evolve(
                state,
                first_seen=int(rows.slots[0]) if state.first_seen is None else state.first_seen,
                last_seen=int(rows.slots[-1]),
                rows=state.rows + int(rows.counts.sum()),
            )
        self.state = state
        if state.reference is not None:
            arms = DriftArms.of(state.reference, state.rows_a_day, self.settings)
            self._judge_tail(state.reference, arms, rows)
            self._judge_windows(state.reference, arms, end)
        self.state = attrs.evolve(self.state, cursor=end)

    def _judge_tail(self, reference: DriftReference, arms: DriftArms, rows: SizeTallies) -> None:
        if not len(rows.slots):
            return
        track = self.state.tail
        past = self.tallies.between(track.needs_from(int(rows.slots[0])), int(rows.slots[-1]) + 1)
        advanced = advance(
            track,
            (arms.tail,),
            reference.tail,
            rows.tails(reference.tail_bins(rows.slots)),
            past.tails(reference.tail_bins(past.slots)),
        )
        self.ups += ((alarm, reference) for alarm in advanced.over)
        self.slots.append((np.unique(rows.slots), advanced.ratios))
        spoiled = (*self.state.spoiled, *advanced.track.spoiled)
        self.state = attrs.evolve(self.state, tail=attrs.evolve(advanced.track, spoiled=()), spoiled=spoiled)

    def _judge_windows(self, reference: DriftReference, arms: DriftArms, end: int) -> None:
        windows = Windows.of(self.tallies, self.state.open_from, end - end % SLOTS_PER_WINDOW)
        residuals = windows.means - reference.locations(windows.strata)
        variances = reference.variance(windows.rows)
        up, down, spoiled = self.state.up, self.state.down, self.state.spoiled
        for i in range(len(windows.starts)):
            window = Residual(
                int(windows.starts[i]),
                int(windows.ends[i]),
                int(windows.rows[i]),
                float(residuals[i]),
                float(variances[i]),
            )
            up, up_over = step(up, arms.up, window)
            down, down_over = step(down, arms.down, window)
            for over, overs in ((up_over, self.ups), (down_over, self.downs)):
                if over is not None:
                    overs.append((over, reference))
                    spoiled += ((over.onset.low, window.end),)
            self.windows.append((window.end - 1, up.height / arms.up.bar, down.height / arms.down.bar))
        self.state = attrs.evolve(self.state, up=up, down=down, spoiled=spoiled, open_from=windows.open_from)

    def close_day(self) -> None:
        """Midnight: count the day's traffic, make or refine the reference if it may be, keep a checkpoint."""
        state = self.state
        if state.first_seen is not None:
            day = self.tallies.between(state.cursor - SLOTS_PER_DAY, state.cursor)
            traffic = (*state.traffic, int(day.counts.sum()))[-TRAFFIC_DAYS:]
            state = attrs.evolve(state, traffic=traffic)
            if state.reference is None:
                state = self._armed(state)
            elif not state.reference.sealed:
                state = attrs.evolve(state, reference=self._refined(state, state.reference))
        self.state = state
        self.checkpoints.append(self.kept())

    def _armed(self, state: DriftState) -> DriftState:
        reference = self._baseline(state)
        if reference is None:
            return state
        cursor = state.cursor
        return attrs.evolve(
            state, reference=reference, armed=cursor, open_from=cursor, tail=RateTrack.start(cursor, 1)
        )

    def _baseline(self, state: DriftState) -> DriftReference | None:
        first = state.baseline_from
        rows = self.tallies.between(first, state.cursor)
        ranges = (*self.settings.barred, *state.spoiled)
        usable = rows.only(outside(rows.slots, ranges)) if ranges else rows
        return drift_reference(usable, first, state.cursor)

    def _refined(self, state: DriftState, reference: DriftReference) -> DriftReference:
        """The reference with all quiet days in it; one never quiet for three weeks has to do as it is."""
        if self._quiet(state, reference):
            return self._baseline(state) or reference
        old = state.cursor - reference.first > SEALED_SLOTS
        return attrs.evolve(reference, sealed=True) if old else reference

    def _quiet(self, state: DriftState, reference: DriftReference) -> bool:
        arms = DriftArms.of(reference, state.rows_a_day, self.settings)
        return state.up.quiet(arms.up) and state.down.quiet(arms.down) and state.tail.quiet((arms.tail,))

    def alarms(self) -> tuple[tuple[DriftAlarm, ...], tuple[DriftAlarm, ...]]:
        """The alarms so far, upwards and downwards; those that are live stand as they are by now."""
        reference = self.state.reference
        if reference is None:
            return (), ()
        live = (self.state.up.alarm, self.state.tail.alarm)
        ups = [*self.ups, *((part, reference) for part in live if part is not None)]
        down = self.state.down.alarm
        downs = [*self.downs, *([(down, reference)] if down is not None else [])]
        return clusters("up", ups), clusters("down", downs)

    def kept(self) -> DriftState:
        """The state with those parts of a live upward alarm that are over."""
        live = [alarm for alarm in self.alarms()[0] if alarm.recovered is None]
        return attrs.evolve(
            self.state,
            locations=tuple(p for alarm in live for p in alarm.locations if p.recovered is not None),
            tails=tuple(p for alarm in live for p in alarm.tails if p.recovered is not None),
        )

    def path(self) -> DriftPath:
        """The statistics over their bars, as far as they were judged."""
        ends, up, down = np.array(self.windows, np.float64).reshape(-1, 3).T
        return DriftPath(
            windows=ends.astype(np.int64),
            up=up,
            down=down,
            slots=np.concatenate([np.zeros(0, np.int64), *(slots for slots, _ in self.slots)]),
            tail=np.concatenate([np.zeros(0), *(ratios for _, ratios in self.slots)]),
        )
