"""Wiring of the operator's prices among several copies: what one reads on SIGHUP, all have.

Between starts only: a start reads the file that its own settings name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import trio

from actors.notifications import NotificationListener
from actors.supervision import Actor, Board, Vitals
from svc.domain.rates import OwnPrices
from svc.ingest.prices import BadPrices, parse_prices, read_prices
from svc.store.postgres.database import Database
from svc.store.replicas.notices import notices
from svc.store.replicas.prices import CHANNEL, OwnPricesStore

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class SharedPrices:
    """The prices of this copy and the way to the others. `adopt` puts prices in force here."""

    store: OwnPricesStore
    adopt: Callable[[OwnPrices], None]
    #: The newest version that is in force, or was there before this copy started.
    _seen: int | None = None

    async def read_anew(self, path: Path) -> None:
        """Read the file, put it in force here and everywhere. Raises `BadPrices` and `Outage`."""
        own = await trio.to_thread.run_sync(read_prices, path)
        self.adopt(own)
        self._seen = await self.store.publish(own.path, own.text)

    async def check(self) -> None:
        """Put in force what another copy has read since. Raises `Outage`."""
        latest = await self.store.last()
        version = 0 if latest is None else latest.version
        if self._seen is None:
            # From before this start, which has read its own file.
            self._seen = version
        if latest is None or version <= self._seen:
            return
        self._seen = version
        try:
            own = parse_prices(Path(latest.path), latest.text)
        except BadPrices as bad:
            log.warning("prices of another copy cannot be read here: %s; the old prices stay", bad)
        else:
            self.adopt(own)
            log.info("prices are now %s, as another copy has read them", own.version)

    def loop(self, board: Board) -> tuple[Callable[[], Actor], Vitals]:
        """The actor that hears of them."""
        vitals = board.enrol("price-news", spare=True)
        return (
            lambda: NotificationListener(
                notices=partial(notices, self.store.database, CHANNEL), check=self.check, vitals=vitals
            ),
            vitals,
        )


def shared_prices(database: Database, adopt: Callable[[OwnPrices], None]) -> SharedPrices:
    """Through this database."""
    return SharedPrices(OwnPricesStore(database), adopt)
