"""Laws of pieces of work at once: few are under way, and one failure is the failure of all."""

from __future__ import annotations

from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from svc.store.postgres.together import AT_ONCE, run_together


@attrs.define
class Watched:
    under_way: int = 0
    most: int = 0
    done: list[int] = attrs.field(factory=list)

    async def piece(self, number: int) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await trio.sleep(1.0)
        finally:
            self.under_way -= 1
        self.done.append(number)


async def fail(after_s: float) -> None:
    await trio.sleep(after_s)
    raise LookupError("no")


async def test_all_are_done_and_no_more_than_so_many_at_once(autojump_clock: MockClock) -> None:
    watched = Watched()
    await run_together(*(partial(watched.piece, number) for number in range(7)))
    assert sorted(watched.done) == list(range(7))
    assert (watched.most, watched.under_way) == (AT_ONCE, 0)


async def test_nothing_is_soon_done() -> None:
    await run_together()


async def test_the_failure_of_one_is_raised_as_it_is_and_the_others_are_given_up(
    autojump_clock: MockClock,
) -> None:
    watched = Watched()
    pieces = [partial(watched.piece, number) for number in range(7)]
    with pytest.raises(LookupError):
        await run_together(pieces[0], partial(fail, 0.5), *pieces[1:])
    assert (watched.done, watched.under_way) == ([], 0)


async def test_who_is_cancelled_leaves_nothing_under_way(autojump_clock: MockClock) -> None:
    watched = Watched()
    with trio.move_on_after(1.5) as patience:
        await run_together(*(partial(watched.piece, number) for number in range(7)))
    assert patience.cancelled_caught
    assert (len(watched.done), watched.under_way) == (AT_ONCE, 0)
