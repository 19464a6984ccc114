"""Laws of the decoder processes' keeper: no order is forgotten, whatever the process does.

The process of these tests is a task at the other end of a memory stream. Its `manner` says what it makes of
an order; the real process is met in `tests/e2e` and `tests/chaos`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import attrs
import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from actors.child_pipe import ASLEEP
from actors.decoders import (
    ANSWER_TIMEOUT_S,
    ASLEEP_ON_DEMAND,
    ORDERS_BOUND,
    REST_S,
    DecoderProcess,
    Decoders,
    Lane,
    NoDecoder,
)
from actors.supervision import Vitals
from protocol.decoding import Begun, Write, frame, outcome, read_to_decoder
from protocol.framing import Frames
from protocol.storage import Batch, Outage, SinkLost, StoreRefused, WriteFailed, Written
from tests.actors.every_await import Strike, at_every_await

BATCH = Batch(7, b"body", 3, datetime(2026, 11, 1, tzinfo=UTC), 0.0)

Stream = trio.abc.Stream
Manner = Callable[[Stream, Write], Awaitable[None]]


async def say(stream: Stream, message: object) -> None:
    await stream.send_all(b"".join(frame(message)))  # type: ignore[arg-type]


async def store(stream: Stream, order: Write) -> None:
    await say(stream, outcome(order.number, Written(sum(batch.spans for batch in order.batches), 0)))


async def ignore(stream: Stream, order: Write) -> None:
    """Take the order and never answer."""


async def die(stream: Stream, order: Write) -> None:
    await stream.aclose()


async def babble(stream: Stream, order: Write) -> None:
    await stream.send_all(b"\x00\x00\x00\x02no")


@attrs.define(eq=False)
class House:
    """One lane, its keeper, and processes that behave as told: the next manner is for the next process."""

    manners: list[Manner] = attrs.field(factory=lambda: [store])
    lane: Lane = attrs.field(factory=lambda: Lane(Vitals("decoder-1")))
    launched: int = 0
    orders: list[int] = attrs.field(factory=list)

    @property
    def decoders(self) -> Decoders:
        return Decoders([self.lane])

    @asynccontextmanager
    async def launch(self) -> AsyncIterator[Stream]:
        manner = self.manners[min(self.launched, len(self.manners) - 1)]
        self.launched += 1
        ours, theirs = memory_stream_pair()
        # The task belongs to no nursery here, which would wrap what the keeper raises.
        trio.lowlevel.spawn_system_task(self._process, theirs, manner)
        try:
            yield ours
        finally:
            with trio.CancelScope(shield=True):
                await theirs.aclose()

    async def _process(self, stream: Stream, manner: Manner) -> None:
        frames = Frames()
        try:
            await say(stream, Begun())
            async for data in stream:
                frames.feed(data)
                while (message := frames.next()) is not None:
                    order = read_to_decoder(message)
                    assert isinstance(order, Write)
                    self.orders.append(order.number)
                    await manner(stream, order)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Decoders]:
        async with trio.open_nursery() as nursery:
            await nursery.start(DecoderProcess(lane=self.lane, launch=self.launch).run)
            yield self.decoders
            nursery.cancel_scope.cancel()


async def test_an_order_is_carried_out_and_answered() -> None:
    house = House()
    async with house.running() as decoders:
        assert await decoders.write([BATCH, BATCH]) == Written(6, 0)
        assert not house.lane.orders


async def test_orders_are_answered_in_any_order() -> None:
    held: list[Write] = []

    async def backwards(stream: Stream, order: Write) -> None:
        held.append(order)
        if len(held) == 3:
            for each in reversed(held):
                await say(stream, outcome(each.number, Written(len(each.batches), 0)))

    answers: list[int] = []

    async def ask(batches: int) -> None:
        answers.append((await decoders.write([BATCH] * batches)).stored)

    async with House([backwards]).running() as decoders, trio.open_nursery() as nursery:
        for batches in (1, 2, 3):
            nursery.start_soon(ask, batches)
    assert sorted(answers) == [1, 2, 3]


@pytest.mark.parametrize(
    "error", [Outage("away"), StoreRefused("DataError"), WriteFailed("ValueError: x", "ValueError in f")]
)
async def test_what_the_process_met_is_raised_here(error: Exception) -> None:
    async def fail(stream: Stream, order: Write) -> None:
        await say(stream, outcome(order.number, error))

    async with House([fail]).running() as decoders:
        with pytest.raises(type(error), match=str(error)):
            await decoders.write([BATCH])


@pytest.mark.parametrize("manner", [die, babble])
async def test_a_process_that_dies_with_an_order_in_hand_says_so_and_is_replaced(
    manner: Manner, autojump_clock: MockClock
) -> None:
    house = House([manner, store])
    async with house.running() as decoders:
        with pytest.raises(SinkLost):
            await decoders.write([BATCH])
        # While nobody is up, waiting helps.
        with pytest.raises(Outage):
            await decoders.write([BATCH])
        assert house.lane.vitals.snapshot()["state"] == "waiting"
        await trio.sleep(1.0)
        assert await decoders.write([BATCH]) == Written(3, 0)
        assert house.lane.vitals.snapshot() == {"state": "running", "crashes": 0}
        assert house.lane.deaths == 1


async def test_a_process_that_hangs_is_replaced(autojump_clock: MockClock) -> None:
    house = House([ignore, store])
    async with house.running() as decoders:
        before = trio.current_time()
        with pytest.raises(SinkLost):
            await decoders.write([BATCH])
        assert ANSWER_TIMEOUT_S <= trio.current_time() - before <= 2 * ANSWER_TIMEOUT_S
        await trio.sleep(1.0)
        assert await decoders.write([BATCH]) == Written(3, 0)


async def test_a_process_with_nothing_to_do_may_be_silent(autojump_clock: MockClock) -> None:
    house = House()
    async with house.running() as decoders:
        await trio.sleep(2 * ANSWER_TIMEOUT_S)
        assert await decoders.write([BATCH]) == Written(3, 0)
    assert house.launched == 1


async def test_a_process_that_rested_begins_again_with_the_next_order_which_waits_for_it(
    autojump_clock: MockClock,
) -> None:
    house = House()
    async with house.running() as decoders:
        await trio.sleep(2.1 * REST_S)
        assert (house.lane.up, house.lane.asleep, house.launched) == (False, True, 1)
        assert house.lane.vitals.snapshot() == {"state": "running", "crashes": 0, "note": ASLEEP}
        assert await decoders.write([BATCH]) == Written(3, 0)
        assert house.lane.vitals.snapshot() == {"state": "running", "crashes": 0}
        assert (house.launched, house.lane.deaths) == (2, 0)


async def test_orders_that_come_at_once_wake_one_process_alone(autojump_clock: MockClock) -> None:
    first, second = House(), House(lane=Lane(Vitals("decoder-2"), on_demand=True))
    both = Decoders([first.lane, second.lane])
    written: list[Written] = []

    async def ask() -> None:
        written.append(await both.write([BATCH]))

    async with first.running(), second.running():
        await trio.sleep(2.1 * REST_S)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
    assert (first.launched, second.launched) == (2, 0)
    assert written == [Written(3, 0)] * 3


async def test_an_order_that_comes_while_the_process_still_goes_waits_for_the_next(
    autojump_clock: MockClock,
) -> None:
    @asynccontextmanager
    async def slow_to_go() -> AsyncIterator[Stream]:
        async with house.launch() as stream:
            yield stream
            await trio.sleep(2.0)

    house = House()
    async with trio.open_nursery() as nursery:
        await nursery.start(DecoderProcess(lane=house.lane, launch=slow_to_go).run)
        await trio.sleep(REST_S + 1.0)
        assert (house.lane.asleep, house.launched) == (True, 1)
        assert await house.decoders.write([BATCH]) == Written(3, 0)
        assert (house.launched, house.lane.deaths) == (2, 0)
        nursery.cancel_scope.cancel()


async def test_a_process_that_does_not_come_up_again_is_an_outage_until_it_does(
    autojump_clock: MockClock,
) -> None:
    @asynccontextmanager
    async def not_the_second_time() -> AsyncIterator[Stream]:
        if house.launched == 1:
            house.launched += 1
            raise OSError("no more processes")
        async with house.launch() as stream:
            yield stream

    house = House()
    async with trio.open_nursery() as nursery:
        await nursery.start(DecoderProcess(lane=house.lane, launch=not_the_second_time).run)
        await trio.sleep(2.1 * REST_S)
        with pytest.raises(Outage):
            await house.decoders.write([BATCH])
        await trio.sleep(1.0)
        assert await house.decoders.write([BATCH]) == Written(3, 0)
        nursery.cancel_scope.cancel()


async def test_a_process_that_keeps_dying_is_tried_at_a_bounded_pace(autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def once_then_never() -> AsyncIterator[Stream]:
        house.launched += 1
        if house.launched > 1:
            raise OSError("no more processes")
        ours, theirs = memory_stream_pair()
        await say(theirs, Begun())
        await theirs.aclose()
        yield ours

    house = House()
    async with trio.open_nursery() as nursery:
        await nursery.start(DecoderProcess(lane=house.lane, launch=once_then_never).run)
        await trio.sleep(60.0)
        nursery.cancel_scope.cancel()
    assert 10 <= house.launched <= 20


async def test_a_process_that_dies_before_it_is_told_anything_is_waited_out(
    autojump_clock: MockClock,
) -> None:
    @asynccontextmanager
    async def broken_once() -> AsyncIterator[Stream]:
        if house.launched == 1:
            house.launched += 1
            raise trio.BrokenResourceError
        async with house.launch() as stream:
            yield stream

    house = House([die, store])
    async with trio.open_nursery() as nursery:
        await nursery.start(DecoderProcess(lane=house.lane, launch=broken_once).run)
        with pytest.raises(SinkLost):
            await house.decoders.write([BATCH])
        await trio.sleep(5.0)
        assert await house.decoders.write([BATCH]) == Written(3, 0)
        nursery.cancel_scope.cancel()


async def test_a_process_that_does_not_even_start_is_a_failure_of_the_boot(
    autojump_clock: MockClock,
) -> None:
    @asynccontextmanager
    async def mute() -> AsyncIterator[Stream]:
        ours, _theirs = memory_stream_pair()
        yield ours

    @asynccontextmanager
    async def dead() -> AsyncIterator[Stream]:
        ours, theirs = memory_stream_pair()
        await theirs.aclose()
        yield ours

    lane = Lane(Vitals("decoder-1"))
    with pytest.raises(NoDecoder, match="a decoder process cannot start: it did not come up"):
        await DecoderProcess(lane=lane, launch=mute).run()
    with pytest.raises(NoDecoder, match="a decoder process cannot start: it ended"):
        await DecoderProcess(lane=lane, launch=dead).run()


async def test_the_least_busy_process_gets_the_order() -> None:
    busy, idle = House([ignore]), House()
    async with busy.running(), idle.running(), trio.open_nursery() as nursery:
        both = Decoders([busy.lane, idle.lane])
        nursery.start_soon(both.write, [BATCH])
        await wait_all_tasks_blocked()
        assert len(busy.lane.orders) == 1
        assert await both.write([BATCH]) == Written(3, 0)
        assert await both.write([BATCH]) == Written(3, 0)
        nursery.cancel_scope.cancel()


async def test_more_orders_than_a_process_may_hold_are_an_outage() -> None:
    lane = Lane(Vitals("decoder-1"), up=True)
    decoders = Decoders([lane])
    async with trio.open_nursery() as nursery:
        for _ in range(ORDERS_BOUND):
            nursery.start_soon(decoders.write, [BATCH])
        await wait_all_tasks_blocked()
        with pytest.raises(Outage, match="busy"):
            await decoders.write([BATCH])
        nursery.cancel_scope.cancel()


async def test_an_asker_that_stops_waiting_is_forgotten() -> None:
    house = House([ignore])
    async with house.running() as decoders:
        with trio.move_on_after(0):
            await decoders.write([BATCH])
        await wait_all_tasks_blocked()
        assert not house.lane.orders


async def test_at_closing_time_every_asker_hears() -> None:
    house = House([ignore])
    heard: list[str] = []

    async def ask(decoders: Decoders) -> None:
        try:
            await decoders.write([BATCH])
        except SinkLost:
            heard.append("lost")

    async with trio.open_nursery() as askers, house.running() as decoders:
        askers.start_soon(ask, decoders)
        await wait_all_tasks_blocked()
    assert heard == ["lost"]


async def test_a_renewed_process_answers_what_it_has_in_hand_and_a_fresh_one_what_comes_after() -> None:
    gate = trio.Event()

    async def slow(stream: Stream, order: Write) -> None:
        await gate.wait()
        await store(stream, order)

    house = House([slow, store])
    answers: list[Written] = []

    async def ask(decoders: Decoders) -> None:
        answers.append(await decoders.write([BATCH]))

    async with house.running() as decoders, trio.open_nursery() as nursery:
        nursery.start_soon(ask, decoders)
        await wait_all_tasks_blocked()
        nursery.start_soon(decoders.renew)
        await wait_all_tasks_blocked()
        # It has an order in hand, and gets no other.
        assert house.launched == 1
        with pytest.raises(Outage):
            await decoders.write([BATCH])
        gate.set()
        await wait_all_tasks_blocked()
        assert (house.launched, house.lane.up, house.lane.deaths) == (2, True, 0)
        assert await decoders.write([BATCH, BATCH]) == Written(6, 0)
    assert answers == [Written(3, 0)]


async def test_idle_processes_are_renewed_one_after_the_other_so_that_one_is_always_up() -> None:
    first, second = House(), House()
    both = Decoders([first.lane, second.lane])
    async with first.running(), second.running():
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(both.renew)
                nursery.start_soon(both.write, [BATCH])
        assert (first.launched, second.launched) == (3, 3)


async def test_a_process_that_dies_while_it_is_to_be_renewed_is_renewed_by_that(
    autojump_clock: MockClock,
) -> None:
    house = House([die, store])
    async with house.running() as decoders, trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(SinkLost):
                await decoders.write([BATCH])

        nursery.start_soon(ask)
        nursery.start_soon(decoders.renew)
    assert house.launched == 2


@asynccontextmanager
async def one_and_one_on_demand(manner: Manner) -> AsyncIterator[tuple[House, House, Decoders]]:
    """A process that is up from the start and behaves so, and one on demand."""
    first, second = House([manner]), House(lane=Lane(Vitals("decoder-2"), on_demand=True))
    async with first.running(), second.running():
        yield first, second, Decoders([first.lane, second.lane])


async def test_a_process_on_demand_begins_when_all_others_have_orders_and_takes_the_next() -> None:
    async with one_and_one_on_demand(ignore) as (first, second, decoders), trio.open_nursery() as nursery:
        nursery.start_soon(decoders.write, [BATCH])
        await wait_all_tasks_blocked()
        assert (second.launched, second.lane.asleep) == (0, True)
        assert second.lane.vitals.snapshot()["note"] == ASLEEP_ON_DEMAND
        nursery.start_soon(decoders.write, [BATCH])
        await wait_all_tasks_blocked()
        assert (second.launched, second.lane.asleep, len(first.orders)) == (1, False, 2)
        assert "note" not in second.lane.vitals.snapshot()
        assert await decoders.write([BATCH]) == Written(3, 0)
        assert (len(first.orders), len(second.orders)) == (2, 1)
        nursery.cancel_scope.cancel()


async def test_a_process_on_demand_takes_the_place_of_the_first_when_that_is_gone() -> None:
    async with one_and_one_on_demand(die) as (_, second, decoders):
        with pytest.raises(SinkLost):
            await decoders.write([BATCH])
        assert await decoders.write([BATCH]) == Written(3, 0)
        assert second.launched == 1


async def test_a_process_on_demand_ends_when_it_had_no_order_for_a_while_and_begins_again(
    autojump_clock: MockClock,
) -> None:
    house = House(lane=Lane(Vitals("decoder-2"), on_demand=True))
    async with house.running() as decoders:
        house.lane.demand.set()
        for _ in range(3):
            await trio.sleep(0.9 * REST_S)
            assert await decoders.write([BATCH]) == Written(3, 0)
        await trio.sleep(2.1 * REST_S)
        assert (house.lane.up, house.lane.asleep) == (False, True)
        assert await decoders.write([BATCH]) == Written(3, 0)
        assert (house.launched, house.lane.deaths) == (2, 0)


async def test_a_process_on_demand_with_an_order_in_hand_does_not_end(autojump_clock: MockClock) -> None:
    gate = trio.Event()

    async def hold(stream: Stream, order: Write) -> None:
        await gate.wait()
        await store(stream, order)

    house = House([hold], lane=Lane(Vitals("decoder-2"), on_demand=True))
    written: list[Written] = []

    async def ask(decoders: Decoders) -> None:
        written.append(await decoders.write([BATCH]))

    async with house.running() as decoders, trio.open_nursery() as nursery:
        house.lane.demand.set()
        await trio.sleep(0.95 * REST_S)
        nursery.start_soon(ask, decoders)
        # It is not waited for much longer than this.
        await trio.sleep(0.1 * REST_S)
        assert house.lane.up
        gate.set()
        await trio.sleep(0.1)
        assert written == [Written(3, 0)]
        await trio.sleep(2 * REST_S)
        assert house.lane.asleep


async def test_nobody_waits_for_a_fresh_process_where_none_is_needed() -> None:
    async with one_and_one_on_demand(store) as (first, second, decoders):
        await decoders.renew()
        assert (first.launched, second.launched) == (2, 0)


def test_a_keeper_struck_at_any_await_leaves_no_order_unanswered() -> None:
    async def scenario(strike: Strike) -> None:
        house = House([store, die, store])
        results: list[object] = []

        async def ask() -> None:
            for _ in range(3):
                await trio.sleep(1.0)
                try:
                    results.append(await house.decoders.write([BATCH]))
                except (SinkLost, Outage) as error:
                    results.append(error)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await strike.run(DecoderProcess(lane=house.lane, launch=house.launch).run)
            assert not house.lane.up
            assert not house.lane.orders
            # Who asks after the end hears at once.
            with trio.fail_after(60.0), pytest.raises(Outage):
                await house.decoders.write([BATCH])

    assert at_every_await(scenario) >= 8
