"""Laws of the connection limiter: above the bound the one silent for longest goes, never one that is busy."""

from __future__ import annotations

import attrs
from trio.testing import MockClock

from svc.front.server.connection_limiter import ConnectionLimiter


@attrs.define(eq=False)
class Connection:
    """Somebody who can be told to leave."""

    left: bool = False

    def leave(self) -> None:
        self.left = True


async def test_the_one_that_is_silent_for_longest_goes_first(autojump_clock: MockClock) -> None:
    limiter = ConnectionLimiter(lambda: 3)
    first, second, third, fourth = (Connection() for _ in range(4))
    assert all(limiter.enter(guest) for guest in (first, second, third))
    # The first asks something and is answered: from then on it is the second that waits longest.
    limiter.busy(first)
    limiter.silent(first)
    assert limiter.enter(fourth)
    assert [guest.left for guest in (first, second, third, fourth)] == [False, True, False, False]
    assert (len(limiter), limiter.shed) == (3, 1)


async def test_none_that_is_busy_goes_and_then_the_newcomer_does(autojump_clock: MockClock) -> None:
    limiter = ConnectionLimiter(lambda: 1)
    busy, late = Connection(), Connection()
    assert limiter.enter(busy)
    limiter.busy(busy)
    assert not limiter.enter(late)
    limiter.gone(busy)
    assert limiter.enter(late)
    assert not busy.left


async def test_one_that_left_is_nobody(autojump_clock: MockClock) -> None:
    limiter = ConnectionLimiter(lambda: 1)
    gone = Connection()
    assert limiter.enter(gone)
    limiter.gone(gone)
    limiter.silent(gone)
    assert len(limiter) == 0
    assert limiter.enter(Connection())
    assert not gone.left
