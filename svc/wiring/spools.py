"""The spool that the settings ask for, with the actor behind it and the graveyard that goes with it.

Owns the choice of the mode. The wiring builds one `Spooling` and holds it open as long as anything offers or
drains.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Final

import trio

from actors.drainer import Tally
from actors.ports import Graveyard
from actors.spool.broker import BrokerSpool
from actors.spool.disk import DiskSpool, DiskWriter
from actors.spool.letters import DeadLetterTopic
from actors.spool.link import BrokerLink
from actors.spool.memory import MemorySpool, Spool
from actors.supervision import Board, Vitals, keep
from svc.application.brokers import kafka
from svc.config.table import Settings
from svc.front.otlp.quotas import QuotaSizes

log = logging.getLogger(__name__)

#: The folder of disk mode, in `SVC_DATA_DIR`.
SPOOL: Final = "spool"
#: What deleting finished batches from a durable spool may take at the end.
FLUSH_TIMEOUT_S: Final = 5.0


def quota_sizes(settings: Settings) -> QuotaSizes:
    """What keys and projects may send."""
    return QuotaSizes(
        key_bytes_per_minute=settings.quota_key_bytes_per_minute,
        trace_spans=settings.quota_trace_spans,
        names_per_day=settings.quota_names_per_day,
    )


class Spooling:
    """A spool, the vitals of its actor when it has one, and where its dead letters go."""

    spool: Spool
    graveyard: Graveyard
    vitals: Vitals | None = None

    def __init__(
        self,
        settings: Settings,
        board: Board,
        tally: Tally,
        *,
        dead_letters: Graveyard,
        now: Callable[[], datetime],
    ) -> None:
        self._settings, self._tally, self._now = settings, tally, now
        self.graveyard = dead_letters
        match settings.spool_mode:
            case "disk":
                self.vitals = board.enrol("spool-writer")
                self.spool = DiskSpool(
                    settings.data_dir / SPOOL,
                    max_bytes=settings.spool_disk_max_bytes,
                    memory_bytes=settings.spool_max_bytes,
                )
            case "kafka":
                self.vitals = board.enrol("spool-broker")
                self.spool = spool = BrokerSpool(settings.spool_max_bytes, vitals=self.vitals)
                self.graveyard = DeadLetterTopic(spool, otherwise=dead_letters, now=now)
            case _:
                self.spool = MemorySpool(settings.spool_max_bytes)

    @asynccontextmanager
    async def opened(self, nursery: trio.Nursery) -> AsyncIterator[None]:
        """Start what the spool needs; leaving waits until a durable one has noted what is done."""
        match self.spool:
            case DiskSpool() as disk:
                async with self._disk(disk, nursery):
                    yield
            case BrokerSpool() as broker:
                async with self._broker(broker, nursery):
                    yield
            case _:
                yield

    @asynccontextmanager
    async def _disk(self, spool: DiskSpool, nursery: trio.Nursery) -> AsyncIterator[None]:
        """The spool finds what an earlier process left, and gets its writer."""
        vitals = self.vitals
        assert vitals is not None
        recovered = await spool.recover(trio.current_time(), self._now().timestamp())
        if recovered:
            log.info("the spool holds %d batches of an earlier run", recovered)
        await nursery.start(partial(keep, lambda: DiskWriter(spool=spool, vitals=vitals), vitals))
        yield
        with trio.move_on_after(FLUSH_TIMEOUT_S, shield=True):
            await spool.flush()
        await spool.shut()

    @asynccontextmanager
    async def _broker(self, spool: BrokerSpool, nursery: trio.Nursery) -> AsyncIterator[None]:
        """The spool gets its link, which outlives the drainers and commits what they did when it leaves."""
        assert self.vitals is not None
        assert isinstance(self.graveyard, DeadLetterTopic)
        brokers, graveyard = kafka(self._settings), self.graveyard

        def link() -> BrokerLink:
            return BrokerLink(spool=spool, connect=brokers.opened, graveyard=graveyard, tally=self._tally)

        await nursery.start(partial(keep, link, self.vitals))
        yield
        with trio.move_on_after(FLUSH_TIMEOUT_S, shield=True):
            await spool.flush()
