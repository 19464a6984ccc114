"""What a dead letter holds of somebody, and the letter without what was erased.

Pure but for its word for "erased": called where letters are buried, and by an erasure for those that are
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import attrs

from protocol.inflate import Unreadable
from protocol.otlp.reading import envelope, read_protobuf, walk
from svc.domain.intake.mapping import map_span
from svc.domain.pricing.prices import PriceBook
from svc.store.postgres.tombstones import ErasedAmong

#: A trace, its session, its user, when the span began.
SpanNames = tuple[bytes, str | None, str | None, datetime]


@attrs.frozen
class Remains:
    """A letter without what was erased: its body and spans, and how many were taken out."""

    body: bytes = attrs.field(repr=False)
    spans: int
    dropped: int


def named_in(body: bytes) -> Sequence[SpanNames] | None:
    """Whom the spans of a letter are of; None when it cannot be read."""
    try:
        prices = PriceBook()
        rows = [map_span(span, prices) for span in walk(read_protobuf(body))]
    except (Unreadable, ValueError, OverflowError):
        return None
    return [(row.trace_id, row.session_id, row.user_id, row.started_at) for row in rows]


def remains_of(project_id: int, body: bytes, erased: ErasedAmong) -> Remains | None:
    """A readable letter without its erased spans; None when it has none."""
    spans = list(walk(read_protobuf(body)))
    mentions = named_in(body)
    assert mentions is not None, "the letter was read before"
    survivors = [
        span for span, names in zip(spans, mentions, strict=True) if not erased.forbids(project_id, *names)
    ]
    if len(survivors) == len(spans):
        return None
    # Messages one behind the other are one message with all their parts.
    return Remains(
        b"".join(envelope(span) for span in survivors), len(survivors), len(spans) - len(survivors)
    )
