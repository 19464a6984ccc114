"""The trace roller: settles traces that have gone quiet and rolls up those that changed.

There are two: one for large traces, which the database rolls up one at a time, so that no other trace waits
for them.

Owns the rhythm only. What is due stands in the database (so a restart loses nothing and replicas share
the work); how a trace is rolled up is a rule of the domain; this actor asks the store to do a round.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import attrs

from actors.ports import TraceStore
from actors.rounds import Rounds
from actors.supervision import Vitals

#: How often the roller looks, and how many traces it takes in one transaction.
ROUND_S: Final = 0.25
#: How long it may look away while nothing is due. Writers make nothing due sooner than two seconds ahead, so
#: no trace waits longer for it.
IDLE_S: Final = 1.0
ROUND_TRACES: Final = 200


@attrs.define
class RollerTally:
    """What the rollers did since the start."""

    rounds: int = 0
    rolled: int = 0
    settled: int = 0


@attrs.define(eq=False, repr=False, kw_only=True)
class TraceRoller(Rounds):
    """Looks for due traces four times a second, without a pause while there is a backlog, and once a second
    while nothing is due for as long. A round takes at most `traces`.

    `now` is the clock by which writers say when a trace is due.
    """

    _store: TraceStore
    _now: Callable[[], Awaitable[datetime]]
    _tally: RollerTally
    _vitals: Vitals
    _traces: int = ROUND_TRACES

    async def _turn(self) -> float:
        now = await self._now()
        settled = await self._store.settle(now, self._traces)
        self._tally.rounds += 1
        self._tally.rolled += settled.seen
        self._tally.settled += settled.settled
        if settled.seen:
            return 0.0 if settled.seen == self._traces else ROUND_S
        if settled.next_at is None:
            return IDLE_S
        return min(max((settled.next_at - now).total_seconds(), ROUND_S), IDLE_S)
