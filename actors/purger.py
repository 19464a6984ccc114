"""The purger: deletes what deleted projects left behind, a little at a time.

Owns the rhythm and the order; the store knows the tables. Called by nobody: deletions are found in the
database, so a purge that was cut off by a stop, a crash or an outage is taken up again by any process.

Ordering: batches that were accepted before the deletion may be written after it, out of a spool or a broker.
So a project is looked at again every hour until `LATE`, and counts as purged after a round behind that.
Two replicas may purge one project at once; they skip what the other holds.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import trio

from actors.ports import Deleted, PurgeStore
from actors.rounds import Rounds
from actors.supervision import Vitals

ROUND_S: Final = 5.0
#: Rows a step, and the rest after each: at most ten thousand rows a second, so that ingest goes on beside.
STEP_ROWS: Final = 2000
STEP_PAUSE_S: Final = 0.2
LATE: Final = timedelta(days=1)
AGAIN: Final = timedelta(hours=1)


class Purger(Rounds):
    """Empties deleted projects."""

    def __init__(self, *, store: PurgeStore, now: Callable[[], datetime], vitals: Vitals) -> None:
        self._store, self._now, self._vitals = store, now, vitals
        #: When to look again at projects that were found empty.
        self._again: dict[int, datetime] = {}

    async def _turn(self) -> float:
        for project in await self._store.deleted():
            await self._empty(project)
        return ROUND_S

    async def _empty(self, project: Deleted) -> None:
        now = self._now()
        if now < self._again.get(project.project_id, now):
            return
        for table in await self._store.tables():
            removed = STEP_ROWS
            while removed == STEP_ROWS:
                removed = await self._store.purge(project.project_id, table, STEP_ROWS)
                if removed:
                    await trio.sleep(STEP_PAUSE_S)
        if now - project.deleted_at >= LATE:
            await self._store.purged(project.project_id)
            self._again.pop(project.project_id, None)
        else:
            self._again[project.project_id] = now + AGAIN
