"""How many tokens under one lookup prefix may be hashed, so that guessing costs whoever guesses.

A prefix is no secret: it is listed beside its key. Whoever knows one must be able neither to buy a bcrypt run
with every wrong token nor to use up the runs of whoever holds the right one. So a place has a few of its own,
and the last of a prefix are for places that have had none. A place is what limits are counted by
(`Client.place`); whoever shares one with a guesser shares its runs.

Owns the counts of this process, bounded. All verbs are synchronous.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final

import attrs

GUESSES_WINDOW_S: Final = 10.0
#: Runs under one prefix within the window: of one place, of all places that may have had some before, and of
#: all. With the last, 2 a second, guesses under one prefix take 12 % of a core (see `HASHERS`).
GUESSES_OF_PLACE: Final = 5
GUESSES_SHARED: Final = 10
GUESSES_BOUND: Final = 20
#: Prefixes that are counted at once, oldest out first.
PREFIXES_BOUND: Final = 10_000


@attrs.define(eq=False)
class GuessLimiter:
    """Counts runs by prefix and place. `refused` counts tokens that were told to come again."""

    clock: Callable[[], float]
    refused: int = 0
    #: By prefix: when a token was hashed, and the place that it counts for.
    _runs: OrderedDict[str, list[tuple[float, str]]] = attrs.field(factory=OrderedDict)

    def may_run(self, prefix: str, places: Collection[str]) -> bool:
        """Whether a token that came from these places may be hashed now; counts for the first that may."""
        now = self.clock()
        runs = self._runs.setdefault(prefix, [])
        self._runs.move_to_end(prefix)
        runs[:] = [run for run in runs if run[0] > now - GUESSES_WINDOW_S]
        sources = [source for _, source in runs]
        for source in places:
            own = sources.count(source)
            bound = GUESSES_SHARED if own else GUESSES_BOUND
            if own < GUESSES_OF_PLACE and len(runs) < bound:
                runs.append((now, source))
                while len(self._runs) > PREFIXES_BOUND:
                    self._runs.popitem(last=False)
                return True
        self.refused += 1
        return False

    def forgive(self, prefix: str) -> None:
        """Forget the runs of a prefix whose right token is known: from now on wrong ones cost none."""
        self._runs.pop(prefix, None)
