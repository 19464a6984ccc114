"""Callbacks of the asyncio loop run at once, in asyncio's own order, and leave room for others."""

from __future__ import annotations

import asyncio
import gc
import inspect
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
import trio_asyncio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from svc.runtime.asyncio_loop import AT_ONCE_S, MOST_AT_ONCE, asyncio_loop
from svc.store.postgres.database import Connection, Database
from svc.store.spans.loop_turn import LoopTurn

#: What a callback makes ready, and what these do.
Tree = list["Tree"]
Path = tuple[int, ...]
TREES = st.recursive(st.just([]), lambda trees: st.lists(trees, max_size=4), max_leaves=300)


def run_tree(tree: Tree, loop: asyncio.AbstractEventLoop, ran: list[Path]) -> None:
    """Run a tree of callbacks, each of which says where it stands."""

    def callback(branch: Tree, path: Path) -> None:
        ran.append(path)
        for number, child in enumerate(branch):
            loop.call_soon(callback, child, (*path, number))

    callback(tree, ())


def size_of(tree: Tree) -> int:
    return 1 + sum(map(size_of, tree))


@given(tree=TREES)
def test_callbacks_run_in_the_order_of_asyncio(tree: Tree) -> None:
    size, theirs, ours = size_of(tree), list[Path](), list[Path]()

    async def by_asyncio() -> None:
        run_tree(tree, asyncio.get_running_loop(), theirs)
        while len(theirs) < size:  # noqa: ASYNC110 - it is a turn of the loop
            await asyncio.sleep(0)

    async def by_trio() -> None:
        async with asyncio_loop(()):
            run_tree(tree, trio_asyncio.current_loop.get(), ours)

    asyncio.run(by_asyncio())
    # What is still to run when the loop is left runs then.
    trio.run(by_trio)
    assert ours == theirs


class Rounds(trio.abc.Instrument):
    """Counts the scheduler's rounds, and the steps of tasks in them."""

    def __init__(self) -> None:
        self.number = self.steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1

    def before_io_wait(self, timeout: float) -> None:
        self.number += 1


async def test_a_statement_takes_one_round_of_the_scheduler(store: Database) -> None:
    async def work(connection: Connection) -> None:
        for _ in range(100):
            await connection.fetchval("select 1")

    await store.run(work)
    rounds = Rounds()
    trio.lowlevel.add_instrument(rounds)
    await store.run(work)
    trio.lowlevel.remove_instrument(rounds)
    # Where an answer comes in two pieces it takes one more.
    assert 100 <= rounds.number < 130


async def test_many_callbacks_leave_room_for_others(asyncio_loop: None) -> None:
    loop, ran = trio_asyncio.current_loop.get(), 0

    def again() -> None:
        nonlocal ran
        ran += 1
        if ran < 100 * MOST_AT_ONCE:
            loop.call_soon(again)

    loop.call_soon(again)
    for _ in range(5):
        await trio.lowlevel.checkpoint()
    assert MOST_AT_ONCE <= ran <= 6 * MOST_AT_ONCE
    with trio.fail_after(60):
        await loop.synchronize()
        while ran < 100 * MOST_AT_ONCE:
            await trio.lowlevel.checkpoint()


@given(timers=st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=400))
def test_timers_come_in_their_order_and_cancelled_ones_are_not_kept(timers: list[tuple[int, bool]]) -> None:
    async def by_trio() -> list[int]:
        ran: list[int] = []
        async with asyncio_loop(()):
            loop = trio_asyncio.current_loop.get()
            for after_s, is_cancelled in timers:
                timer = loop.call_later(after_s, ran.append, after_s)
                if is_cancelled:
                    timer.cancel()
            await trio.sleep(20)
            for after_s, _ in timers:
                loop.call_later(after_s, ran.append, 20 + after_s)
            for after_s, _ in timers:
                loop.call_later(after_s, ran.append, -1).cancel()
            await loop.synchronize()
            waiting = [timer for timer in loop._timers if not timer.cancelled()]
            assert len(loop._timers) <= 2 * max(100, len(waiting)) + 1
            await trio.sleep(100)
        return ran

    expected = [after_s for after_s, is_cancelled in timers if not is_cancelled]
    expected += [20 + after_s for after_s, _ in timers]
    assert trio.run(by_trio, clock=MockClock(autojump_threshold=0)) == sorted(expected)


async def test_the_loop_is_not_woken_for_a_timer_that_others_come_before(asyncio_loop: None) -> None:
    loop = trio_asyncio.current_loop.get()
    loop.call_later(1_000, list)
    await loop.synchronize()
    await trio.testing.wait_all_tasks_blocked()
    rounds = Rounds()
    trio.lowlevel.add_instrument(rounds)
    for after_s in range(2_000, 2_100):
        loop.call_later(after_s, list)
    await trio.lowlevel.checkpoint()
    steps = rounds.steps
    trio.lowlevel.remove_instrument(rounds)
    assert steps <= 1


async def test_work_that_rests_between_long_turns_lets_others_go_on(asyncio_loop: None) -> None:
    told: list[str] = []

    async def work() -> None:
        turn = LoopTurn(0.0)
        for _ in range(10):
            told.append("turn")
            until_s = time.perf_counter() + 2 * AT_ONCE_S
            while time.perf_counter() < until_s:
                pass
            await turn.rest()

    async def go_on() -> None:
        while True:
            told.append("other")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on)
        await trio_asyncio.aio_as_trio(work)()
        nursery.cancel_scope.cancel()
    assert told.count("turn") == 10
    # Within a round of the scheduler either may be first.
    assert "turn turn turn" not in " ".join(told)


async def test_work_begins_in_the_task_that_asks_for_it(asyncio_loop: None) -> None:
    begun: list[str] = []

    async def work() -> None:
        begun.append(trio.lowlevel.current_task().name)

    await trio_asyncio.aio_as_trio(work)()
    assert begun == [trio.lowlevel.current_task().name]


async def test_a_generator_that_asyncio_work_leaves_is_closed_by_asyncio(asyncio_loop: None) -> None:
    closed: list[bool] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    async def work() -> int:
        await asyncio.sleep(0)
        async for number in numbers():
            return number
        return 0

    assert await trio_asyncio.aio_as_trio(work)() == 1
    with trio.fail_after(60):
        while not closed:
            gc.collect()
            await trio.lowlevel.checkpoint()


async def test_work_that_is_given_up_does_not_begin(asyncio_loop: None) -> None:
    begun: list[bool] = []

    async def work() -> None:
        begun.append(True)

    with trio.CancelScope() as given_up:
        given_up.cancel()
        await trio_asyncio.aio_as_trio(work)()
    assert given_up.cancelled_caught
    assert begun == []


async def test_a_callback_that_is_cancelled_does_not_run(asyncio_loop: None) -> None:
    loop, ran = trio_asyncio.current_loop.get(), list[str]()
    later = loop.call_soon(ran.append, "cancelled by another")
    loop.call_soon(later.cancel)
    loop.call_soon(ran.append, "cancelled").cancel()
    loop.call_soon(ran.append, "not cancelled")
    await loop.synchronize()
    assert ran == ["cancelled by another", "not cancelled"]


async def test_who_reads_a_socket_later_gets_all_of_it(asyncio_loop: None) -> None:
    """The callback of such a socket reads nothing; it makes ready what does."""
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.setblocking(False)

        async def read() -> bytes:
            loop, received = asyncio.get_running_loop(), b""
            while piece := await loop.sock_recv(near, 1000):
                received += piece
            return received

        async def write() -> None:
            for number in range(100):
                await trio.lowlevel.wait_writable(far)
                far.send(b"%02d" % number)
                await trio.lowlevel.checkpoint()
            far.shutdown(socket.SHUT_WR)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                received = await trio_asyncio.aio_as_trio(read)()
        assert received == b"".join(b"%02d" % number for number in range(100))


async def test_a_callback_that_fails_is_told_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []
    async with asyncio_loop((LookupError,)):
        loop = trio_asyncio.current_loop.get()

        def fail() -> None:
            raise LookupError

        loop.call_soon(fail)
        loop.call_soon(ran.append, "ran")
        await loop.synchronize()
    assert ran == ["ran"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "a stray asyncio failure" in caplog.text


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_queue_handle", ["self", "handle"]),
        ("_timer_handle_cancelled", ["self", "handle"]),
        ("_io_task", ["self", "fd", "handle", "wait_ready"]),
        ("run_aio_coroutine", ["self", "coro"]),
    ],
)
def test_trio_asyncio_has_what_is_replaced(name: str, parameters: list[str]) -> None:
    replaced: Any = getattr(trio_asyncio.TrioEventLoop, name)
    assert list(inspect.signature(replaced).parameters) == parameters
