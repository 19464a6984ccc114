"""Laws of the partitioner: at the start, every hour, and again after an outage or a crash."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.partitions import PAUSE_S, ROUND_S, Partitioner
from actors.supervision import Vitals, keep

MIDNIGHT = datetime(2026, 11, 1, tzinfo=UTC)


@attrs.define
class Calendar:
    """Remembers for which moments it was asked, in hours since its start."""

    asked_h: list[float] = attrs.field(factory=list)
    made_h: list[float] = attrs.field(factory=list)
    troubles: list[Exception] = attrs.field(factory=list)
    lying: int = 0
    home_h: list[float] = attrs.field(factory=list)

    async def make_days(self, today: datetime) -> int:
        hour = (today - MIDNIGHT) / timedelta(hours=1)
        self.asked_h.append(hour)
        await trio.lowlevel.checkpoint()
        if self.troubles:
            raise self.troubles.pop(0)
        self.made_h.append(hour)
        await trio.lowlevel.checkpoint()
        return 3

    async def bring_home(self, today: datetime) -> bool:
        await trio.lowlevel.checkpoint()
        if self.lying:
            self.lying -= 1
            self.home_h.append((today - MIDNIGHT) / timedelta(hours=1))
            return True
        return False


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


async def test_days_with_rows_to_move_are_made_one_after_the_other(autojump_clock: MockClock) -> None:
    rig = Rig(Calendar(lying=40))
    await rig.run_for(60 * PAUSE_S)
    # Never several at once, and not one an hour either.
    assert rig.calendar.home_h == pytest.approx([n * PAUSE_S / 3600 for n in range(40)], abs=1e-6)


@pytest.mark.errors_expected
async def test_after_a_crash_the_round_is_made_up_for_at_once(autojump_clock: MockClock) -> None:
    rig = Rig(Calendar(troubles=[RuntimeError("a bug")]))
    await rig.run_for(1.0)
    assert len(rig.calendar.made_h) == 1
    assert (rig.vitals.crashes, rig.vitals.state) == (1, "running")
