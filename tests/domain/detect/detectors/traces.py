"""Settled traces for tests, read from OTLP as the service reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from protocol.otlp.reading import read_clean, walk
from svc.domain.detect.detectors.settled_trace import TEXTUAL, SettledTrace, texts_of
from svc.domain.intake.mapping import map_span
from svc.domain.pricing.prices import PriceBook
from svc.domain.traces.rollup import roll_up
from svc.domain.traces.tool_calls import dedupe_tool_calls
from tests.wire import request, span

PRICES = PriceBook()
TRACE = bytes(range(1, 17))
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
NOON_NS = int(NOON.timestamp()) * 1_000_000_000


def wire(
    number: int,
    *,
    parent: int = 0,
    at_s: float = 0.0,
    took_s: float = 1.0,
    open_end: bool = False,
    **fields: Any,
) -> Any:
    """A span of the trace, so many seconds after noon."""
    start_ns = NOON_NS + int(at_s * 1e9)
    return span(
        trace_id=TRACE,
        span_id=number.to_bytes(8, "big"),
        parent=parent.to_bytes(8, "big") if parent else b"",
        start_ns=start_ns,
        end_ns=0 if open_end else start_ns + int(took_s * 1e9),
        **fields,
    )


def chat(number: int, said: Any = None, **fields: Any) -> Any:
    """A model call at the call site `writer`; `said` is the text of its answer, or messages."""
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "svc.call_site.id": "writer",
        **fields.pop("attributes", {}),
    }
    if said is not None:
        parts = [{"type": "text", "content": said}] if isinstance(said, str) else said
        attributes["gen_ai.output.messages"] = [{"role": "assistant", "parts": parts}]
    return wire(number, name=fields.pop("name", "chat gpt-4o"), attributes=attributes, **fields)


def called(number: int, tool: str, arguments: Any = None, **fields: Any) -> Any:
    """A tool's span."""
    attributes: dict[str, Any] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    if arguments is not None:
        attributes["gen_ai.tool.call.arguments"] = arguments
    attributes |= fields.pop("attributes", {})
    return wire(number, name=f"execute_tool {tool}", attributes=attributes, **fields)


def agent(number: int = 1, **fields: Any) -> Any:
    """The root of a trace at the call site `desk`."""
    attributes = {"gen_ai.operation.name": "invoke_agent", "svc.call_site.id": "desk"}
    return wire(number, name="invoke_agent", attributes=attributes | fields.pop("attributes", {}), **fields)


def settled(*spans: Any, resource: Any = None, payloads: bool = True) -> SettledTrace:
    """The trace of these spans."""
    body = request(*spans, resource=resource or {"service.name": "shop"}).SerializeToString()
    wires = list(walk(read_clean(body)))
    rows = [map_span(one, PRICES) for one in wires]
    rollup = roll_up(rows)
    for row in rows:
        row.mark(rollup.repeats.get(row.span_id))
    repeated = dedupe_tool_calls(rows)
    for row in rows:
        row.tool_calls = tuple(c for c in row.tool_calls if (row.span_id, c.index) not in repeated)
    texts = {
        row.span_id: texts_of(one, row.kind)
        for one, row in zip(wires, rows, strict=True)
        if payloads and row.kind in TEXTUAL
    }
    return SettledTrace.of(rows, rollup.call_site_id, texts)
