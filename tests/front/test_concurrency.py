"""Laws of concurrency: a key has so many questions under way, waits a moment for more, minds no other key."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from protocol.refusals import Refused
from svc.front.concurrency import PATIENCE_S, WAITING_FOR_ONE, ConcurrencyLimiter


async def ask(concurrency: ConcurrencyLimiter, key: str, seconds: float, told: list[str]) -> None:
    try:
        async with concurrency.slot(key):
            await trio.sleep(seconds)
            told.append("answered")
    except Refused as refused:
        told.append(f"{refused.refusal.status}, again in {refused.refusal.retry_after_s} s")


async def test_no_more_than_so_many_are_under_way_and_the_others_are_told_in_time(
    autojump_clock: MockClock,
) -> None:
    concurrency, told = ConcurrencyLimiter(4), list[str]()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask, concurrency, "one", 30.0, told)
        with trio.fail_after(PATIENCE_S + 0.1):
            while len(told) < 16:  # noqa: ASYNC110 - they tell a list
                await trio.sleep(0.01)
        assert told == ["429, again in 1 s"] * 16
        # Another key is not concerned.
        with trio.fail_after(0.1):
            await ask(concurrency, "two", 0.0, told)
    assert told.count("answered") == 5
    assert concurrency.refused == 16
    assert not concurrency._lines


async def test_who_waits_a_moment_is_served(autojump_clock: MockClock) -> None:
    concurrency, told = ConcurrencyLimiter(2), list[str]()
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ask, concurrency, "one", 0.1, told)
    assert told == ["answered"] * 10


async def test_the_line_is_bounded_and_a_cancelled_question_leaves_it(autojump_clock: MockClock) -> None:
    concurrency, told = ConcurrencyLimiter(1), list[str]()
    async with trio.open_nursery() as nursery:
        for _ in range(1 + WAITING_FOR_ONE):
            nursery.start_soon(ask, concurrency, "one", 5.0, told)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Refused), trio.fail_after(0.0):
            async with concurrency.slot("one"):
                pass
        nursery.cancel_scope.cancel()
    with trio.fail_after(0.1):
        async with concurrency.slot("one"):
            pass
