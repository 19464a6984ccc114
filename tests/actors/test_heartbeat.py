"""Laws of the heartbeat: its rhythm, its patience, that nobody waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.heartbeat import PERIOD_S, Heartbeat
from actors.supervision import Vitals, keep
from protocol.storage import Census

NOW = datetime(2026, 11, 1, tzinfo=UTC)
CENSUS = Census("id", 1, 2, 3)


@attrs.define
class Rig:
    """A census that meets `troubles` first, and a host that answers with `faults` first."""

    troubles: list[Exception] = attrs.field(factory=list)
    faults: list[str] = attrs.field(factory=list)
    leads: bool = True
    beats_s: list[float] = attrs.field(factory=list)
    vitals: Vitals = attrs.field(factory=lambda: Vitals("heartbeat"))

    async def take(self, now: datetime) -> Census:
        await trio.lowlevel.checkpoint()
        if self.troubles:
            raise self.troubles.pop(0)
        return CENSUS

    async def deliver(self, message: Mapping[str, Any]) -> str | None:
        assert message == {"census": CENSUS, "now": NOW}
        await trio.lowlevel.checkpoint()
        self.beats_s.append(trio.current_time())
        return self.faults.pop(0) if self.faults else None

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(
            census=self,
            compose=lambda census, now: {"census": census, "now": now},
            deliver=self.deliver,
            now=lambda: NOW,
            leads=lambda: self.leads,
            vitals=self.vitals,
        )

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await keep(self.heartbeat, self.vitals)


async def test_it_beats_once_at_the_start_and_every_day(autojump_clock: MockClock) -> None:
    rig = Rig(faults=["status 500"])
    started_s = trio.current_time()
    await rig.run_for(2.5 * PERIOD_S)
    assert [at - started_s for at in rig.beats_s] == pytest.approx([0, PERIOD_S, 2 * PERIOD_S])
    assert rig.vitals.snapshot() == {"state": "running", "crashes": 0}


@pytest.mark.errors_expected
async def test_after_a_crash_it_beats_again(autojump_clock: MockClock) -> None:
    rig = Rig(troubles=[RuntimeError("a bug")])
    await rig.run_for(1.0)
    assert (rig.vitals.crashes, len(rig.beats_s)) == (1, 1)


async def test_a_copy_beats_only_while_that_is_its_duty(autojump_clock: MockClock) -> None:
    rig = Rig(leads=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run_for, 2 * PERIOD_S)
        await trio.sleep(PERIOD_S)
        assert rig.beats_s == []
        rig.leads = True
        await trio.sleep(11)
        assert len(rig.beats_s) == 1
