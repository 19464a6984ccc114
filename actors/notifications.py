"""Hearing from other copies of the service that something has changed, and looking at it then.

Whoever listens looks once when it begins to: what was told before was not heard. Spare: a copy that is deaf
goes on with what it has, and says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import attrs
import trio

from actors.rounds import OUTAGE_PAUSE_S
from actors.supervision import Vitals
from protocol.storage import Outage


@attrs.define(eq=False, repr=False, kw_only=True)
class NotificationListener:
    """Checks at each notice. `notices` ends by `Outage` only; `check` may raise one."""

    _notices: Callable[[], AbstractAsyncContextManager[AsyncIterator[str]]]
    _check: Callable[[], Awaitable[object]]
    _vitals: Vitals

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled."""
        task_status.started()
        while True:
            try:
                async with self._notices() as notices:
                    await self._check()
                    self._vitals.works()
                    async for _ in notices:
                        await self._check()
            except Outage as outage:
                self._vitals.waits(str(outage))
                await trio.sleep(OUTAGE_PAUSE_S)
