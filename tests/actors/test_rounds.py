"""Laws of `rounds`, the one body of every loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.rounds import OUTAGE_PAUSE_S, rounds
from actors.supervision import Vitals
from protocol.storage import Outage
from tests.actors.every_await import Strike, at_every_await

REST_S = 7.0
WORK_S = 0.5


@attrs.define
class Work:
    """A round of work that takes a while and notes when it began and how far it came."""

    outcomes: Iterator[Exception | float]
    begun_s: list[float] = attrs.field(factory=list)
    done: int = 0
    _origin_s: float = attrs.field(factory=trio.current_time)

    async def __call__(self) -> float:
        self.begun_s.append(trio.current_time() - self._origin_s)
        await trio.sleep(WORK_S)
        outcome = next(self.outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        self.done += 1
        return outcome


def always(*first: Exception | float) -> Iterator[Exception | float]:
    yield from first
    while True:
        yield REST_S


async def run_for(seconds: float, run: Callable[..., object]) -> None:
    with trio.move_on_after(seconds):
        await run()  # type: ignore[misc]


async def test_the_first_round_comes_at_once_and_the_next_after_the_rest_it_asked_for(
    autojump_clock: MockClock,
) -> None:
    work, vitals = Work(always(1.0, 2.0)), Vitals("loop")
    await run_for(6.0, partial(rounds, work, vitals))
    assert work.begun_s == pytest.approx([0.0, WORK_S + 1.0, 2 * WORK_S + 3.0])
    assert vitals.state == "running"


async def test_nobody_waits_for_the_first_round(autojump_clock: MockClock) -> None:
    work = Work(always())
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(rounds, work, Vitals("loop"), begin_after_s=5.0))
        assert work.begun_s == []
        await trio.sleep(5.0)
        await trio.testing.wait_all_tasks_blocked()
        assert work.begun_s == pytest.approx([5.0])
        nursery.cancel_scope.cancel()


async def test_an_outage_is_shown_and_the_work_tried_again_after_a_pause(autojump_clock: MockClock) -> None:
    work, vitals = Work(always(Outage("the database is away"), Outage("still away"))), Vitals("loop")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(rounds, work, vitals))
        await trio.sleep(WORK_S + OUTAGE_PAUSE_S / 2)
        assert (vitals.state, vitals.waiting_for, vitals.alive) == ("waiting", "the database is away", True)
        await trio.sleep(2 * (WORK_S + OUTAGE_PAUSE_S))
        assert (vitals.state, vitals.waiting_for) == ("running", None)
        nursery.cancel_scope.cancel()
    pause_s = WORK_S + OUTAGE_PAUSE_S
    assert work.begun_s == pytest.approx([0.0, pause_s, 2 * pause_s])


async def test_a_bug_goes_up_unchanged(autojump_clock: MockClock) -> None:
    bug = KeyError("bug")
    with pytest.raises(KeyError) as raised:
        await rounds(Work(iter([bug])), Vitals("loop"))
    assert raised.value is bug


@pytest.mark.parametrize("outcomes", [[REST_S, REST_S, REST_S], [Outage("away"), Outage("away"), REST_S]])
def test_cancelled_at_any_await_it_ends_there_and_no_round_counts_that_was_not_done(
    outcomes: Iterable[Exception | float],
) -> None:
    async def scenario(strike: Strike) -> None:
        work = Work(always(*outcomes))

        async def act() -> None:
            await run_for(3 * (REST_S + WORK_S), partial(rounds, work, Vitals("loop")))

        await strike.run(act)
        ended = trio.current_time()
        assert work.done <= len(work.begun_s) <= work.done + len(list(outcomes))
        await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == ended

    assert at_every_await(scenario) > 5
