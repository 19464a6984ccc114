"""Reads of what traffic brought, from a streaming replica while it is near enough, else from the primary.

`ReplicaFirst` stands where a `Database` stands; `svc.wiring.service` hands it to queries, tools and pages
that read spans, traces and sessions. What people and agents write is never read through it: they see it at
once.

How far behind it is: each look notes how far the primary's log has come; the replica is as late as the
oldest of those places that it has not come to. So a replica that hears nothing any more grows late as well,
and the clocks of the two machines do not matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any, Final, Literal, TypeVar

import asyncpg
import trio

from protocol.database_address import Address
from protocol.storage import Outage, Slow
from svc.store.postgres.database import WORK_TIMEOUT_S, Connection, Database

T = TypeVar("T")

#: How often both are looked at, and how long a look is believed.
LOOK_S: Final = 1.0
_BELIEVED_S: Final = 5.0
_LOOK_TIMEOUT_S: Final = 2.0
_MOST_PLACES: Final = 600

#: Nobody has looked yet; it may be asked; it is late; it does not answer; it follows nobody, or another one.
State = Literal["unknown", "near", "late", "away", "stranger"]

# How far the log of the primary has come, and which cluster it is.
_PRIMARY: Final = (
    "select (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint as place,"
    " (select system_identifier from pg_control_system()) as cluster"
)
# How far the replica has come; null where nothing is replayed, which is no replica.
_REPLICA: Final = (
    "select (pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint as place,"
    " (select system_identifier from pg_control_system()) as cluster where pg_is_in_recovery()"
)

#: A replica ends a question that is in the way of what it replays; it is well all the same.
_IN_THE_WAY: Final = (asyncpg.SerializationError, asyncpg.ReadOnlySQLTransactionError)


class _Promoted(Exception):
    """One of several replicas follows nobody any more, so a connection to another one is wanted."""


class ReplicaFirst(Database):
    """Asks the replica at `address`, and the primary when it must not, cannot or knows of nothing."""

    # Not what cannot be written to: that is what it is for.
    _misled = (_Promoted,)

    def __init__(
        self,
        address: Address,
        primary: Database,
        *,
        max_lag_s: float,
        pool_size: int,
        statement_timeout_s: float,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        super().__init__(address, pool_size=pool_size, statement_timeout_s=statement_timeout_s)
        self._primary, self._clock = primary, clock
        self.max_lag_s = max_lag_s
        self.lag_s: float | None = None
        #: Units of work that each of them did.
        self.by_replica = self.by_primary = 0
        self._state: State = "unknown"
        self._looked_s = -inf
        #: Places of the primary's log that the replica has not come to, with when they were seen.
        self._places: deque[tuple[float, int]] = deque(maxlen=_MOST_PLACES)

    @property
    def state(self) -> State:
        """Whether it may be asked; what was seen too long ago is not believed."""
        return self._state if self._clock() - self._looked_s < _BELIEVED_S else "unknown"

    async def run(
        self,
        work: Callable[[Connection], Awaitable[T]],
        *,
        transaction: bool = True,
        readonly: bool = False,
        snapshot: bool = False,
        timeout_s: float = WORK_TIMEOUT_S,
    ) -> T:
        """As `Database.run`. `work` may run twice: on the replica, and when that fails on the primary."""
        options: Any = {"transaction": transaction, "readonly": readonly, "snapshot": snapshot}
        if self.state == "near":
            try:
                rows = await super().run(work, **options, timeout_s=timeout_s)
            except Slow:
                raise
            except Outage as outage:
                if not isinstance(outage.__cause__, _IN_THE_WAY):
                    # Nobody else waits for it; the next look may find it again.
                    self._state = "away"
            else:
                self.by_replica += 1
                if rows is not None and rows != []:
                    return rows
                # What came a moment ago may be there, and what is nowhere costs one look more.
        self.by_primary += 1
        return await self._primary.run(work, **options, timeout_s=timeout_s)

    async def look(self) -> float:
        """Look at both. Returns the seconds to rest until the next look; raises nothing for an outage."""
        written: Any = None
        # While it is away, what it had written when it was seen last is what counts.
        with suppress(Outage):
            (written,) = await self._primary.fetch(_PRIMARY, timeout_s=_LOOK_TIMEOUT_S)
        try:
            rows = await Database.run(self, self._place, transaction=False, timeout_s=_LOOK_TIMEOUT_S)
        except Outage:
            self._seen("away", None)
            return LOOK_S
        except _Promoted:
            rows = []
        if not rows or (written is not None and rows[0]["cluster"] != written["cluster"]):
            self._places.clear()
            self._seen("stranger", None)
            return LOOK_S
        self._measured(None if written is None else written["place"], rows[0]["place"] or 0)
        return LOOK_S

    async def _place(self, connection: Connection) -> list[Any]:
        rows = await connection.fetch(_REPLICA)
        if not rows and self._servers.several:
            raise _Promoted
        return rows

    def _measured(self, written: int | None, replayed: int) -> None:
        now_s = self._clock()
        if written is not None:
            self._places.append((now_s, written))
        while self._places and self._places[0][1] <= replayed:
            self._places.popleft()
        lag_s = now_s - self._places[0][0] if self._places else 0.0
        self._seen("near" if lag_s <= self.max_lag_s else "late", lag_s)

    def _seen(self, state: State, lag_s: float | None) -> None:
        self._state, self.lag_s, self._looked_s = state, lag_s, self._clock()

    def snapshot(self) -> dict[str, Any]:
        """For health."""
        return {
            "state": self.state,
            "lag_ms": None if self.lag_s is None else round(self.lag_s * 1000),
            "max_lag_ms": round(self.max_lag_s * 1000),
            "asked_replica": self.by_replica,
            "asked_primary": self.by_primary,
        }
