"""Laws of the trace roller: its rhythm, its patience, and that a backlog outlives it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.roller import IDLE_S, ROUND_S, ROUND_TRACES, RollerTally, TraceRoller
from actors.rounds import OUTAGE_PAUSE_S
from actors.supervision import Vitals, keep
from protocol.storage import Outage, Settled
from tests.actors.every_await import Strike, at_every_await

NOW = datetime(2026, 11, 1, tzinfo=UTC)


async def server_time() -> datetime:
    return NOW


@attrs.define
class Store:
    """Traces that are due, every second one of them quiet. The next rounds meet `troubles` first.

    A further one is due at `next_at`.
    """

    due: int = 0
    next_at: datetime | None = NOW
    settled: int = 0
    troubles: list[Exception] = attrs.field(factory=list)
    rounds_s: list[float] = attrs.field(factory=list)

    async def settle(self, now: datetime, limit: int) -> Settled:
        assert (now, limit) == (NOW, ROUND_TRACES)
        self.rounds_s.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if self.troubles:
            raise self.troubles.pop(0)
        seen = min(self.due, limit)
        self.due -= seen
        self.settled += seen // 2
        # The answer to a commit that the asker may not live to hear.
        await trio.lowlevel.checkpoint()
        return Settled(seen, seen // 2, None if seen else self.next_at)

    def gaps_s(self) -> list[float]:
        """The time between one round and the next."""
        return [later - earlier for earlier, later in zip(self.rounds_s, self.rounds_s[1:], strict=False)]


@attrs.define
class Rig:
    """A store and the rollers over it."""

    store: Store = attrs.field(factory=Store)
    tally: RollerTally = attrs.field(factory=RollerTally)
    vitals: Vitals = attrs.field(factory=lambda: Vitals("trace-roller"))

    def roller(self) -> TraceRoller:
        return TraceRoller(store=self.store, now=server_time, tally=self.tally, vitals=self.vitals)

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await keep(self.roller, self.vitals)


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_it_looks_four_times_a_second_while_something_is_due(
    rig: Rig, autojump_clock: MockClock
) -> None:
    await rig.run_for(2.1)
    assert rig.store.gaps_s() == pytest.approx([ROUND_S] * 8)
    assert rig.tally == RollerTally(rounds=9)
    assert rig.vitals.state == "running"


@pytest.mark.parametrize(
    ("ahead_s", "rest_s"), [(None, IDLE_S), (60.0, IDLE_S), (0.6, 0.6), (0.1, ROUND_S), (-5.0, ROUND_S)]
)
async def test_while_nothing_is_due_it_looks_again_when_something_is_and_once_a_second_at_least(
    rig: Rig, autojump_clock: MockClock, ahead_s: float | None, rest_s: float
) -> None:
    rig.store.next_at = None if ahead_s is None else NOW + timedelta(seconds=ahead_s)
    await rig.run_for(2.5 * rest_s)
    assert rig.store.gaps_s() == pytest.approx([rest_s] * 2)


async def test_a_backlog_is_worked_off_without_a_pause(rig: Rig, autojump_clock: MockClock) -> None:
    rig.store.due = 3 * ROUND_TRACES + 1
    await rig.run_for(0.5 + ROUND_S / 2)
    assert rig.store.gaps_s() == pytest.approx([0.0, 0.0, 0.0, ROUND_S, ROUND_S])
    assert rig.tally == RollerTally(rounds=6, rolled=3 * ROUND_TRACES + 1, settled=3 * ROUND_TRACES // 2)


async def test_others_get_their_turn_while_a_backlog_is_worked_off(
    rig: Rig, autojump_clock: MockClock
) -> None:
    class Instant(Store):
        async def settle(self, now: datetime, limit: int) -> Settled:
            self.due -= limit
            return Settled(limit, 0)

    rig.store = Instant(due=100 * ROUND_TRACES)
    dues: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.roller().run)
        while rig.store.due > 0:
            dues.append(rig.store.due)
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert len(dues) > 90


async def test_an_outage_is_waited_out_shown_and_no_round(rig: Rig, autojump_clock: MockClock) -> None:
    rig.store.troubles = [Outage("the database is away")] * 3
    rig.store.due = 5
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keep, rig.roller, rig.vitals))
        await trio.sleep(1.5)
        assert rig.vitals.snapshot()["waiting_for"] == "the database is away"
        assert rig.tally == RollerTally()
        await trio.sleep(1.6)
        nursery.cancel_scope.cancel()
    assert rig.store.gaps_s() == pytest.approx([OUTAGE_PAUSE_S] * 3)
    assert rig.vitals.snapshot() == {"state": "running", "crashes": 0}
    assert rig.tally == RollerTally(rounds=1, rolled=5, settled=2)


@pytest.mark.errors_expected
async def test_a_crash_in_a_round_leaves_the_traces_due_for_the_next_life(
    rig: Rig, autojump_clock: MockClock
) -> None:
    rig.store.due, rig.store.troubles = 5, [RuntimeError("a bug")]
    await rig.run_for(1.0)
    assert (rig.vitals.crashes, rig.vitals.state) == (1, "running")
    assert (rig.store.due, rig.tally.rolled) == (0, 5)


async def test_two_rollers_share_the_work(rig: Rig, autojump_clock: MockClock) -> None:
    rig.store.due = 10 * ROUND_TRACES
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run_for, 1.0)
        nursery.start_soon(partial(Rig(rig.store, rig.tally).run_for, 1.0))
    assert (rig.store.due, rig.tally.rolled) == (0, 10 * ROUND_TRACES)


def test_a_roller_cancelled_at_any_await_counts_no_round_it_did_not_finish() -> None:
    async def scenario(strike: Strike) -> None:
        rig = Rig(Store(due=2 * ROUND_TRACES + 8, troubles=[Outage("away")]))
        await strike.run(partial(rig.run_for, 1.4))
        done = 2 * ROUND_TRACES + 8 - rig.store.due
        # At most the round in hand is done and not counted; what is counted is done.
        assert done - ROUND_TRACES <= rig.tally.rolled <= done
        await rig.run_for(1.0 + OUTAGE_PAUSE_S)
        assert (rig.store.due, rig.store.settled) == (0, ROUND_TRACES + 4)

    assert at_every_await(scenario) >= 12
