"""The partitioner: makes day partitions ahead of time, and one by one those that writes left to it.

Owns the rhythm only; the store knows the tables. Called by nobody; runs at start and then every hour.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from actors.ports import Calendar
from actors.rounds import Rounds
from actors.supervision import Vitals

ROUND_S: Final = 3600.0
#: Between two days whose rows are brought home: moving them takes what ingest and questions share.
PAUSE_S: Final = 1.0


class Partitioner(Rounds):
    """Keeps the partitions of yesterday, today and tomorrow in place, and brings rows home to their days."""

    def __init__(self, *, calendar: Calendar, now: Callable[[], datetime], vitals: Vitals) -> None:
        self._calendar, self._now, self._vitals = calendar, now, vitals

    async def _turn(self) -> float:
        await self._calendar.make_days(self._now())
        return PAUSE_S if await self._calendar.bring_home(self._now()) else ROUND_S
