"""One body for every loop: work, wait through an outage, rest; and one for work that an outage only delays.

Owns the rhythm of the actors that do a piece of work now and then; what the work is, is theirs. Never catches
anything but an outage: a bug goes up to `keep`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, repeat
from math import inf
from typing import Final, NoReturn, TypeVar

import trio

from actors.supervision import Vitals
from protocol.storage import Outage

T = TypeVar("T")

#: How long a loop waits before it tries again while the store is away.
OUTAGE_PAUSE_S: Final = 1.0


async def through_outages(
    attempt: Callable[[], Awaitable[T]],
    vitals: Vitals,
    *,
    pauses_s: Sequence[float] = (OUTAGE_PAUSE_S,),
    until_s: float = inf,
) -> T:
    """Do it, however many outages are in the way; the last pause is the one that is repeated.

    Raises `Outage` only where the next attempt would come later than `until_s` on Trio's clock.
    """
    for pause_s in chain(pauses_s, repeat(pauses_s[-1])):
        try:
            result = await attempt()
        except Outage as outage:
            if trio.current_time() + pause_s >= until_s:
                raise
            vitals.waits(str(outage))
            await trio.sleep(pause_s)
        else:
            vitals.works()
            return result
    raise AssertionError("unreachable")


async def rounds(
    work: Callable[[], Awaitable[float]],
    vitals: Vitals,
    *,
    begin_after_s: float = 0.0,
    rest: Callable[[float], Awaitable[object]] = trio.sleep,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> NoReturn:
    """Do `work` again and again until cancelled; it returns the seconds to rest until its next turn.

    An `Outage` is shown as what the actor waits for, and the work is tried again after a pause. Anything else
    goes up. `rest` may end before its time.
    """
    task_status.started()
    await rest(begin_after_s)
    while True:
        try:
            rest_s = await work()
        except Outage as outage:
            vitals.waits(str(outage))
            rest_s = OUTAGE_PAUSE_S if outage.pause_s is None else outage.pause_s
        else:
            vitals.works()
        await rest(rest_s)


class Rounds(ABC):
    """An actor that is nothing but its rounds: a subclass keeps its vitals, and says what a turn is."""

    _vitals: Vitals

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        await rounds(self._turn, self._vitals, task_status=task_status)

    @abstractmethod
    async def _turn(self) -> float:
        """The work of `rounds`."""


class Repeating(Rounds):
    """Rounds of `work`."""

    def __init__(self, work: Callable[[], Awaitable[float]], vitals: Vitals) -> None:
        self._work, self._vitals = work, vitals

    async def _turn(self) -> float:
        return await self._work()
