"""The eraser: does what somebody asked to be erased, a portion at a time.

Owns the rhythm; the store knows the steps. Called by nobody: what is to be erased is found in the database,
so an erasure that was cut off by a stop, a crash or an outage is taken up where it was, by any process. What
must be erased again after a restore is written down first, outside of the database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import attrs
import trio

from actors.ports import EraserStore
from actors.rounds import Rounds
from actors.supervision import Vitals

ROUND_S: Final = 2.0
#: The pause after each step, which leaves the disk and the locks to others.
STEP_PAUSE_S: Final = 0.05
#: How often tombstones whose term is over are looked for.
TIDY_S: Final = 3600.0


@attrs.define(eq=False, repr=False, kw_only=True)
class Eraser(Rounds):
    """Erases, oldest first in each project."""

    _store: EraserStore
    _write_down: Callable[[], Awaitable[None]]
    _now: Callable[[], datetime]
    _vitals: Vitals
    _tidied_s: float = attrs.field(default=float("-inf"), init=False)

    async def _turn(self) -> float:
        projects = await self._store.projects()
        if projects:
            await self._write_down()
        for project_id in projects:
            while await self._store.step(project_id) is not None:  # noqa: ASYNC110 - each does a portion
                await trio.sleep(STEP_PAUSE_S)
        if trio.current_time() - self._tidied_s > TIDY_S:
            await self._store.drop_expired(self._now())
            self._tidied_s = trio.current_time()
        return ROUND_S
