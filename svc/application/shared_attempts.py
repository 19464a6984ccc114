"""Attempts at signing in among several copies: what one counts, all count."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from actors.attempts import AttemptQueue
from protocol.attempts import ReportedAttempt
from svc.store.replicas.attempts import PostgresAttemptStore


@attrs.define(eq=False)
class SharedAttempts:
    """The way to the other copies and back. `learn` counts here what another copy has counted."""

    store: PostgresAttemptStore
    learn: Callable[[ReportedAttempt], None]
    #: What this copy has counted and nobody else knows of.
    queue: AttemptQueue = attrs.field(factory=AttemptQueue)
    _seen: dict[str, int] = attrs.field(factory=dict)

    async def check(self) -> None:
        """Count what others have counted since. Raises `Outage`."""
        reported = await self.store.reported(self._seen)
        self._seen = reported.seen
        for attempt in reported.attempts:
            self.learn(attempt)
