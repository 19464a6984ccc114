"""One small trace as an exporter would send it, for whoever has no application at hand: OTLP as JSON."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any

import msgspec

_QUESTION = "Where is my order 88-1203? It should have come on Friday."
_ANSWER = "Order 88-1203 left the warehouse on Thursday and arrives tomorrow before noon."


def _pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in attributes.items()
    ]


def _message(role: str, text: str) -> str:
    return msgspec.json.encode([{"role": role, "parts": [{"type": "text", "content": text}]}]).decode()


def sample_trace(now: datetime) -> bytes:
    """An agent that asks a model, looks an order up and answers; it ended just now."""
    trace_id, root = secrets.token_hex(16), secrets.token_hex(8)
    end_ns = int(now.timestamp() * 1e9)
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o",
        "gen_ai.input.messages": _message("user", _QUESTION),
    }

    def span(
        name: str, ids: tuple[str, str], from_ms: int, to_ms: int, more: dict[str, Any]
    ) -> dict[str, Any]:
        """From and to are before now."""
        return {
            "traceId": trace_id,
            "spanId": ids[0],
            "parentSpanId": ids[1],
            "name": name,
            "kind": 3,
            "startTimeUnixNano": str(end_ns - from_ms * 1_000_000),
            "endTimeUnixNano": str(end_ns - to_ms * 1_000_000),
            "attributes": _pairs({"gen_ai.conversation.id": "sample", "user.id": "sample-user", **more}),
        }

    looked_up = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "sample_lookup",
        "gen_ai.tool.call.arguments": '{"order": "88-1203"}',
        "gen_ai.tool.call.result": '{"status": "on its way"}',
    }
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "sample"}
    counted = {"gen_ai.usage.input_tokens": 412, "gen_ai.usage.output_tokens": 31}
    answered = {
        "gen_ai.usage.input_tokens": 489,
        "gen_ai.usage.output_tokens": 27,
        "gen_ai.output.messages": _message("assistant", _ANSWER),
    }
    spans = [
        span("invoke_agent sample", (root, ""), 2400, 0, agent),
        span("chat gpt-4o", (secrets.token_hex(8), root), 2390, 1500, {**chat, **counted}),
        span("execute_tool sample_lookup", (secrets.token_hex(8), root), 1480, 1100, looked_up),
        span("chat gpt-4o", (secrets.token_hex(8), root), 1080, 10, {**chat, **answered}),
    ]
    resource = {"attributes": _pairs({"service.name": "sample"})}
    scope_spans = [{"scope": {"name": "trace-svc sample"}, "spans": spans}]
    return msgspec.json.encode({"resourceSpans": [{"resource": resource, "scopeSpans": scope_spans}]})
