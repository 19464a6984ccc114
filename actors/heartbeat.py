"""The heartbeat: once at the start and every 24 hours, says anonymously that an instance is alive.

Owns the rhythm only. The census makes the install's id, the wiring composes the message and delivers it. It
does not exist at all while `SVC_TELEMETRY_ENABLED` is false. A message that cannot be delivered is dropped:
nobody waits for it and it is not worth a second try before the next day. Of several copies one beats.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final

import attrs

from actors.ports import Census, CensusTaker
from actors.rounds import Rounds
from actors.supervision import Vitals

log = logging.getLogger(__name__)

PERIOD_S: Final = 24 * 3600.0
#: How soon a copy that does not beat looks whether it should.
STANDBY_S: Final = 10.0


@attrs.define(eq=False, repr=False, kw_only=True)
class Heartbeat(Rounds):
    """Beats until cancelled."""

    _census: CensusTaker
    _compose: Callable[[Census, datetime], Mapping[str, Any]]
    _deliver: Callable[[Mapping[str, Any]], Awaitable[str | None]]
    _now: Callable[[], datetime]
    _leads: Callable[[], bool]
    _vitals: Vitals

    async def _turn(self) -> float:
        if not self._leads():
            return STANDBY_S
        now = self._now()
        fault = await self._deliver(self._compose(await self._census.take(now), now))
        if fault is not None:
            log.debug("the heartbeat was not delivered (%s); the next is due in 24 hours", fault)
        return PERIOD_S
