"""One look at one subject: what is kept of it and what was counted since, in; what changed, out.

Owns: `judge`, and `judge_rate`, `judge_answers` and `judge_size` behind it, which hand a subject to its
engine and bring what it says into the shape that findings are made of. The judge calls it, a backtest too.
Nothing here reads a clock or a table, and a look that goes on from a kept state says what one from the start
would have said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from svc.domain.detect.detectors.malformed_output import learned
from svc.domain.detect.engine.drift_engine import DriftSettings, DriftState, judge_drift
from svc.domain.detect.engine.drift_reference import expected_drift
from svc.domain.detect.engine.rate_engine import RateJudgement, RateSettings, RateState, judge_rates
from svc.domain.detect.engine.rate_reference import ARMED_AT, expected_reference
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, SLOTS_PER_WINDOW, day_start
from svc.domain.detect.engine.tallies import RateTallies, SizeTallies
from svc.domain.detect.findings.bucket import BucketState
from svc.domain.detect.findings.changes import Change, of_drift, of_early, of_rate
from svc.domain.lazy_numpy import np

#: Answers that are no JSON are looked at again when so many days have passed.
PROSE_AGAIN_SLOTS: Final = 7 * SLOTS_PER_DAY


#: What is counted of a subject: failures, sizes, or answers by their shape.
Counted = RateTallies | SizeTallies | Mapping[str, RateTallies]


@attrs.frozen(eq=False)
class Judgement:
    """What a look came to: the state to keep, the changes that were live in it, oldest first, and the states
    at midnights on the way.
    """

    state: BucketState
    changes: Sequence[Change]
    checkpoints: Sequence[BucketState]
    #: What was judged: of answers, units and failures by what they have in common.
    counted: RateTallies | SizeTallies


def judge(
    saved_state: BucketState | None,
    first: int,
    counted: Counted,
    months: float,
    tuning: Mapping[str, float],
    until: int,
    order: int = 1,
) -> Judgement:
    """A look at a subject, by the engine that its counts are for; `order` is as `RateSettings` has it."""
    if isinstance(counted, SizeTallies):
        return judge_size(saved_state, first, counted, DriftSettings.tuned(months, tuning), until)
    settings = RateSettings.tuned(months, tuning, order)
    if isinstance(counted, RateTallies):
        return judge_rate(saved_state, first, counted, settings, until)
    return judge_answers(saved_state, first, counted, settings, until)


def needs_from(saved_state: BucketState | None, first: int) -> int:
    """The first slot whose tallies a look from this state needs; `first` is the subject's first slot."""
    if saved_state is None:
        return day_start(first)
    inner = saved_state.rate or saved_state.drift
    return day_start(first) if inner is None else inner.needs_from


def judge_rate(
    saved_state: BucketState | None, first: int, tallies: RateTallies, settings: RateSettings, until: int
) -> Judgement:
    """A rate whose failures were counted as such."""
    state = (
        saved_state.rate
        if saved_state is not None and saved_state.rate is not None
        else RateState.start(day_start(first))
    )
    judgement = judge_rates(tallies, settings, state, until)
    return _rated(judgement, BucketState(judgement.state.cursor, rate=judgement.state), tallies)


def _rated(judged: RateJudgement, bucket_state: BucketState, counted: RateTallies) -> Judgement:
    state = judged.state
    changes = [
        *(of_rate(alarm, "up", state.units_a_day) for alarm in judged.rises),
        *(of_rate(alarm, "down", state.units_a_day) for alarm in judged.falls),
    ]
    if judged.early is not None and state.first_seen is not None:
        changes.insert(0, of_early(judged.early, state.first_seen))
    checkpoints = [
        attrs.evolve(bucket_state, cursor=checkpoint.cursor, rate=checkpoint)
        for checkpoint in judged.checkpoints
    ]
    return Judgement(bucket_state, changes, checkpoints, counted)


def judge_answers(
    saved_state: BucketState | None,
    first: int,
    shapes: Mapping[str, RateTallies],
    settings: RateSettings,
    until: int,
) -> Judgement:
    """Answers of a call site by shape, where no schema says what they should be.

    What they have in common is learned once there are enough of them, from the first ones; prose is left
    alone, and looked at again later. Until it is known nothing is judged: the state stays where it began.
    """
    state = saved_state if saved_state is not None else BucketState(day_start(first))
    if state.learned is None:
        start = state.cursor
        if state.prose:
            if until - start < PROSE_AGAIN_SLOTS:
                return Judgement(state, (), (), RateTallies.of(()))
            start = until - PROSE_AGAIN_SLOTS
        enough = _enough(shapes, start, until)
        if enough is None:
            gathering = attrs.evolve(state, rate=_gathering(shapes, start, until))
            return Judgement(gathering, (), (), RateTallies.of(()))
        lesson = learned(
            {
                shape: int(rows.between(start, enough).units.sum())
                for shape, rows in shapes.items()
                if len(rows.between(start, enough).slots)
            }
        )
        if lesson is None:
            return Judgement(BucketState(until, prose=True), (), (), RateTallies.of(()))
        state = BucketState(start, learned=lesson, rate=RateState.start(day_start(start)))
    if state.learned is None or state.rate is None:
        raise AssertionError("what is known of answers has a rate")
    rows = _together(shapes, state.learned.fits)
    judgement = judge_rates(rows, settings, state.rate, until)
    return _rated(judgement, attrs.evolve(state, cursor=judgement.state.cursor, rate=judgement.state), rows)


def _together(shapes: Mapping[str, RateTallies], fits: Callable[[str], bool]) -> RateTallies:
    """Answers of all shapes, failed where their shape does not fit."""
    return RateTallies.of(
        (slot, n, 0 if fits(shape) else n)
        for shape, rows in shapes.items()
        for slot, n in zip(rows.slots.tolist(), rows.units.tolist(), strict=True)
    )


def _enough(shapes: Mapping[str, RateTallies], first: int, until: int) -> int | None:
    """The end of the slots that are enough to learn from, None as long as they are not."""
    rows = _together(shapes, lambda _: True).between(first, until)
    units = np.cumsum(rows.units)
    for least, span in ARMED_AT:
        ready = np.flatnonzero((units >= least) & (rows.slots + 1 - first >= span))
        if len(ready):
            return int(rows.slots[ready[0]]) + 1
    return None


def _gathering(shapes: Mapping[str, RateTallies], first: int, until: int) -> RateState:
    """A state that says how many answers there are so far; it is made anew at each look."""
    slots = [int(slot) for rows in shapes.values() for slot in rows.between(first, until).slots]
    units = sum(int(rows.between(first, until).units.sum()) for rows in shapes.values())
    return attrs.evolve(
        RateState.start(first),
        learned=units,
        first_seen=min(slots, default=None),
        last_seen=max(slots, default=None),
    )


def judge_size(
    saved_state: BucketState | None, first: int, tallies: SizeTallies, settings: DriftSettings, until: int
) -> Judgement:
    """A duration or a cost."""
    state = (
        saved_state.drift
        if saved_state is not None and saved_state.drift is not None
        else DriftState.start(day_start(first))
    )
    judgement = judge_drift(tallies, settings, state, until)
    rows_a_day = judgement.state.rows_a_day
    changes = [of_drift(alarm, rows_a_day) for alarm in (*judgement.ups, *judgement.downs)]
    return Judgement(
        BucketState(judgement.state.cursor, drift=judgement.state),
        changes,
        [BucketState(checkpoint.cursor, drift=checkpoint) for checkpoint in judgement.checkpoints],
        tallies,
    )


def cleared(state: BucketState) -> BucketState:
    """After people decided of its alarms: nothing has climbed, what is usual stays."""
    return attrs.evolve(
        state,
        rate=None if state.rate is None else state.rate.cleared(),
        drift=None if state.drift is None else state.drift.cleared(),
    )


def moved(state: BucketState, run: RateTallies | SizeTallies, first: int, until: int) -> BucketState | None:
    """With the run from slot `first` on as what is usual; None as long as it is too short for that."""
    if state.rate is not None and isinstance(run, RateTallies):
        usual = expected_reference(run)
        return None if usual is None else attrs.evolve(state, rate=state.rate.cleared(usual))
    if state.drift is not None and state.drift.reference is not None and isinstance(run, SizeTallies):
        # Windows begin on a border of six hours.
        window_start = first + -first % SLOTS_PER_WINDOW
        present = expected_drift(run.between(window_start, until), window_start, until, state.drift.reference)
        return None if present is None else attrs.evolve(state, drift=state.drift.cleared(present))
    return None
