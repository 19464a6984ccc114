"""Laws of the pure rules, and the wire spans they are tried on."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.otlp.reading import WireEvent, WireResource, WireScope, WireSpan
from svc.domain.intake.mapping import map_span
from svc.domain.pricing.prices import PriceBook
from svc.domain.spans.span import SpanRow

BOOK = PriceBook()
START_NS = 1_795_166_413_000_000_000


def wire(
    attributes: dict[str, Any] | None = None,
    *,
    resource: dict[str, Any] | None = None,
    events: tuple[WireEvent, ...] = (),
    **fields: Any,
) -> WireSpan:
    span = WireSpan(
        trace_id=b"\x01" * 16,
        span_id=b"\x02" * 8,
        parent_span_id=b"",
        name="chat",
        kind=3,
        start_ns=START_NS,
        end_ns=START_NS + 10**9,
        status_code=0,
        status_message="",
        attributes=attributes or {},
        events=events,
        links=(),
        resource=WireResource(resource or {}, b"", ""),
        scope=WireScope("", "", {}, b"", ""),
        raw=b"",
    )
    return msgspec.structs.replace(span, **fields)


def event(name: str, **attributes: Any) -> WireEvent:
    return WireEvent(name, START_NS, attributes)


def mapped(attributes: dict[str, Any] | None = None, **fields: Any) -> SpanRow:
    return map_span(wire(attributes, **fields), BOOK)


def buckets(row: Any) -> tuple[int | None, ...]:
    return (
        row.input_tokens,
        row.output_tokens,
        row.cache_read_tokens,
        row.cache_write_tokens,
        row.reasoning_tokens,
    )
