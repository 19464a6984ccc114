"""Laws of the runner that is a child: what is told of one that does not start, or ends again and again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import attrs
import trio
from trio.testing import MemorySendStream, MockClock, memory_stream_pair

from actors.runner_child import ENDS, IDLE_S, REST_MOST_S, STEADY_S, RunnerChild
from actors.supervision import Vitals
from protocol.running import RunnerAway


@attrs.define(eq=False)
class Children:
    """Processes that are started in memory: each lives as long as its number says, None does not start."""

    lives_s: list[float | None]
    starts_s: list[float] = attrs.field(factory=list)
    told: list[str | None] = attrs.field(factory=list)
    busy: bool = False

    @asynccontextmanager
    async def launch(self) -> AsyncIterator[Any]:
        lives_s = self.lives_s[min(len(self.starts_s), len(self.lives_s) - 1)]
        self.starts_s.append(trio.current_time())
        ours, theirs = memory_stream_pair()
        if lives_s is None:
            await theirs.send_stream.aclose()
            yield ours
            return
        await theirs.send_all(b"http://127.0.0.1:1\n")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end, theirs.send_stream, lives_s)
            yield ours
            nursery.cancel_scope.cancel()

    async def _end(self, stream: MemorySendStream, lives_s: float) -> None:
        await trio.sleep(lives_s)
        await stream.aclose()

    def child(self) -> tuple[RunnerChild, Vitals]:
        vitals = Vitals("sandbox-runner")
        made: Any = RunnerChild(
            launch=self.launch,
            connect=lambda url: url,  # type: ignore[arg-type,return-value]
            busy=lambda: self.busy,
            report=self.told.append,
            vitals=vitals,
        )
        return made, vitals


NEVER = "the runner does not start: it ends before it says where it is; the log says why"


async def test_a_child_that_does_not_start_is_told_of_at_once_and_no_more_when_one_does(
    autojump_clock: MockClock,
) -> None:
    children = Children([None, None, 1e6])
    child, _ = children.child()
    async with trio.open_nursery() as nursery:
        await nursery.start(child.run)
        assert await child.link() == RunnerAway(NEVER)
        assert (children.told, child.present()) == ([NEVER], None)
        # The next starts come by themselves.
        link: Any = await child.link()
        while isinstance(link, RunnerAway):
            link = await child.link()
        assert link == child.present() == "http://127.0.0.1:1"
        assert children.told == [NEVER, NEVER, None]
        nursery.cancel_scope.cancel()


async def test_starts_that_fail_come_ever_more_rarely(autojump_clock: MockClock) -> None:
    children = Children([None])
    child, _ = children.child()
    async with trio.open_nursery() as nursery:
        await nursery.start(child.run)
        await child.link()
        await trio.sleep(600)
        pauses = [after - before for before, after in pairwise(children.starts_s)]
        assert pauses[:3] == [2.0, 4.0, 8.0]
        assert max(pauses) == REST_MOST_S
        assert len(children.starts_s) < 20
        nursery.cancel_scope.cancel()


async def test_a_child_that_ends_again_and_again_is_told_of_until_one_lives(
    autojump_clock: MockClock,
) -> None:
    children = Children([1.0] * ENDS + [1e6], busy=True)
    child, vitals = children.child()
    async with trio.open_nursery() as nursery:
        await nursery.start(child.run)
        await child.link()
        await trio.sleep(0.5)
        assert children.told == [None]
        with trio.fail_after(60):
            while len(children.starts_s) <= ENDS:
                await child.link()
                await trio.sleep(1.0)
        fault = f"the runner ended by itself {ENDS} times in a row; the log says why"
        assert children.told[-1] == vitals.waiting_for == fault
        await trio.sleep(STEADY_S + 1)
        assert (children.told[-1], vitals.waiting_for) == (None, None)
        nursery.cancel_scope.cancel()


async def test_a_child_that_has_nothing_to_do_ends_and_nothing_is_told(autojump_clock: MockClock) -> None:
    children = Children([1e6])
    child, _ = children.child()
    async with trio.open_nursery() as nursery:
        await nursery.start(child.run)
        await child.link()
        await trio.sleep(IDLE_S + 10)
        assert child.present() is None
        await trio.sleep(IDLE_S)
        assert len(children.starts_s) == 1
        assert set(children.told) == {None}
        nursery.cancel_scope.cancel()
