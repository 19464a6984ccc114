"""The leases of a copy: held by its own clock, lost in an outage in time, released at the end."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio
from trio.testing import MockClock

from actors.leases import LIFE_S, RENEW_S, LeaseKeeper, Leases
from actors.rounds import OUTAGE_PAUSE_S
from actors.supervision import Vitals
from protocol.storage import Outage


@attrs.define
class Table:
    """Gives everything until it is away or somebody else's."""

    away: bool = False
    taken: bool = False
    asked: int = 0
    released: int = 0

    async def take(self, names: Sequence[str], life_s: float) -> frozenset[str]:
        self.asked += 1
        if self.away:
            raise Outage("away")
        return frozenset() if self.taken else frozenset(names)

    async def release(self) -> None:
        self.released += 1


async def test_a_copy_that_cannot_renew_has_lost_its_duty_when_the_lease_is_over(
    autojump_clock: MockClock,
) -> None:
    table, duties = Table(), Leases(("beat",), alone=False)
    keeper = LeaseKeeper(leases=duties, store=table, vitals=Vitals("leases", spare=True))
    assert not duties.held("beat")
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: keeper.run(task_status=task_status))
        await trio.sleep(3 * LIFE_S)
        assert duties.held("beat")
        table.away = True
        await trio.sleep(LIFE_S - RENEW_S - 1)
        assert duties.held("beat")
        await trio.sleep(RENEW_S + 2)
        assert not duties.held("beat")
        table.away = False
        await trio.sleep(RENEW_S)
        assert duties.held("beat")
        table.taken = True
        # It goes on in step with its attempts, not with this test.
        await trio.sleep(RENEW_S + 2 * OUTAGE_PAUSE_S)
        assert not duties.held("beat")
        nursery.cancel_scope.cancel()
    assert table.released == 1


async def test_a_copy_that_stops_has_no_duty_any_more_and_says_so(autojump_clock: MockClock) -> None:
    table, duties = Table(), Leases(("beat",), alone=False)
    keeper = LeaseKeeper(leases=duties, store=table, vitals=Vitals("leases", spare=True))
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: keeper.run(task_status=task_status))
        await trio.sleep(1)
        assert duties.held("beat")
        nursery.cancel_scope.cancel()
    assert not duties.held("beat")
    assert table.released == 1


async def test_a_copy_without_others_has_every_duty() -> None:
    duties = Leases(("beat", "pay"), alone=True)
    assert duties.held("beat")
    assert duties.held("pay")
