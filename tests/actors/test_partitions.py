"""Laws of the partitioner: at the start, every hour, and again after an outage or a crash."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.partitions import OUTAGE_PAUSE_S, ROUND_S, Partitioner
from actors.supervision import Vitals, keep
from protocol.storage import Outage
from tests.actors.every_await import Strike, at_every_await

MIDNIGHT = datetime(2026, 11, 1, tzinfo=UTC)


@attrs.define
class Calendar:
    """Remembers for which moments it was asked, in hours since its start."""

    asked_h: list[float] = attrs.field(factory=list)
    made_h: list[float] = attrs.field(factory=list)
    troubles: list[Exception] = attrs.field(factory=list)

    async def make_days(self, today: datetime) -> int:
        hour = (today - MIDNIGHT) / timedelta(hours=1)
        self.asked_h.append(hour)
        await trio.lowlevel.checkpoint()
        if self.troubles:
            raise self.troubles.pop(0)
        self.made_h.append(hour)
        await trio.lowlevel.checkpoint()
        return 3


@attrs.define
class Rig:
    """A calendar, a wall clock that goes with Trio's, and the partitioners over them."""

    calendar: Calendar = attrs.field(factory=Calendar)
    vitals: Vitals = attrs.field(factory=lambda: Vitals("partitioner"))
    started_s: float = attrs.field(factory=trio.current_time)

    def now(self) -> datetime:
        return MIDNIGHT + timedelta(seconds=trio.current_time() - self.started_s)

    def partitioner(self) -> Partitioner:
        return Partitioner(calendar=self.calendar, now=self.now, vitals=self.vitals)

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await keep(self.partitioner, self.vitals)


async def test_days_are_made_at_the_start_and_then_every_hour(autojump_clock: MockClock) -> None:
    rig = Rig()
    await rig.run_for(3.5 * ROUND_S)
    assert rig.calendar.made_h == pytest.approx([0.0, 1.0, 2.0, 3.0], abs=1e-6)
    assert rig.vitals.snapshot() == {"state": "running", "crashes": 0}


async def test_the_service_starts_without_waiting_for_the_first_round(autojump_clock: MockClock) -> None:
    rig = Rig(Calendar(troubles=[Outage("away")] * 1000))
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keep, rig.partitioner, rig.vitals))
        assert trio.current_time() == rig.started_s
        nursery.cancel_scope.cancel()


async def test_an_outage_is_shown_and_tried_again_soon(autojump_clock: MockClock) -> None:
    rig = Rig(Calendar(troubles=[Outage("the database is away")] * 2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run_for, ROUND_S + 3 * OUTAGE_PAUSE_S)
        await trio.sleep(OUTAGE_PAUSE_S * 1.5)
        assert rig.vitals.snapshot()["waiting_for"] == "the database is away"
        await trio.sleep(OUTAGE_PAUSE_S)
        assert rig.vitals.snapshot() == {"state": "running", "crashes": 0}
    pause_h = OUTAGE_PAUSE_S / 3600
    assert rig.calendar.asked_h == pytest.approx([0.0, pause_h, 2 * pause_h, 1 + 2 * pause_h], abs=1e-6)
    assert rig.calendar.made_h == pytest.approx([2 * pause_h, 1 + 2 * pause_h], abs=1e-6)


@pytest.mark.errors_expected
async def test_after_a_crash_the_round_is_made_up_for_at_once(autojump_clock: MockClock) -> None:
    rig = Rig(Calendar(troubles=[RuntimeError("a bug")]))
    await rig.run_for(1.0)
    assert len(rig.calendar.made_h) == 1
    assert (rig.vitals.crashes, rig.vitals.state) == (1, "running")


def test_a_partitioner_cancelled_at_any_await_is_followed_by_one_that_makes_the_days() -> None:
    async def scenario(strike: Strike) -> None:
        rig = Rig(Calendar(troubles=[Outage("away")]))
        await strike.run(partial(rig.run_for, 1.5 * ROUND_S))
        made = len(rig.calendar.made_h)
        assert strike.fell or made == 2
        await rig.run_for(2 * OUTAGE_PAUSE_S)
        assert len(rig.calendar.made_h) == made + 1

    assert at_every_await(scenario) >= 6
