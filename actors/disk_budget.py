"""Keeps the disk within its budget: measures every minute, tells, drops the oldest, and at last refuses.

Every copy of the service measures and may refuse; the one that `leads` drops, so that two never drop more
than there is need for. Owns the rhythm and the tally; what goes when is `svc.domain.retention.disk_budget`,
handed in as `steps` and `level`. The doors read `refuses` of the tally.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import date, datetime
from typing import Any, Final, Protocol

import attrs
import trio

from actors.rounds import Rounds
from actors.supervision import Vitals

log = logging.getLogger(__name__)

ROUND_S: Final = 60.0
#: While it is nearly full it may fill within a minute.
TIGHT_ROUND_S: Final = 5.0
#: A level that stays is told again after so long.
TELL_AGAIN_S: Final = 24 * 3600.0


class DiskStore(Protocol):
    """Where disk use is measured and days are dropped. All verbs raise `Outage`."""

    async def measure(self) -> Any: ...

    async def drop(self, step: Any, now: datetime) -> int: ...


@attrs.define
class DiskTally:
    """What is known of the disk, for health, metrics and the doors."""

    #: Whether this process has measured yet.
    measured: bool = False
    budget: int = 0
    used: int = 0
    database: int = 0
    wal: int = 0
    spool: int = 0
    level: str = "ok"
    bytes_a_day: int = 0
    reached_on: date | None = None
    dropped_steps: int = 0
    dropped_bytes: int = 0
    #: Nothing is left to drop, and the budget is reached: ingest answers 503.
    refuses: bool = False

    def snapshot(self) -> dict[str, Any]:
        """The tally as health shows it."""
        return attrs.asdict(self)


@attrs.frozen
class BudgetRules:
    """The rules of the budget, as the actor asks them."""

    level: Callable[[int, int, bool], str]
    steps: Callable[[Any, date], Iterator[Any]]
    #: Growth a day, and the day on which the budget is reached.
    forecast: Callable[[Any, date], tuple[int, date | None]]


class DiskBudget(Rounds):
    """Looks at the disk again and again until it is cancelled."""

    def __init__(
        self,
        *,
        budget_bytes: int,
        store: DiskStore,
        rules: BudgetRules,
        now: Callable[[], datetime],
        leads: Callable[[], bool],
        tally: DiskTally,
        vitals: Vitals,
    ) -> None:
        self._budget, self._store, self._rules = budget_bytes, store, rules
        self._now, self._leads, self._tally, self._vitals = now, leads, tally, vitals
        self._told_s = -TELL_AGAIN_S
        tally.budget = budget_bytes

    async def _turn(self) -> float:
        use = await self._store.measure()
        nothing_left = False
        if self._rules.level(use.total, self._budget, True) == "drop":
            if self._leads():
                use, nothing_left = await self._drop(use)
            else:
                # Another copy drops. Where it does not keep up, no copy takes more.
                nothing_left = use.total >= self._budget
        self._note(use, self._rules.level(use.total, self._budget, not nothing_left))
        return ROUND_S if self._tally.level in ("ok", "tell") else TIGHT_ROUND_S

    async def _drop(self, use: Any) -> tuple[Any, bool]:
        """Drop until there is room. Returns the use after it, and whether nothing is left to drop."""
        now = self._now()
        for step in self._rules.steps(use.days, now.date()):
            freed = await self._store.drop(step, now)
            if not freed:
                continue
            self._tally.dropped_steps += 1
            self._tally.dropped_bytes += freed
            log.warning(
                "the disk budget is used up: dropped the %s of %s, %.1f MiB",
                step.what,
                step.day,
                freed / 2**20,
            )
            use = await self._store.measure()
            if self._rules.level(use.total, self._budget, True) != "drop":
                return use, False
        return use, True

    def _note(self, use: Any, level: str) -> None:
        tally, today = self._tally, self._now().date()
        previous, tally.level = tally.level, level
        tally.measured = True
        tally.used, tally.database, tally.wal, tally.spool = use.total, use.database, use.wal, use.spool
        tally.bytes_a_day, tally.reached_on = self._rules.forecast(use, today)
        tally.refuses = level == "full"
        now_s = trio.current_time()
        if level != previous or (level != "ok" and now_s - self._told_s >= TELL_AGAIN_S):
            self._told_s = now_s
            self._tell(level)

    def _tell(self, level: str) -> None:
        tally = self._tally
        share = (
            f"{tally.used / self._budget:.0%} of the disk budget of {self._budget / 2**20:.0f} MiB is used"
        )
        match level:
            case "ok":
                log.info(share)
            case "full":
                log.warning("%s and nothing is left to drop: refusing ingest", share)
            case _:
                when = "no day by present growth" if tally.reached_on is None else str(tally.reached_on)
                log.warning("%s, %.1f MiB a day; reached on %s", share, tally.bytes_a_day / 2**20, when)
