"""From an accepted batch to rows ready to be written: read, walk, map, price, take apart.

Called by drainers through `svc.ingest.writer`, row by row. No clock, no I/O; the packer remembers which texts
it has seen. The payload keeps the span as it came, so that a better mapping can be run over history later
(contract §3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date

import attrs

from protocol.otlp.reading import envelope, read_clean, walk
from protocol.otlp.screen import refusal_of
from protocol.storage import Batch
from svc.domain.exporters import Observations
from svc.domain.mapping import map_span
from svc.domain.packing import Packer, Parts, Seen
from svc.domain.pricing import PriceBook
from svc.domain.span import SpanRow


@attrs.define(eq=False)
class StoredSpan:
    """A mapped span, its project and the parts of its payload. Not frozen: one is built for each span."""

    project_id: int
    row: SpanRow
    payload: Parts = attrs.field(repr=False)

    @property
    def day(self) -> date:
        """The day it starts on, in UTC."""
        return self.row.started_at.date()


def decoder(
    prices: PriceBook, observations: Observations | None = None, seen: Seen | None = None
) -> Callable[[Batch], Iterator[StoredSpan]]:
    """The decoding of batches under a price book. One for a process: it holds the packer.

    `observations` hear of every span that is decoded; `seen` is what processes share of texts they saw.
    """
    packer = Packer(seen)
    note = None if observations is None else observations.note

    def decode(batch: Batch) -> Iterator[StoredSpan]:
        for span in walk(read_clean(batch.body)):
            # The spool may hold what an earlier release took.
            if refusal_of(span, span.start_ns) is not None:
                continue
            row = map_span(span, prices)
            if note is not None:
                note(batch.project_id, batch.received_at, span, row)
            parts = packer.take_apart(batch.project_id, row.started_at.date(), span)
            yield StoredSpan(batch.project_id, row, parts)

    return decode


def split(batch: Batch) -> Sequence[Batch]:
    """The same spans as batches of one span each."""
    return [attrs.evolve(batch, body=envelope(span), spans=1) for span in walk(read_clean(batch.body))]
