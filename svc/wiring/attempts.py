"""Wiring of the limits on sign-in among several copies: what one counts, all count."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

import attrs

from actors.attempts import AttemptQueue, AttemptReporter
from actors.notifications import NotificationListener
from actors.supervision import Board, Loop
from svc.front.auth.limits import AttemptLimiter
from svc.store.postgres.database import Database
from svc.store.replicas.attempts import CHANNEL, PostgresAttemptStore
from svc.store.replicas.notices import notices


@attrs.define(eq=False)
class SharedAttempts:
    """The counts of this copy and the way to the others."""

    attempts: AttemptLimiter
    store: PostgresAttemptStore
    queue: AttemptQueue = attrs.field(factory=AttemptQueue)
    _seen: dict[str, int] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.attempts.shared(self.queue.put)

    async def check(self) -> None:
        """Count what others have counted since. Raises `Outage`."""
        reported = await self.store.reported(self._seen)
        self._seen = reported.seen
        for attempt in reported.attempts:
            self.attempts.learn(attempt)

    def loops(self, board: Board) -> list[Loop]:
        """Who tells and who hears."""
        subscribe = partial(notices, self.store.database, CHANNEL)
        return [
            board.spare("try-teller", partial(AttemptReporter, queue=self.queue, store=self.store)),
            board.spare("try-news", partial(NotificationListener, notices=subscribe, check=self.check)),
        ]


def shared_attempts(attempts: AttemptLimiter, database: Database, window_s: float) -> SharedAttempts:
    """Through this database, under a name that no other copy has."""
    return SharedAttempts(attempts, PostgresAttemptStore(database, str(uuid4()), window_s))
