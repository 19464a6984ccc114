"""Dead letters in broker mode: what could not be stored goes to a lane of its own in the broker.

Owns the way of a letter to the broker. Drainers bury spans here, the link buries messages that are no batch.
It never reads what it buried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol

from actors.ports import Graveyard, Letter, Outage
from actors.spool.memory import Ticket
from protocol.spooled import pack_damaged, pack_letter

#: How long a letter may take; whoever buries waits and comes again.
LETTER_TIMEOUT_S: Final = 10.0


class DeadLetterPublisher(Protocol):
    """Publishes a letter; the broker spool does."""

    def post(self, letter: bytes, key: bytes) -> Ticket: ...


class DeadLetterTopic:
    """A `Graveyard` in the broker. What does not fit there goes to `otherwise`, which takes any size."""

    def __init__(
        self, spool: DeadLetterPublisher, *, otherwise: Graveyard, now: Callable[[], datetime]
    ) -> None:
        self._spool, self._otherwise, self._now = spool, otherwise, now

    async def bury(self, letters: Sequence[Letter]) -> None:
        """Publish the letters and wait until the broker has them. Raises `Outage`; then some may be there."""
        now = self._now()
        tickets = [self._post(letter, pack_letter(letter, buried_at=now)) for letter in letters]
        for letter, ticket in zip(letters, tickets, strict=True):
            await self._settled(letter, ticket)

    async def bury_damaged(self, letter: Letter) -> None:
        """As `bury`, for a message that is no batch."""
        await self._settled(letter, self._post(letter, pack_damaged(letter, buried_at=self._now())))

    def _post(self, letter: Letter, data: bytes) -> Ticket:
        return self._spool.post(data, str(letter.project_id).encode())

    async def _settled(self, letter: Letter, ticket: Ticket) -> None:
        match await ticket.answer(LETTER_TIMEOUT_S):
            case "accepted":
                pass
            case "never":
                await self._otherwise.bury([letter])
            case _:
                raise Outage("the broker does not take dead letters now")
