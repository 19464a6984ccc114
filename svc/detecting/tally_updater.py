"""The tally updater: has settled traces counted by the detectors, project by project.

Owns the rhythm and the counts only; a round of the detecting process. What is due stands in the database
(so a restart loses nothing and replicas share the work); what a trace is counted as is a rule of the domain.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import trio

from protocol.detection_rounds import FAILED, Tallied

log = logging.getLogger(__name__)

#: Between two looks, and between two rounds of a backlog: even that leaves the database to others.
ROUND_S: Final = 5.0
BACKLOG_PAUSE_S: Final = 0.05
#: After a look that brought many spans: the next brings more at once, and costs less for each (10,000 in
#: place of 5,000 in a round: 0.92, measured November 2026).
MANY_SPANS: Final = 2_000
MANY_ROUND_S: Final = 8.0
#: Between two rounds of a backlog while ingest is busy. A round costs half a second of a core at most (10,000
#: spans, 2026-11), and so every twenty seconds less than the 3 % that ingest may lose.
BUSY_PAUSE_S: Final = 20.0
#: How often tallies are brought to hours where they are old enough.
TIDY_S: Final = 3600.0


class TallyQueue(Protocol):
    """Settled traces that detectors have not counted yet. All verbs raise `Outage`."""

    async def waiting(self) -> Sequence[int]: ...

    async def tally(self, project_id: int) -> Tallied: ...

    async def to_hours(self, project_id: int) -> bool: ...


class TallyUpdater:
    """Tallies every few seconds, and without a long pause while there is a backlog: a round for each project
    that has traces waiting, so that a busy one does not keep the others from their turn. While `busy` says
    that ingest needs the machine, it rests after each round of a project.

    `counts` go up by what was done.
    """

    def __init__(self, *, store: TallyQueue, busy: Callable[[], bool], counts: Counter[str]) -> None:
        self._store, self._busy, self._counts = store, busy, counts
        #: When to tidy a project next.
        self._tidy_at_s: dict[int, float] = {}

    async def round(self) -> float:
        """Tally once for each project; how many seconds to rest."""
        has_more = False
        spans_before = self._counts["spans"]
        for project_id in await self._store.waiting():
            tally = await self._store.tally(project_id)
            if not tally.held:
                continue
            self._count(tally)
            for name, traces in tally.failures.items():
                log.warning("the detector %s failed on %d traces", name, traces)
            has_more |= tally.more
            await self._tidy(project_id)
            if self._busy():
                await trio.sleep(BUSY_PAUSE_S)
        if has_more:
            return BACKLOG_PAUSE_S
        return ROUND_S if self._counts["spans"] - spans_before < MANY_SPANS else MANY_ROUND_S

    def _count(self, tally: Tallied) -> None:
        self._counts["rounds"] += 1
        for name in ("traces", "spans", "again", "left_out", "unread"):
            self._counts[name] += getattr(tally, name)
        for name, traces in tally.failures.items():
            self._counts[FAILED + name] += traces

    async def _tidy(self, project_id: int) -> None:
        if trio.current_time() >= self._tidy_at_s.get(project_id, 0.0):
            # Step by step, one a round: nobody waits for old tallies.
            remaining = await self._store.to_hours(project_id)
            self._tidy_at_s[project_id] = trio.current_time() + (0.0 if remaining else TIDY_S)
