"""The roll-up writer: keeps the metric roll-ups up with the closed hours and days.

Owns the rhythm only; the store knows what is closed and how an hour is counted. Replicas may come to the same
hour one after the other: the second finds it done.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

import trio

from actors.ports import Outage, Rollups
from actors.supervision import Vitals

ROUND_S: Final = 60.0
ROUND_HOURS: Final = 50
OUTAGE_PAUSE_S: Final = 2.0


class RollupWriter:
    """Writes once a minute, and without a long pause while there is a backlog."""

    def __init__(self, *, rollups: Rollups, now: Callable[[], datetime], vitals: Vitals) -> None:
        self._rollups, self._now, self._vitals = rollups, now, vitals
        self.hours = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        while True:
            try:
                built = await self._rollups.build(self._now(), ROUND_HOURS)
            except Outage as outage:
                self._vitals.waits(str(outage))
                await trio.sleep(OUTAGE_PAUSE_S)
                continue
            self._vitals.works()
            self.hours += built.hours
            # Even a backlog leaves the database to others now and then.
            await trio.sleep(0.1 if built.more else ROUND_S)
