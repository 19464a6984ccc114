"""What a decoding process masks, and the exchange of it with the store.

Owns the masker of one process; the exporter writer calls `exchange` every few seconds. Nothing is decoded
before the rules are known: a process that starts in an outage waits for the database, as it would to write.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import attrs

from protocol.storage import Outage
from svc.domain.intake.masking import Masker
from svc.store.postgres.database import Database
from svc.store.spans.masking import MaskingStore


@attrs.define(eq=False)
class MaskingExchange:
    """The masking of one process."""

    database: Database
    masker: Masker = attrs.field(factory=Masker)
    _is_known: bool = attrs.field(default=False, init=False)

    async def ensure(self) -> None:
        """Know the rules. Raises `Outage`."""
        if not self._is_known:
            await self._read()

    async def exchange(self, at: datetime) -> None:
        """Bring what was counted to the store, and go by the rules that it has now. Raises `Outage`."""
        counts: Counter[tuple[int, str]] = self.masker.take()
        try:
            await MaskingStore(self.database).add(counts, at)
        except Outage:
            self.masker.counts.update(counts)
            raise
        await self._read()

    async def _read(self) -> None:
        self.masker.adopt(await MaskingStore(self.database).every_rule())
        self._is_known = True
