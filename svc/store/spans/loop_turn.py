"""Long work on the loop in turns: whoever opens many payloads lets others in between.

Called by what reads payloads within a connection, which is asyncio's side of the loop.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

import attrs

#: How long payloads are opened before others of the loop have a turn: 20,000 take 0.1 s (November 2026).
_TURN_S: Final = 0.01


@attrs.define
class LoopTurn:
    """A turn on the loop that began when this was made."""

    _ends_s: float = attrs.field(factory=lambda: monotonic() + _TURN_S)

    async def rest(self) -> None:
        """Let others have theirs once this one has taken its time."""
        if monotonic() > self._ends_s:
            await asyncio.sleep(0)
            self._ends_s = monotonic() + _TURN_S
