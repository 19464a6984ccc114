"""Traces as real clients send them, in a few lines: for laws about one client each."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.otlp.reading import WireScope, WireSpan
from svc.domain.intake.mapping import map_span
from svc.domain.spans.span import SpanRow
from svc.domain.traces.rollup import TraceRollup, roll_up
from svc.domain.traces.tool_calls import dedupe_tool_calls
from tests.domain import BOOK, START_NS, wire

INTERNAL, SERVER, CLIENT = 1, 2, 3
FAILED = 2


def scope(name: str, version: str = "1") -> WireScope:
    return WireScope(name, version, {}, b"", "")


def span(
    number: int, name: str, attributes: dict[str, Any] | None = None, *, below: int = 0, **fields: Any
) -> WireSpan:
    """The span of this number, below another, which starts as many seconds before."""
    start_ns = START_NS + number * 10**9
    return msgspec.structs.replace(
        wire(attributes),
        name=name,
        span_id=number.to_bytes(8, "big"),
        parent_span_id=below.to_bytes(8, "big") if below else b"",
        start_ns=start_ns,
        end_ns=start_ns + (100 - 2 * number) * 10**9,
        **fields,
    )


def rows(*spans: WireSpan) -> list[SpanRow]:
    """What is stored of one trace."""
    mapped = [map_span(one, BOOK) for one in spans]
    repeated = dedupe_tool_calls(mapped)
    for row in mapped:
        row.tool_calls = tuple(call for call in row.tool_calls if (row.span_id, call.index) not in repeated)
    return mapped


def calls(*spans: WireSpan) -> list[tuple[str, str, str | None]]:
    """Name, status and error type of each tool call of one trace."""
    return [(call.name, call.status, call.error_type) for row in rows(*spans) for call in row.tool_calls]


def rolled(*spans: WireSpan) -> TraceRollup:
    """The row of one trace."""
    return roll_up(rows(*spans))
