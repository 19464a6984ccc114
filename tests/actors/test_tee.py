"""Laws of the tee: it never holds up who offers, its memory is bounded, and every span is accounted for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from actors.supervision import Vitals
from actors.tee import JOINED_BYTES, OVERHEAD_BYTES, PAUSES_S, SENDERS, Tee, TeeForwarder
from protocol.tee import Delivered, Never, NotNow, Outcome

MIB = 1024 * 1024
#: Each test is over in no time, whatever it waits for.
pytestmark = pytest.mark.filterwarnings("error")


class Endpoint:
    """Answers what it is told to, and keeps what came."""

    def __init__(self, *answers: Outcome, hold: bool = False) -> None:
        self.answers, self.came = list(answers), list[bytes]()
        self.going = trio.Event()
        if not hold:
            self.going.set()

    async def send(self, body: bytes) -> Outcome:
        await self.going.wait()
        self.came.append(body)
        return self.answers.pop(0) if self.answers else Delivered()


@asynccontextmanager
async def forwarding(
    tee: Tee, send: Callable[[bytes], Awaitable[Outcome]], vitals: Vitals | None = None
) -> Any:
    async with trio.open_nursery() as nursery:
        actor = TeeForwarder(tee=tee, send=send, vitals=vitals or Vitals("tee", spare=True))
        await nursery.start(lambda task_status: actor.run(task_status=task_status))
        yield actor
        nursery.cancel_scope.cancel()


def accounted(tee: Tee) -> int:
    tally = tee.tally
    return tally.forwarded + sum(tally.lost.values()) + tally.waiting_spans


async def test_what_is_offered_arrives_to_the_byte_and_joined() -> None:
    tee, endpoint = Tee(MIB), Endpoint(hold=True)
    async with forwarding(tee, endpoint.send):
        bodies = [bytes([n]) * 100 for n in range(200)]
        for body in bodies:
            tee.offer(body, 2)
        endpoint.going.set()
        await tee.flushed(5)
    assert b"".join(sorted(endpoint.came)) == b"".join(sorted(bodies)) or sorted(
        b"".join(endpoint.came)
    ) == sorted(b"".join(bodies))
    assert len(endpoint.came) <= SENDERS + 1, "what waits goes out together"
    assert (tee.tally.forwarded, tee.tally.lost, tee.tally.waiting_bytes) == (400, {}, 0)


async def test_a_request_is_no_larger_than_the_bound_unless_one_batch_is() -> None:
    tee, endpoint = Tee(64 * MIB), Endpoint(hold=True)
    half = JOINED_BYTES // 2 + 1
    for size in (half, half, 3 * JOINED_BYTES, 10, 10):
        tee.offer(b"x" * size, 1)
    async with forwarding(tee, endpoint.send):
        endpoint.going.set()
        await tee.flushed(5)
    assert sorted(map(len, endpoint.came)) == [20, half, half, 3 * JOINED_BYTES]


async def test_without_room_spans_are_counted_and_let_go() -> None:
    tee, endpoint = Tee(10 * (100 + OVERHEAD_BYTES)), Endpoint(hold=True)
    async with forwarding(tee, endpoint.send):
        for _ in range(1000):
            tee.offer(b"x" * 100, 3)
            await trio.lowlevel.checkpoint()
        assert tee.tally.waiting_bytes <= tee.max_bytes
        assert tee.tally.lost == {"full": 990 * 3}
        tee.offer(b"x" * MIB, 1)
        assert tee.tally.lost == {"full": 990 * 3 + 1}
        endpoint.going.set()
        await tee.flushed(5)
        # There is room again.
        tee.offer(b"y" * 100, 1)
        await tee.flushed(5)
    assert tee.tally.forwarded == 31
    assert accounted(tee) == tee.tally.offered == 3002


async def test_an_endpoint_that_is_away_is_tried_a_few_times(autojump_clock: trio.testing.MockClock) -> None:
    tee, vitals = Tee(MIB), Vitals("tee", spare=True)
    endpoint = Endpoint(*[NotNow("cannot be reached")] * (len(PAUSES_S) + 1))
    async with forwarding(tee, endpoint.send, vitals):
        tee.offer(b"x", 5)
        began_s = trio.current_time()
        await trio.testing.wait_all_tasks_blocked()
        assert vitals.state == "waiting"
        await tee.flushed(100)
        assert trio.current_time() - began_s == pytest.approx(sum(PAUSES_S))
        assert tee.tally.lost == {"unanswered": 5}
        assert tee.tally.last_fault == "cannot be reached"
        tee.offer(b"y", 1)
        await tee.flushed(1)
        assert (vitals.state, tee.tally.forwarded) == ("running", 1)


async def test_it_waits_as_long_as_it_is_asked_to_but_not_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tee, endpoint = Tee(MIB), Endpoint(NotNow("answers 429", 3.0), NotNow("answers 503", 86_400.0))
    async with forwarding(tee, endpoint.send):
        tee.offer(b"x", 1)
        began_s = trio.current_time()
        await tee.flushed(100)
        assert trio.current_time() - began_s == pytest.approx(33)
    assert (tee.tally.forwarded, tee.tally.requests) == (1, 3)


async def test_what_is_refused_is_not_sent_again() -> None:
    tee, endpoint = Tee(MIB), Endpoint(Never("answers 401"))
    async with forwarding(tee, endpoint.send):
        tee.offer(b"x", 4)
        await tee.flushed(5)
    assert (tee.tally.lost, tee.tally.requests) == ({"refused": 4}, 1)


async def test_a_stop_waits_a_little_and_says_what_is_left(autojump_clock: trio.testing.MockClock) -> None:
    tee, endpoint = Tee(MIB), Endpoint(hold=True)
    async with forwarding(tee, endpoint.send):
        for _ in range(3):
            tee.offer(b"x", 2)
        began_s = trio.current_time()
        await tee.flushed(5)
        assert trio.current_time() - began_s == pytest.approx(5)
    assert accounted(tee) == tee.tally.offered == 6
    assert tee.tally.forwarded == 0


async def test_a_crash_counts_what_was_in_hand_and_the_next_goes_on() -> None:
    tee = Tee(MIB)

    async def broken(_body: bytes) -> Outcome:
        raise RuntimeError("a bug")

    tee.offer(b"x", 2)
    with pytest.raises(BaseExceptionGroup):
        async with forwarding(tee, broken):
            await trio.sleep_forever()
    assert tee.tally.lost == {"stopped": 2}
    endpoint = Endpoint()
    async with forwarding(tee, endpoint.send):
        tee.offer(b"y", 1)
        await tee.flushed(5)
    assert accounted(tee) == tee.tally.offered == 3
