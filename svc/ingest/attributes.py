"""What a decoding process knows of attribute fields, and the exchange of it with the store.

Owns the reader and the census of one process; the exporter writer calls `exchange` every few seconds.
Counters that an outage keeps from the store are given up, as those of exporters are.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

import attrs

from protocol.storage import Outage
from svc.domain.attributes.census import KeyCensus
from svc.domain.attributes.reading import AttributeReader
from svc.ingest.masking import MaskingExchange
from svc.ingest.project_prices import ProjectPriceExchange
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.spans.attribute_codes import AttributeCodes
from svc.store.spans.attribute_keys import AttributeKeys


@attrs.define(eq=False)
class AttributeExchange:
    """The attribute fields of one process."""

    reader: AttributeReader = attrs.field(factory=AttributeReader)
    census: KeyCensus = attrs.field(factory=KeyCensus)
    #: Those of the process's writer; None where other processes decode.
    codes: AttributeCodes | None = None
    #: What is masked there, exchanged with the rest.
    masking: MaskingExchange | None = None
    #: What projects say that models cost, likewise.
    prices: ProjectPriceExchange | None = None

    async def ensure(self) -> None:
        """Know what nothing is decoded without. Raises `Outage`."""
        if self.masking is not None:
            await self.masking.ensure()
        if self.prices is not None:
            await self.prices.ensure()

    async def exchange(self, database: Database, at: datetime) -> None:
        """Bring what was counted to the store, and go by what it says is promoted and hidden.

        Raises `Outage`.
        """
        if self.codes is None:
            return
        if self.masking is not None:
            await self.masking.exchange(at)
        if self.prices is not None:
            await self.prices.exchange()
        keys = AttributeKeys(database)
        await keys.add(self.census.take(), at)
        states = await keys.states()
        self.reader.adopt(states.promoted)
        self.codes.adopt(states.hidden)


async def opened_exchange(database: Database, codes: AttributeCodes) -> AttributeExchange:
    """The exchange of a process that writes with these codes; what is promoted counts from its first span on.

    In an outage it hears of that with the first round.
    """
    exchange = AttributeExchange(codes=codes)
    with suppress(Outage):
        await exchange.exchange(database, now())
    return exchange
