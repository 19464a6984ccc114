"""Telling the other copies of the service which tries at passwords were counted here.

`TryBook` is the handle: whoever counts puts a change into it, at once and without waiting; `TryTeller` writes
what has come, soon. A full book drops the oldest: then a copy counts a little less than all.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import trio

from actors.ports import TryShelf
from actors.rounds import rounds
from actors.supervision import Vitals
from protocol.tries import CountedTry

BOOK_BOUND: Final = 10_000
#: How long changes gather before they are written together.
GATHER_S: Final = 0.2


class TryBook:
    """Changes that nobody else knows of yet."""

    def __init__(self) -> None:
        self._waiting: deque[CountedTry] = deque(maxlen=BOOK_BOUND)
        self._come = trio.Event()

    def put(self, counted: CountedTry) -> None:
        """Something was counted."""
        self._waiting.append(counted)
        self._come.set()

    async def some(self) -> list[CountedTry]:
        """What has come, once something has."""
        await self._come.wait()
        await trio.sleep(GATHER_S)
        self._come = trio.Event()
        return list(self._waiting)

    def told(self, count: int) -> None:
        """The oldest are known to all now."""
        for _ in range(min(count, len(self._waiting))):
            self._waiting.popleft()
        if self._waiting:
            self._come.set()


class TryTeller:
    """Writes what the book holds, until cancelled. What an outage held up is written after it."""

    def __init__(self, *, book: TryBook, shelf: TryShelf, vitals: Vitals) -> None:
        self._book, self._shelf, self._vitals = book, shelf, vitals
        self._held: list[CountedTry] = []

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        await rounds(self._tell, self._vitals, task_status=task_status)

    async def _tell(self) -> float:
        self._held = self._held or await self._book.some()
        await self._shelf.tell(self._held)
        self._book.told(len(self._held))
        self._held = []
        return 0.0
