"""The retention sweeper: every hour, lets go of what has expired.

Owns the rhythm and the tally only; the store knows the terms and the steps of a sweep. Replicas may sweep at
the same time: what one has taken away the other finds gone.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import attrs
import trio

from actors.ports import Freed, Retention
from actors.rounds import Rounds
from actors.supervision import Vitals

log = logging.getLogger(__name__)

ROUND_S: Final = 3600.0


@attrs.define
class SweepTally:
    """What was freed since the start of this process; `last_*` tell of the last whole sweep."""

    sweeps: int = 0
    days: int = 0
    rows: int = 0
    bytes: int = 0
    last_ended_at: datetime | None = None
    last_took_s: float = 0.0
    last_freed: dict[str, int] = attrs.field(factory=dict)

    def snapshot(self) -> dict[str, Any]:
        """The tally as health shows it; `last_freed` counts days and rows by table."""
        return attrs.asdict(self)


class RetentionSweeper(Rounds):
    """Sweeps at the start, then every hour. A sweep that an outage cut off is taken up after a pause."""

    def __init__(
        self, *, retention: Retention, now: Callable[[], datetime], tally: SweepTally, vitals: Vitals
    ) -> None:
        self._retention, self._now, self._tally, self._vitals = retention, now, tally, vitals
        self._freed: Counter[str] = Counter()

    async def _turn(self) -> float:
        started_s = trio.current_time()
        await self._retention.sweep(self._now(), self._note)
        self._end(trio.current_time() - started_s)
        return ROUND_S

    def _note(self, freed: Freed) -> None:
        self._tally.days += freed.days
        self._tally.rows += freed.rows
        self._tally.bytes += freed.bytes
        if freed.days:
            self._freed[f"{freed.table}_days"] += freed.days
            self._freed["bytes"] += freed.bytes
        self._freed[f"{freed.table}_rows"] += freed.rows

    def _end(self, took_s: float) -> None:
        tally = self._tally
        tally.sweeps += 1
        tally.last_ended_at, tally.last_took_s = self._now(), round(took_s, 3)
        tally.last_freed = {name: count for name, count in sorted(self._freed.items()) if count}
        self._freed.clear()
        if tally.last_freed:
            freed = ", ".join(f"{name} {count}" for name, count in tally.last_freed.items())
            log.info("retention freed in %.1f s: %s", took_s, freed)
