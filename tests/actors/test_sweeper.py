"""Laws of the retention sweeper: its rhythm, its tally, its patience; a cut-off sweep is taken up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.rounds import OUTAGE_PAUSE_S
from actors.supervision import Vitals, keep
from actors.sweeper import ROUND_S, RetentionSweeper, SweepTally
from protocol.storage import Freed, Outage
from tests.actors.every_await import Strike, at_every_await

NOW = datetime(2026, 11, 1, tzinfo=UTC)
STEPS = 3


@attrs.define
class Store:
    """Holds expired days; a sweep drops them one by one. The next steps meet `troubles` first."""

    expired: int = STEPS
    dropped: int = 0
    swept_s: list[float] = attrs.field(factory=list)
    troubles: list[Exception] = attrs.field(factory=list)

    async def sweep(self, now: datetime, freed: Callable[[Freed], None]) -> None:
        assert now == NOW
        self.swept_s.append(trio.current_time())
        while self.expired > 0:
            await trio.lowlevel.checkpoint()
            if not self.expired:
                # Another sweeper was quicker.
                break
            if self.troubles:
                raise self.troubles.pop(0)
            self.expired -= 1
            self.dropped += 1
            freed(Freed("span", days=1, rows=10, bytes=100))
        freed(Freed("trace", rows=2))
        await trio.lowlevel.checkpoint()


@attrs.define
class Rig:
    """A store and the sweepers over it."""

    store: Store = attrs.field(factory=Store)
    tally: SweepTally = attrs.field(factory=SweepTally)
    vitals: Vitals = attrs.field(factory=lambda: Vitals("retention-sweeper"))

    def sweeper(self) -> RetentionSweeper:
        return RetentionSweeper(retention=self.store, now=lambda: NOW, tally=self.tally, vitals=self.vitals)

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await keep(self.sweeper, self.vitals)


async def test_it_sweeps_at_the_start_and_then_every_hour(autojump_clock: MockClock) -> None:
    rig = Rig()
    started_s = trio.current_time()
    await rig.run_for(2.5 * ROUND_S)
    assert [at - started_s for at in rig.store.swept_s] == pytest.approx([0, ROUND_S, 2 * ROUND_S])
    assert (rig.tally.sweeps, rig.tally.days, rig.tally.rows, rig.tally.bytes) == (3, 3, 36, 300)


async def test_the_tally_tells_what_the_last_sweep_freed(autojump_clock: MockClock) -> None:
    rig = Rig()
    await rig.run_for(1.0)
    told = rig.tally.snapshot()
    assert told["last_freed"] == {"bytes": 300, "span_days": 3, "span_rows": 30, "trace_rows": 2}
    assert told["last_ended_at"] == NOW
    await rig.run_for(1.0)
    assert rig.tally.last_freed == {"trace_rows": 2}


async def test_an_outage_is_shown_and_the_sweep_taken_up_soon(autojump_clock: MockClock) -> None:
    rig = Rig(Store(troubles=[Outage("the database is away")] * 2))
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keep, rig.sweeper, rig.vitals))
        await trio.sleep(OUTAGE_PAUSE_S * 1.5)
        assert rig.vitals.snapshot()["waiting_for"] == "the database is away"
        assert rig.tally.sweeps == 0
        await trio.sleep(OUTAGE_PAUSE_S)
        nursery.cancel_scope.cancel()
    assert (rig.vitals.state, rig.tally.sweeps, rig.store.dropped) == ("running", 1, STEPS)


@pytest.mark.errors_expected
async def test_after_a_crash_with_days_in_hand_the_rest_is_swept_at_once(autojump_clock: MockClock) -> None:
    rig = Rig()

    def crash(freed: Freed) -> None:
        if freed.days and rig.store.dropped == 2:
            rig.store.troubles.append(RuntimeError("a bug"))

    note = RetentionSweeper._note

    class Crashing(RetentionSweeper):
        def _note(self, freed: Freed) -> None:
            note(self, freed)
            crash(freed)

    def build() -> RetentionSweeper:
        return Crashing(retention=rig.store, now=lambda: NOW, tally=rig.tally, vitals=rig.vitals)

    with trio.move_on_after(1.0):
        await keep(build, rig.vitals)
    assert (rig.vitals.crashes, rig.vitals.state) == (1, "running")
    assert (rig.store.dropped, rig.tally.days) == (STEPS, STEPS)


async def test_two_sweepers_share_the_work(autojump_clock: MockClock) -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run_for, 1.0)
        nursery.start_soon(Rig(rig.store, rig.tally).run_for, 1.0)
    assert (rig.store.dropped, rig.tally.days) == (STEPS, STEPS)


def test_a_sweeper_cancelled_at_any_await_is_followed_by_one_that_finishes() -> None:
    async def scenario(strike: Strike) -> None:
        rig = Rig(Store(troubles=[Outage("away")]))
        await strike.run(partial(rig.run_for, ROUND_S / 2))
        # What is counted is what was dropped, whenever the blow fell.
        assert rig.tally.days == rig.store.dropped
        await rig.run_for(2 * OUTAGE_PAUSE_S)
        assert (rig.store.dropped, rig.tally.days) == (STEPS, STEPS)

    assert at_every_await(scenario) >= 6
