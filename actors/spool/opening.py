"""A spool with its actor and its graveyard, held open as long as anything offers or drains."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Final

import attrs
import trio

from actors.ports import Graveyard
from actors.spool.broker import BrokerSpool
from actors.spool.disk import DiskSpool
from actors.spool.memory import Spool
from actors.supervision import Loop, Vitals, keep

log = logging.getLogger(__name__)

#: What deleting finished batches from a durable spool may take at the end.
FLUSH_TIMEOUT_S: Final = 5.0


@attrs.frozen
class Spooling:
    """A spool, where its dead letters go, and the actor of a durable one."""

    spool: Spool
    graveyard: Graveyard
    now: Callable[[], datetime]
    loop: Loop | None = None

    @property
    def vitals(self) -> Vitals | None:
        """Those of its actor."""
        return None if self.loop is None else self.loop[1]

    @asynccontextmanager
    async def opened(self, nursery: trio.Nursery) -> AsyncIterator[None]:
        """Start what the spool needs; leaving waits until a durable one has noted what is done.

        That of disk mode finds what an earlier process left before its writer starts. The link of kafka mode
        outlives the drainers, and commits what they did when it leaves.
        """
        spool = self.spool
        if isinstance(spool, DiskSpool):
            recovered = await spool.recover(trio.current_time(), self.now().timestamp())
            if recovered:
                log.info("the spool holds %d batches of an earlier run", recovered)
        if self.loop is not None:
            await nursery.start(partial(keep, *self.loop))
        yield
        if isinstance(spool, DiskSpool | BrokerSpool):
            with trio.move_on_after(FLUSH_TIMEOUT_S, shield=True):
                await spool.flush()
        if isinstance(spool, DiskSpool):
            await spool.shut()
