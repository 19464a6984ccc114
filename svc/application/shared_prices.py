"""The operator's prices among several copies: what one reads on SIGHUP, all have.

Between starts only: a start reads the file that its own settings name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import attrs
import trio

from svc.domain.pricing.rates import OwnPrices
from svc.ingest.prices import BadPrices, parse_prices, read_prices
from svc.store.replicas.prices import OwnPricesStore

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
            log.warning("prices of another copy cannot be read here: %s; keeping the old prices", bad)
        else:
            self.adopt(own)
            log.info("prices are now %s, read by another copy", own.version)
