"""The folder: has settled traces counted by the detectors, project by project.

Owns the rhythm and the tally only. What is due stands in the database (so a restart loses nothing and
replicas share the work); what a trace is counted as is a rule of the domain.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

import attrs
import trio

from actors.ports import FoldShelf
from actors.rounds import rounds
from actors.supervision import Vitals
from protocol.detection_rounds import Folded

log = logging.getLogger(__name__)

#: Between two looks, and between two rounds of a backlog: even that leaves the database to others.
ROUND_S: Final = 5.0
BACKLOG_PAUSE_S: Final = 0.05
#: Between two rounds of a backlog while ingest is busy. A round costs a quarter of a second of a core at most
#: (2,000 spans, 2026-11), and so every ten seconds less than the 3 % that ingest may lose.
BUSY_PAUSE_S: Final = 10.0
#: How often tallies are brought to hours where they are old enough.
TIDY_S: Final = 3600.0


@attrs.define
class FolderTally:
    """What the folder did since the start of this process."""

    rounds: int = 0
    traces: int = 0
    spans: int = 0
    again: int = 0
    left_out: int = 0
    unread: int = 0
    failures: Counter[str] = attrs.field(factory=Counter)

    def add(self, done: Folded) -> None:
        """Count one round of a project."""
        self.rounds += 1
        self.traces += done.traces
        self.spans += done.spans
        self.again += done.again
        self.left_out += done.left_out
        self.unread += done.unread
        self.failures.update(done.failures)


class TraceFolder:
    """Folds every few seconds, and without a long pause while there is a backlog: a round for each project
    that has traces waiting, so that a busy one does not keep the others from their turn. While `busy` says
    that ingest needs the machine, it rests after each round of a project.
    """

    def __init__(
        self, *, shelf: FoldShelf, busy: Callable[[], bool], tally: FolderTally, vitals: Vitals
    ) -> None:
        self._shelf, self._busy, self._tally, self._vitals = shelf, busy, tally, vitals
        #: When to tidy a project next.
        self._tidy_at_s: dict[int, float] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        await rounds(self._round, self._vitals, task_status=task_status)

    async def _round(self) -> float:
        more = False
        for project_id in await self._shelf.waiting():
            done = await self._shelf.fold(project_id)
            if not done.held:
                continue
            self._tally.add(done)
            for name, traces in done.failures.items():
                log.warning("the detector %s could not look at %d traces", name, traces)
            more |= done.more
            await self._tidy(project_id)
            if self._busy():
                await trio.sleep(BUSY_PAUSE_S)
        return BACKLOG_PAUSE_S if more else ROUND_S

    async def _tidy(self, project_id: int) -> None:
        if trio.current_time() >= self._tidy_at_s.get(project_id, 0.0):
            # Step by step, one a round: nobody waits for old tallies.
            left = await self._shelf.to_hours(project_id)
            self._tidy_at_s[project_id] = trio.current_time() + (0.0 if left else TIDY_S)
