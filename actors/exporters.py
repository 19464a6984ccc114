"""The exporter writer: brings what decoders and doors noted about exporters to the store now and then.

Owns the rhythm only. Counters that an outage keeps from the store are given up: they are statistics, and
waiting for them would fill memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from actors.rounds import rounds
from actors.supervision import Vitals

ROUND_S: Final = 5.0


class ExporterWriter:
    """Writes every few seconds."""

    def __init__(self, *, write: Callable[[], Awaitable[None]], vitals: Vitals) -> None:
        self._write, self._vitals = write, vitals

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        await rounds(
            self._turn, self._vitals, begin_after_s=ROUND_S, outage_pause_s=ROUND_S, task_status=task_status
        )

    async def _turn(self) -> float:
        await self._write()
        return ROUND_S
