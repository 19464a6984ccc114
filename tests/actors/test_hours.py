"""Laws of the hour builder: its rhythm, its patience, and that a backlog outlives it."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.hours import BACKLOG_PAUSE_S, ROUND_HOURS, HourBuilder
from actors.supervision import Vitals, keep
from protocol.storage import Built

NOW = datetime(2026, 11, 1, tzinfo=UTC)
ROUND_S = 30.0


async def server_time() -> datetime:
    return NOW


@attrs.define
class Store:
    """Closed hours that wait to be built; each is built once. The next rounds meet `troubles` first."""

    waiting: int = 0
    built: int = 0
    troubles: list[Exception] = attrs.field(factory=list)
    rounds_s: list[float] = attrs.field(factory=list)

    async def build(self, now: datetime, limit: int) -> Built:
        assert (now, limit) == (NOW, ROUND_HOURS)
        self.rounds_s.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if self.troubles:
            raise self.troubles.pop(0)
        hours = min(self.waiting, limit)
        self.waiting -= hours
        self.built += hours
        # The answer to a commit that the asker may not live to hear.
        await trio.lowlevel.checkpoint()
        return Built(hours, more=self.waiting > 0)

    def gaps_s(self) -> list[float]:
        """The time between one round and the next."""
        return [later - earlier for earlier, later in zip(self.rounds_s, self.rounds_s[1:], strict=False)]


@attrs.define
class Rig:
    """A store and a builder over it."""

    store: Store = attrs.field(factory=Store)
    vitals: Vitals = attrs.field(factory=lambda: Vitals("cube-builder"))

    def builder(self) -> HourBuilder:
        return HourBuilder(hours=self.store, now=server_time, vitals=self.vitals, round_s=ROUND_S)

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await keep(self.builder, self.vitals)


async def test_it_looks_once_a_round(autojump_clock: MockClock) -> None:
    rig = Rig()
    await rig.run_for(4.5 * ROUND_S)
    assert rig.store.gaps_s() == pytest.approx([ROUND_S] * 4)
    assert rig.vitals.state == "running"


async def test_a_backlog_is_worked_off_with_short_pauses(autojump_clock: MockClock) -> None:
    rig = Rig(Store(waiting=3 * ROUND_HOURS + 1))
    await rig.run_for(ROUND_S)
    assert rig.store.gaps_s() == pytest.approx([BACKLOG_PAUSE_S] * 3)
    assert (rig.store.waiting, rig.store.built) == (0, 3 * ROUND_HOURS + 1)


@pytest.mark.errors_expected
async def test_a_crash_in_a_round_leaves_the_hours_to_the_next_life(autojump_clock: MockClock) -> None:
    rig = Rig(Store(waiting=5, troubles=[RuntimeError("a bug")]))
    await rig.run_for(ROUND_S)
    assert (rig.vitals.crashes, rig.vitals.state) == (1, "running")
    assert (rig.store.waiting, rig.store.built) == (0, 5)
