"""Laws of decoding: some spans at a time, and what comes out is what each span gives by itself."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from typing import Any

import msgspec

from protocol.storage import Batch
from svc.domain.exporters.counters import Observations
from svc.domain.intake.batches import CHUNK_SPANS, StoredSpan, decoder, split
from svc.domain.pricing.prices import PriceBook
from tests.domain.dialects.speaking import CONVERSATIONS, USAGES
from tests.wire import request, span

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TEXT = "the parcel has left the warehouse and arrives on Friday " * 5
ASKED = [{"role": "system", "content": TEXT}, {"role": "user", "content": f"Weather in Paris? {TEXT}"}]
ANSWERED = [{"role": "assistant", "content": "Rain."}]


def spans(count: int, **fields: Any) -> list[Any]:
    """Spans of every dialect in turn, whose texts come again."""
    dialects = [*CONVERSATIONS, *(set(USAGES) - set(CONVERSATIONS))]
    made = []
    for number in range(count):
        dialect = dialects[number % len(dialects)]
        said = CONVERSATIONS[dialect](ASKED, ANSWERED) if dialect in CONVERSATIONS else {}
        called, usage = USAGES.get(dialect, ({}, lambda *_: {}))
        attributes = {**called, **said, **usage(100 + number, 20, 10, 0, 5)}
        made.append(span(attributes=attributes, span_id=(number + 1).to_bytes(8, "big"), **fields))
    return made


def batch(*sent: Any) -> Batch:
    body = request(*sent, resource={"service.name": "shop"}).SerializeToString()
    return Batch(1, body, len(sent), NOW, 0.0)


def plain(rows: list[StoredSpan]) -> list[Any]:
    return [msgspec.to_builtins(row, builtin_types=(bytes, datetime, Decimal)) for row in rows]


def test_spans_decoded_some_at_a_time_are_those_decoded_one_by_one() -> None:
    sent = batch(*spans(3 * CHUNK_SPANS + 7))
    together, apart = Observations(), Observations()
    pieces = list(decoder(PriceBook(), together)(sent))
    assert [len(piece) for piece in pieces] == [CHUNK_SPANS] * 3 + [7]
    one_by_one = decoder(PriceBook(), apart)
    expected = [row for one in split(sent) for piece in one_by_one(one) for row in piece]
    assert plain(list(chain.from_iterable(pieces))) == plain(expected)
    # Texts that came before are messages, in the order in which they came.
    assert sum(len(row.payload.messages) for row in expected) > CHUNK_SPANS
    ((_, seen),), ((_, seen_apart),) = together.take().items(), apart.take().items()
    assert seen.as_json() == seen_apart.as_json()


def test_what_an_earlier_release_took_is_left_out_and_what_follows_is_not() -> None:
    old = spans(CHUNK_SPANS + 3, trace_id=bytes(16))
    found = list(chain.from_iterable(decoder(PriceBook())(batch(*old, *spans(2)))))
    assert [row.row.span_id for row in found] == [(1).to_bytes(8, "big"), (2).to_bytes(8, "big")]


def test_a_batch_without_spans_gives_none() -> None:
    assert list(decoder(PriceBook())(batch())) == []
