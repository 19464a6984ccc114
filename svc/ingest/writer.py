"""Writing batches: decode, map, price, pack, store.

Implements the drainers' `BatchSink`, in the service itself or in a decoder process (`svc.ingest.decoder`).
One group is decoded at a time, so that a second one is decoded while the first is written. Never answers a
client and never retries: that is the drainer's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

import attrs
import trio

from protocol.storage import Batch, Outage, StoreRefused, WriteFailed, Written
from svc.domain.intake.batches import StoredSpan
from svc.store.spans.writing import SpanStore


@attrs.define(eq=False)
class Ingest:
    """Decodes batches and stores their spans, a group in one transaction."""

    decode: Callable[[Batch], Iterator[list[StoredSpan]]]
    spans: SpanStore
    #: What has to be known before anything is decoded. Raises `Outage`.
    ready: Callable[[], Awaitable[None]] | None = None
    _decoding: trio.Lock = attrs.field(factory=trio.Lock)

    async def write(self, batches: Sequence[Batch]) -> Written:
        """Store the group. Raises `Outage`, `StoreRefused`, and `WriteFailed` for whatever else fails."""
        try:
            if self.ready is not None:
                await self.ready()
            async with self._decoding:
                rows = [row for batch in batches for row in await self._rows(batch)]
            return await self.spans.write(rows)
        except (Outage, StoreRefused):
            raise
        except Exception as error:
            raise WriteFailed.of(error) from error

    async def _rows(self, batch: Batch) -> list[StoredSpan]:
        rows: list[StoredSpan] = []
        for spans in self.decode(batch):
            rows += spans
            # Requests are answered meanwhile.
            await trio.lowlevel.checkpoint()
        return rows
