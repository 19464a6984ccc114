"""The hour builder: keeps what is counted by the hour up with the closed hours.

There are two, one for the cubes and one for the metric roll-ups.

Owns the rhythm only; the store knows what is closed, what is dirty and how an hour is counted. Replicas may
come to the same hour one after the other: the second finds it done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from actors.ports import Hours
from actors.rounds import Rounds
from actors.supervision import Vitals

CUBES_ROUND_S: Final = 30.0
ROLLUPS_ROUND_S: Final = 60.0
#: Hours that one round builds at most.
ROUND_HOURS: Final = 50
#: Between the rounds of a backlog: even that leaves the database to others now and then.
BACKLOG_PAUSE_S: Final = 0.1


class HourBuilder(Rounds):
    """Builds every `round_s` seconds, and without a long pause while there is a backlog.

    `now` is the clock that rows are stamped by: which hours are closed is decided by no other.
    """

    def __init__(
        self, *, hours: Hours, now: Callable[[], Awaitable[datetime]], vitals: Vitals, round_s: float
    ) -> None:
        self._hours, self._now, self._vitals, self._round_s = hours, now, vitals, round_s

    async def _turn(self) -> float:
        built = await self._hours.build(await self._now(), ROUND_HOURS)
        return BACKLOG_PAUSE_S if built.more else self._round_s
