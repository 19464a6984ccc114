"""Which duties are this copy's: those that send or spend are done by one copy of the service alone.

`Leases` is the handle that loops ask; `LeaseKeeper` renews in good time, and gives up what it has at the end
of the process. A copy that cannot reach the database loses its leases by its own clock, before the database
lets another have them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Final

import trio

from actors.ports import LeaseStore
from actors.rounds import rounds
from actors.supervision import Vitals
from protocol.storage import Outage

log = logging.getLogger(__name__)

#: How long a lease holds, and how often it is renewed: two renewals may fail.
LIFE_S: Final = 30.0
RENEW_S: Final = 10.0
RELEASE_TIMEOUT_S: Final = 2.0


class Leases:
    """The duties of this copy, by name. `alone` means that there are no other copies."""

    def __init__(self, names: Sequence[str], *, alone: bool, clock: Callable[[], float] = trio.current_time):
        self.names = tuple(names)
        self._clock = clock
        self._until_s = dict.fromkeys(self.names, inf if alone else -inf)

    def held(self, name: str) -> bool:
        """Whether this duty is ours now. To be asked before each thing that is sent or spent."""
        return self._clock() < self._until_s[name]

    def renewed(self, ours: frozenset[str], until_s: float) -> None:
        """These are ours until then, and no others."""
        for name in self.names:
            if self.held(name) != (name in ours):
                log.info("this copy %s the duty of %s", "has" if name in ours else "has not", name)
            self._until_s[name] = until_s if name in ours else -inf


class LeaseKeeper:
    """Renews every ten seconds until cancelled, then releases."""

    def __init__(self, *, leases: Leases, store: LeaseStore, vitals: Vitals) -> None:
        self._leases, self._store, self._vitals = leases, store, vitals

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        try:
            await rounds(self._renew, self._vitals, task_status=task_status)
        finally:
            self._leases.renewed(frozenset(), -inf)
            with trio.move_on_after(RELEASE_TIMEOUT_S, shield=True), suppress(Outage):
                await self._store.release()

    async def _renew(self) -> float:
        # Counted from before the question, so that ours is over first.
        until_s = trio.current_time() + LIFE_S
        self._leases.renewed(await self._store.take(self._leases.names, LIFE_S), until_s)
        return RENEW_S
