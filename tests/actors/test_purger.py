"""Laws of the purger: bounded steps, taken up again after anything, and a second look for what came late."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.purger import AGAIN, LATE, ROUND_S, STEP_ROWS, Purger
from actors.rounds import OUTAGE_PAUSE_S
from actors.supervision import Vitals, keep
from protocol.storage import Deleted, Outage
from tests.actors.every_await import Strike, at_every_await

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


@attrs.define
class Store:
    """Two tables with rows of projects."""

    rows: dict[str, int] = attrs.field(factory=lambda: {"trace": 3 * STEP_ROWS, "span": 10})
    projects: list[Deleted] = attrs.field(factory=lambda: [Deleted(1, NOON)])
    troubles: list[Exception] = attrs.field(factory=list)
    most: int = 0
    looked: int = 0

    async def deleted(self) -> Sequence[Deleted]:
        await trio.lowlevel.checkpoint()
        return list(self.projects)

    async def tables(self) -> Sequence[str]:
        self.looked += 1
        await trio.lowlevel.checkpoint()
        return list(self.rows)

    async def purge(self, project_id: int, table: str, limit: int) -> int:
        await trio.lowlevel.checkpoint()
        if self.troubles:
            raise self.troubles.pop(0)
        gone = min(limit, self.rows[table])
        self.most = max(self.most, gone)
        self.rows[table] -= gone
        await trio.lowlevel.checkpoint()
        return gone

    async def purged(self, project_id: int) -> None:
        await trio.lowlevel.checkpoint()
        self.projects = [project for project in self.projects if project.project_id != project_id]


@attrs.define
class Rig:
    """A store, a wall clock that goes with Trio's, and the purgers over them."""

    store: Store = attrs.field(factory=Store)
    vitals: Vitals = attrs.field(factory=lambda: Vitals("purger"))
    started_s: float = attrs.field(factory=trio.current_time)

    def now(self) -> datetime:
        return NOON + timedelta(seconds=trio.current_time() - self.started_s)

    def purger(self) -> Purger:
        return Purger(store=self.store, now=self.now, vitals=self.vitals)

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await keep(self.purger, self.vitals)


async def test_a_project_is_emptied_in_bounded_steps(autojump_clock: MockClock) -> None:
    rig = Rig()
    await rig.run_for(ROUND_S)
    assert rig.store.rows == {"trace": 0, "span": 0}
    assert rig.store.most == STEP_ROWS


async def test_an_empty_project_is_looked_at_again_until_nothing_can_come_late(
    autojump_clock: MockClock,
) -> None:
    rig = Rig()
    await rig.run_for(AGAIN.total_seconds() / 2)
    assert (rig.store.looked, len(rig.store.projects)) == (1, 1)
    rig.store.rows["span"] = 5
    await rig.run_for(AGAIN.total_seconds() + 2 * ROUND_S)
    assert rig.store.rows["span"] == 0
    assert rig.store.projects
    await rig.run_for(LATE.total_seconds() + AGAIN.total_seconds())
    assert rig.store.projects == []


async def test_an_outage_is_shown_and_the_purge_goes_on(autojump_clock: MockClock) -> None:
    rig = Rig(Store(troubles=[Outage("the database is away")]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run_for, 3 * ROUND_S)
        await trio.sleep(OUTAGE_PAUSE_S / 2)
        assert rig.vitals.snapshot()["waiting_for"] == "the database is away"
    assert rig.store.rows == {"trace": 0, "span": 0}


@pytest.mark.errors_expected
async def test_a_crash_in_mid_purge_is_made_up_for(autojump_clock: MockClock) -> None:
    rig = Rig(Store(troubles=[RuntimeError("a bug")]))
    await rig.run_for(2 * ROUND_S)
    assert (rig.vitals.crashes, rig.store.rows) == (1, {"trace": 0, "span": 0})


def test_a_purger_cancelled_at_any_await_is_followed_by_one_that_ends_the_work() -> None:
    async def scenario(strike: Strike) -> None:
        rig = Rig()
        await strike.run(partial(rig.run_for, ROUND_S))
        await rig.run_for(2 * ROUND_S)
        assert rig.store.rows == {"trace": 0, "span": 0}

    assert at_every_await(scenario) >= 6
