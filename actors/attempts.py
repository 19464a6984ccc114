"""Telling the other copies of the service which password attempts were counted here.

`AttemptQueue` is the handle: whoever counts puts a change into it, at once and without waiting;
`AttemptReporter` writes what has come, soon. A full queue drops the oldest: then a copy counts a little less
than all.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import trio

from actors.ports import AttemptStore
from actors.rounds import Rounds
from actors.supervision import Vitals
from protocol.attempts import CountedAttempt

QUEUE_BOUND: Final = 10_000
#: How long changes gather before they are written together.
GATHER_S: Final = 0.2


class AttemptQueue:
    """Changes that nobody else knows of yet."""

    def __init__(self) -> None:
        self._waiting: deque[CountedAttempt] = deque(maxlen=QUEUE_BOUND)
        self._come = trio.Event()

    def put(self, counted: CountedAttempt) -> None:
        """Something was counted."""
        self._waiting.append(counted)
        self._come.set()

    async def some(self) -> list[CountedAttempt]:
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


class AttemptReporter(Rounds):
    """Writes what the queue holds, until cancelled. What an outage held up is written after it."""

    def __init__(self, *, queue: AttemptQueue, store: AttemptStore, vitals: Vitals) -> None:
        self._queue, self._store, self._vitals = queue, store, vitals
        self._held: list[CountedAttempt] = []

    async def _turn(self) -> float:
        self._held = self._held or await self._queue.some()
        await self._store.tell(self._held)
        self._queue.told(len(self._held))
        self._held = []
        return 0.0
