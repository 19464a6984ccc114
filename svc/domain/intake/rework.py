"""Stored spans under present prices or the present mapping.

Owns `repriced`, `remapped`, what counts as a change, and `Totals`, the figures by which a preview is judged.
Pure; `svc.store.spans.rework` reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

import attrs
import msgspec

from protocol.otlp.reading import WireSpan
from svc.domain.attributes.reading import Pairs
from svc.domain.intake.inherited_models import wants_model, with_model
from svc.domain.intake.mapping import map_span
from svc.domain.pricing.prices import PriceBook
from svc.domain.spans.span import SpanRow
from svc.domain.traces.rollup import roll_up

#: What never changes: who the span is. Whether its usage repeats another's is the roll-up's to say, tool
#: calls are rows of their own, and attributes are stored as facets.
_FIXED: Final = frozenset({"trace_id", "span_id", "started_at", "usage_repeats", "tool_calls", "attributes"})
#: The columns that a rework may change.
CHANGEABLE: Final = tuple(name for name in SpanRow.__struct_fields__ if name not in _FIXED)
#: These alone are no change worth a rewrite: the figures are the same.
_INCIDENTAL: Final = frozenset({"price_book"})
_TELLING: Final = tuple(name for name in CHANGEABLE if name not in _INCIDENTAL)

_ZERO: Final = Decimal(0)


@attrs.frozen
class Totals:
    """What traces add up to: US dollars, tokens, and spans without a price."""

    cost: Decimal = _ZERO
    tokens: int = 0
    unpriced: int = 0

    def plus(self, other: Totals) -> Totals:
        return Totals(self.cost + other.cost, self.tokens + other.tokens, self.unpriced + other.unpriced)


def totals(rows: Sequence[SpanRow]) -> Totals:
    """The figures of one trace's spans, nothing counted twice."""
    rollup = roll_up(rows)
    return Totals(rollup.total_cost or _ZERO, rollup.total_tokens or 0, rollup.unpriced_spans)


def repriced(row: SpanRow, prices: PriceBook) -> SpanRow:
    """The span as these prices see it. What the exporter gave as its cost stays."""
    priced = prices.price(
        provider=row.provider,
        model=row.provided_model_name,
        at=row.started_at,
        service_tier=row.service_tier,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cache_read_tokens=row.cache_read_tokens,
        cache_write_tokens=row.cache_write_tokens,
        reasoning_tokens=row.reasoning_tokens,
        cache_write_1h_tokens=row.cache_write_1h_tokens,
        input_audio_tokens=row.input_audio_tokens,
        output_audio_tokens=row.output_audio_tokens,
    )
    if row.priced_by() == "provided":
        return msgspec.structs.replace(row, model_id=priced.model_id)
    has_usage = any((row.input_tokens, row.output_tokens, row.cache_read_tokens, row.cache_write_tokens,
                row.reasoning_tokens))  # fmt: skip
    has_price = priced.total_cost is not None
    return msgspec.structs.replace(
        row,
        model_id=priced.model_id,
        input_cost=priced.input_cost,
        output_cost=priced.output_cost,
        cache_read_cost=priced.cache_read_cost,
        cache_write_cost=priced.cache_write_cost,
        total_cost=priced.total_cost,
        cost_source=None
        if row.usage_repeats is not None
        else ("inferred_maker" if priced.by_maker else "inferred")
        if has_price
        else "unpriced"
        if has_usage
        else None,
        price_book=prices.version if has_price or has_usage else None,
    )


def remapped(
    row: SpanRow, span: WireSpan, prices: PriceBook, pairs_of: Callable[[WireSpan, SpanRow], Pairs]
) -> SpanRow:
    """The span as the present mapping, these prices and these attribute fields see it, at the time and place
    it is stored under.
    """
    mapped = map_span(span, prices)
    if row.provided_model_name is not None and wants_model(mapped, span):
        # A span above named it.
        mapped = map_span(with_model(span, row.provided_model_name), prices)
    mapped = msgspec.structs.replace(mapped, started_at=row.started_at)
    mapped.attributes = pairs_of(span, mapped)
    mapped.mark(row.usage_repeats)
    return mapped


def differs(row: SpanRow, other: SpanRow) -> bool:
    """Whether anything changed that somebody would notice."""
    return any(getattr(row, name) != getattr(other, name) for name in _TELLING)
