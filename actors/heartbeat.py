"""The heartbeat: once at the start and every 24 hours, says anonymously that an instance is alive.

Owns the rhythm only. The census makes the install's id, the wiring composes the message and delivers it. It
does not exist at all while `SVC_TELEMETRY_ENABLED` is false. A message that cannot be delivered is dropped:
nobody waits for it and it is not worth a second try before the next day.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final

import trio

from actors.ports import Census, CensusTaker, Outage
from actors.supervision import Vitals

log = logging.getLogger(__name__)

PERIOD_S: Final = 24 * 3600.0
OUTAGE_PAUSE_S: Final = 2.0


class Heartbeat:
    """Beats until cancelled."""

    def __init__(
        self,
        *,
        census: CensusTaker,
        compose: Callable[[Census, datetime], Mapping[str, Any]],
        deliver: Callable[[Mapping[str, Any]], Awaitable[str | None]],
        now: Callable[[], datetime],
        vitals: Vitals,
    ) -> None:
        self._census, self._compose, self._deliver = census, compose, deliver
        self._now, self._vitals = now, vitals

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        while True:
            now = self._now()
            try:
                census = await self._census.take(now)
            except Outage as outage:
                self._vitals.waits(str(outage))
                await trio.sleep(OUTAGE_PAUSE_S)
                continue
            self._vitals.works()
            fault = await self._deliver(self._compose(census, now))
            if fault is not None:
                log.info("the heartbeat was not delivered (%s); the next is due in 24 hours", fault)
            await trio.sleep(PERIOD_S)
