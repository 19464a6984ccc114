"""All connections of the HTTP and gRPC doors: how many there are, and who goes when there are too many.

Owns their count and the order in which they fell silent. Each connection enters when it is accepted; above
the bound the one that has been silent longest is closed in favour of the newcomer, or the newcomer itself
when none is silent. So a client that opens connections and says nothing cannot use up the descriptors of the
process. Passive; the bound is asked for each time, as the limit of the process may change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import Final, Protocol

import attrs
import trio

log = logging.getLogger(__name__)

_QUIET_S: Final = 60.0


class Guest(Protocol):
    """A connection that can be closed at once, from any task."""

    def leave(self) -> None: ...


@attrs.define(eq=False)
class ConnectionLimiter:
    """The connections there are. `shed` counts those that had to go."""

    most: Callable[[], int]
    shed: int = 0
    _here: set[Guest] = attrs.field(factory=set)
    #: The one that fell silent first stands first.
    _silent: dict[Guest, None] = attrs.field(factory=dict)
    _told_s: float = -inf

    def enter(self, guest: Guest) -> bool:
        """A connection was accepted, and has said nothing yet. Returns whether it may stay."""
        if len(self._here) >= self.most() and not self._shed():
            return False
        self._here.add(guest)
        self._silent[guest] = None
        return True

    def silent(self, guest: Guest) -> None:
        """The connection waits for its client from now on."""
        if guest in self._here:
            self._silent.pop(guest, None)
            self._silent[guest] = None

    def busy(self, guest: Guest) -> None:
        """A request is under way on the connection."""
        self._silent.pop(guest, None)

    def gone(self, guest: Guest) -> None:
        """The connection is closed."""
        self._here.discard(guest)
        self._silent.pop(guest, None)

    def __len__(self) -> int:
        return len(self._here)

    def _shed(self) -> bool:
        self.shed += 1
        now_s = trio.current_time()
        if now_s - self._told_s > _QUIET_S:
            self._told_s = now_s
            log.warning("%d connections are open, the most allowed; closing idle ones", len(self._here))
        for guest in self._silent:
            self.gone(guest)
            guest.leave()
            return True
        return False
