"""Writing batches: decode, map, price, pack, store.

Implements the drainers' `BatchSink`, in the service itself or in a decoder process (`svc.ingest.decoder`).
One group is decoded at a time, so that a second one is decoded while the first is written. Never answers a
client and never retries: that is the drainer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs
import trio

from protocol.storage import Batch, Outage, StoreRefused, WriteFailed, Written
from svc.domain.intake import StoredSpan
from svc.store.spans.writing import SpanStore

#: Rows decoded between two checkpoints: about 5 ms of work, so that requests are answered meanwhile.
BREATH_ROWS: Final = 50


@attrs.define(eq=False)
class Ingest:
    """Decodes batches and stores their spans, a group in one transaction."""

    decode: Callable[[Batch], Iterator[StoredSpan]]
    spans: SpanStore
    _decoding: trio.Lock = attrs.field(factory=trio.Lock)

    async def write(self, batches: Sequence[Batch]) -> Written:
        """Store the group. Raises `Outage`, `StoreRefused`, and `WriteFailed` for whatever else fails."""
        try:
            async with self._decoding:
                rows = [row for batch in batches for row in await self._rows(batch)]
            return await self.spans.write(rows)
        except (Outage, StoreRefused):
            raise
        except Exception as error:
            raise WriteFailed.of(error) from error

    async def _rows(self, batch: Batch) -> list[StoredSpan]:
        rows: list[StoredSpan] = []
        for row in self.decode(batch):
            rows.append(row)
            if not len(rows) % BREATH_ROWS:
                await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        return rows
