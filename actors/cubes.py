"""The cube builder: keeps the hourly cubes up with the closed hours.

Owns the rhythm only; the store knows what is closed, what is dirty and how an hour is built. Replicas may
build the same hour one after the other: the second finds it built.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

import trio

from actors.ports import Cubes, Outage
from actors.supervision import Vitals

ROUND_S: Final = 30.0
ROUND_HOURS: Final = 50
OUTAGE_PAUSE_S: Final = 2.0


class CubeBuilder:
    """Builds twice a minute, and without a long pause while there is a backlog."""

    def __init__(self, *, cubes: Cubes, now: Callable[[], datetime], vitals: Vitals) -> None:
        self._cubes, self._now, self._vitals = cubes, now, vitals
        self.hours = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        while True:
            try:
                built = await self._cubes.build(self._now(), ROUND_HOURS)
            except Outage as outage:
                self._vitals.waits(str(outage))
                await trio.sleep(OUTAGE_PAUSE_S)
                continue
            self._vitals.works()
            self.hours += built.hours
            # Even a backlog leaves the database to others now and then.
            await trio.sleep(0.1 if built.more else ROUND_S)
