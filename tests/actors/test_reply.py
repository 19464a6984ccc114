"""Laws of the one-shot reply."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors.reply import Reply, Unanswered
from tests.actors.every_await import Strike, at_every_await


async def test_an_answer_given_before_anyone_waits_is_heard() -> None:
    reply: Reply[int] = Reply()
    reply.put(1)
    assert await reply.wait(1.0) == 1


async def test_an_answer_wakes_everyone_who_waits(autojump_clock: MockClock) -> None:
    reply: Reply[str] = Reply()
    heard: list[str] = []

    async def listen() -> None:
        heard.append(await reply.wait(1.0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        reply.put("yes")
    assert heard == ["yes", "yes"]


async def test_only_the_first_answer_counts() -> None:
    reply: Reply[int] = Reply()
    reply.put(1)
    reply.put(2)
    reply.drop()
    assert await reply.wait(1.0) == 1


async def test_none_is_an_answer() -> None:
    reply: Reply[None] = Reply()
    reply.put(None)
    assert await reply.wait(1.0) is None


async def test_a_dropped_question_is_told_at_once_and_stays_dropped(autojump_clock: MockClock) -> None:
    reply: Reply[int] = Reply()
    before = trio.current_time()
    reply.drop()
    reply.put(1)
    with pytest.raises(Unanswered, match="dropped"):
        await reply.wait(10.0)
    assert trio.current_time() == before


async def test_an_asker_waits_no_longer_than_it_said(autojump_clock: MockClock) -> None:
    reply: Reply[int] = Reply()
    before = trio.current_time()
    with pytest.raises(Unanswered, match=r"no answer within 2\.5 s"):
        await reply.wait(2.5)
    assert trio.current_time() - before == pytest.approx(2.5)


async def test_a_drop_after_an_answer_changes_nothing() -> None:
    reply: Reply[int] = Reply()
    reply.put(1)
    reply.drop()
    assert await reply.wait(1.0) == 1


async def test_an_asker_that_goes_away_does_not_disturb_the_answer(autojump_clock: MockClock) -> None:
    reply: Reply[int] = Reply()
    with trio.move_on_after(0.5):
        await reply.wait(1.0)
    reply.put(1)
    assert await reply.wait(1.0) == 1


def test_a_handler_cancelled_at_any_await_leaves_no_asker_hanging() -> None:
    async def scenario(strike: Strike) -> None:
        reply: Reply[int] = Reply()
        outcomes: list[int | Unanswered] = []

        async def ask() -> None:
            try:
                outcomes.append(await reply.wait(10.0))
            except Unanswered as unanswered:
                outcomes.append(unanswered)

        async def handle() -> None:
            try:
                await trio.lowlevel.checkpoint()
                await trio.sleep(1.0)
                reply.put(1)
                await trio.lowlevel.checkpoint()
            finally:
                reply.drop()

        before = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await strike.run(handle)
        [outcome] = outcomes
        assert outcome == 1 or str(outcome) == "dropped"
        assert trio.current_time() - before <= 1.0

    assert at_every_await(scenario) >= 3
