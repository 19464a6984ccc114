"""The prices of projects in a process that decodes, and their exchange with the store.

The exporter writer calls `exchange` every few seconds. Nothing is decoded before the prices are known: a
process that starts in an outage waits for the database, as it would to write.
"""

from __future__ import annotations

import attrs

from svc.domain.pricing.prices import PriceBook
from svc.store.postgres.database import Database
from svc.store.spans.project_prices import ProjectPriceStore


@attrs.define(eq=False)
class ProjectPriceExchange:
    """Those that the book of one process goes by."""

    database: Database
    book: PriceBook
    _is_known: bool = attrs.field(default=False, init=False)

    async def ensure(self) -> None:
        """Know the prices. Raises `Outage`."""
        if not self._is_known:
            await self.exchange()

    async def exchange(self) -> None:
        """Go by the prices that the store has now. Raises `Outage`."""
        self.book.adopt_projects(await ProjectPriceStore(self.database).every())
        self._is_known = True
