"""How many questions one caller may have under way, so that none takes the database from others.

The query API, the REST API, the tools and the payload route take a slot for each question and hold it until
the answer is made. Passive, one for the process. Never looks at what is asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from protocol.refusals import TOO_MANY_QUESTIONS, Refused

#: How long a question waits for a slot. A page that asks ten things at once is served; a flood is told.
PATIENCE_S: Final = 1.0
#: Questions that wait, for each that may be under way.
WAITING_FOR_ONE: Final = 4


@attrs.define(eq=False)
class _Line:
    concurrency: trio.CapacityLimiter
    inside: int = 0


@attrs.define(eq=False)
class ConcurrencyLimiter:
    """`most` questions of one caller at once. `refused` counts those that were told to come back."""

    most: int
    refused: int = 0
    _lines: dict[str, _Line] = attrs.field(factory=dict)

    @asynccontextmanager
    async def slot(self, key: str, who: str = "this key") -> AsyncIterator[None]:
        """Hold a slot of the caller with this key, told as `who`.

        Raises `Refused` when none comes free in time or too many wait.
        """
        line = self._lines.setdefault(key, _Line(trio.CapacityLimiter(self.most)))
        if line.inside >= self.most * (1 + WAITING_FOR_ONE):
            raise self._refused(who)
        line.inside += 1
        try:
            token = object()
            with trio.move_on_after(PATIENCE_S) as patience:
                await line.concurrency.acquire_on_behalf_of(token)
            if patience.cancelled_caught:
                raise self._refused(who)
            try:
                yield
            finally:
                line.concurrency.release_on_behalf_of(token)
        finally:
            line.inside -= 1
            if not line.inside:
                # Only the callers that ask right now take room.
                del self._lines[key]

    def _refused(self, who: str) -> Refused:
        self.refused += 1
        return Refused(TOO_MANY_QUESTIONS.saying(TOO_MANY_QUESTIONS.message.format(who=who, most=self.most)))
