"""How often something may be tried: counted per name in a sliding window, refused with seconds to wait.

Owns the counts of this process, bounded; replicas count for themselves. All verbs are synchronous.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from math import ceil
from typing import Final

import attrs
import trio

#: Names counted at once, oldest out first.
NAMES_BOUND: Final = 10_000


@attrs.define(eq=False)
class Limit:
    """At most `most` tries of one name within `window_s`; 0 means any number."""

    most: int
    window_s: float
    clock: Callable[[], float] = trio.current_time
    refused: int = 0
    _tries: OrderedDict[str, deque[float]] = attrs.field(factory=OrderedDict)

    def try_(self, name: str) -> int | None:
        """Count one try. None when it may go on, else the seconds to wait; a refused try is not counted."""
        if not self.most:
            return None
        now = self.clock()
        tries = self._tries.setdefault(name, deque())
        self._tries.move_to_end(name)
        while tries and tries[0] <= now - self.window_s:
            tries.popleft()
        if len(tries) >= self.most:
            self.refused += 1
            return max(1, ceil(tries[0] + self.window_s - now))
        tries.append(now)
        while len(self._tries) > NAMES_BOUND:
            self._tries.popitem(last=False)
        return None

    def forget(self, name: str) -> None:
        """A try that succeeded clears its name."""
        self._tries.pop(name, None)
