"""Runs a scenario again and again, and strikes its actor at the first await, then at the second, and so on.

Called by the laws of the actors. An await is a moment at which the actor's task, or a task of its
nurseries, has just handed control to Trio; a strike there lands in the await itself, not before it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

import trio
from trio.testing import MockClock

#: On a clock that jumps to the next deadline, who waits for nothing gets here at once.
STUCK_S = 1e6


class Strike(trio.abc.Instrument):
    """One blow at the n-th await of what runs inside `run`. `fell` says whether it came to that."""

    def __init__(self, at: int, clock: MockClock) -> None:
        self.clock = clock
        self.fell = False
        self._awaits_left = at
        self._root: trio.lowlevel.Task | None = None

    async def run(self, act: Callable[[], Awaitable[None]], blow: Callable[[], None] | None = None) -> None:
        """Run `act` in a task of its own until it ends. The blow, if none is given, cancels it."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watched, act, blow or nursery.cancel_scope.cancel)

    async def _watched(self, act: Callable[[], Awaitable[None]], blow: Callable[[], None]) -> None:
        self._root, self._blow = trio.lowlevel.current_task(), blow
        try:
            await act()
        finally:
            self._root = None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Called by Trio when a task has run up to its next await."""
        if self.fell or self._root is None or not self._is_of_the_actor(task):
            return
        self._awaits_left -= 1
        if not self._awaits_left:
            self.fell = True
            self._blow()

    def _is_of_the_actor(self, task: trio.lowlevel.Task | None) -> bool:
        while task is not None and task is not self._root:
            task = None if task.parent_nursery is None else task.parent_nursery.parent_task
        return task is not None


def at_every_await(scenario: Callable[[Strike], Awaitable[None]], *, autojump: bool = True) -> int:
    """Run the scenario until it ends before its strike; how many awaits were struck.

    Without `autojump` time goes its usual way, as it must where threads work, but for the scenario's jumps.
    """

    async def bounded(strike: Strike) -> None:
        with trio.fail_after(STUCK_S):
            await scenario(strike)

    for at in count(1):
        strike = Strike(at, MockClock(autojump_threshold=0) if autojump else MockClock(rate=1.0))
        trio.run(bounded, strike, clock=strike.clock, instruments=[strike])
        if not strike.fell:
            return at - 1
    raise AssertionError
