"""One body for every loop: work, wait through an outage, rest.

Owns the rhythm of the actors that do a piece of work now and then; what the work is, is theirs. Never catches
anything but an outage: a bug goes up to `keep`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import trio

from actors.supervision import Vitals
from protocol.storage import Outage

#: How long a loop waits before it tries again while the store is away.
OUTAGE_PAUSE_S: Final = 2.0


async def rounds(
    work: Callable[[], Awaitable[float]],
    vitals: Vitals,
    *,
    begin_after_s: float = 0.0,
    outage_pause_s: float = OUTAGE_PAUSE_S,
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
            rest_s = outage_pause_s
        else:
            vitals.works()
        await rest(rest_s)


class Repeating:
    """An actor that is nothing but its rounds: `work` as `rounds` does it."""

    def __init__(self, work: Callable[[], Awaitable[float]], vitals: Vitals) -> None:
        self._work, self._vitals = work, vitals

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        await rounds(self._work, self._vitals, task_status=task_status)
