"""The actor behind the broker spool: holds the link to the broker.

Owns the lifetime of the link. It publishes what the spool was offered and buries messages that are no batch.
`keep` builds it anew after a crash; the wiring cancels it last, which delivers and commits what is in hand.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final

import trio

from actors.drainer import Tally
from actors.ports import Connect, Letter, Outage
from actors.rounds import OUTAGE_PAUSE_S
from actors.spool.broker import BrokerSpool
from actors.spool.letters import DeadLetterTopic

log = logging.getLogger(__name__)

#: How long a start waits to hear whether the broker is there.
FIRST_WORD_TIMEOUT_S: Final = 5.0


class BrokerLink:
    """One incarnation of the link."""

    def __init__(
        self, *, spool: BrokerSpool, connect: Connect, graveyard: DeadLetterTopic, tally: Tally
    ) -> None:
        self._spool, self._connect, self._graveyard, self._tally = spool, connect, graveyard, tally

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled. Leaving delivers what was published and gives the partitions back."""
        try:
            async with self._connect(self._spool) as broker:
                self._spool.linked(broker)
                await self._spool.heard(FIRST_WORD_TIMEOUT_S)
                task_status.started()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._bury)
                    while True:
                        await self._spool.send_once()
        finally:
            self._spool.unlinked()

    async def _bury(self) -> None:
        while True:
            entry = await self._spool.next_damaged()
            assert entry.damage is not None
            letter = Letter(0, entry.damage, entry.data, datetime.now(UTC), entry.spans)
            try:
                await self._graveyard.bury_damaged(letter)
            except Outage:
                await trio.sleep(OUTAGE_PAUSE_S)
                continue
            self._spool.buried(entry)
            self._tally.dead_lettered += entry.spans
            log.error(
                "dead-lettered a message of %d bytes that is not a batch: %s", len(entry.data), entry.damage
            )
