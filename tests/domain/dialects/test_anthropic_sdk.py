"""Laws of reading the spans of Anthropic's own SDK, alone and beside an instrumentation's."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from svc.domain.intake.payload import payload_of
from svc.domain.traces.rollup import roll_up
from tests.domain import buckets, mapped, wire

CALL: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": "claude-sonnet-4-5",
    "gen_ai.response.model": "claude-sonnet-4-5-20250929",
    "gen_ai.response.id": "msg_1",
    "gen_ai.response.time_to_first_chunk": 0.25,
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 30,
    "gen_ai.usage.cache_read.input_tokens": 60,
    "gen_ai.usage.cache_write.input_tokens": 40,
    "anthropic.request.id": "req_1",
    "anthropic.session.id": "s",
    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]),
    "gen_ai.output.messages": json.dumps(
        [{"role": "assistant", "parts": [{"type": "text", "content": "hello"}], "finish_reason": "end_turn"}]
    ),
}


def test_a_call_is_read_whole_and_counts_inclusively() -> None:
    row = mapped(CALL)
    assert (row.kind, row.session_id, row.response_id) == ("llm", "s", "msg_1")
    assert buckets(row) == (20, 30, 60, 40, None)
    assert (row.input_preview, row.output_preview) == ("hi", "hello")
    payload = payload_of(wire(CALL))
    assert (payload["finish_reasons"], payload["time_to_first_token_ms"]) == (["end_turn"], 250)


def test_what_compaction_used_was_used() -> None:
    row = mapped(
        {
            **CALL,
            "anthropic.usage.compaction.input_tokens": 1000,
            "anthropic.usage.compaction.output_tokens": 7,
        }
    )
    assert buckets(row) == (1020, 37, 60, 40, None)


def test_a_tool_shows_its_result() -> None:
    said = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "toolu_1",
        "gen_ai.tool.call.arguments": '{"city": "Paris"}',
        "anthropic.tool_result.content": '[{"type": "text", "text": "21C"}]',
    }
    row = mapped(said, name="anthropic.custom_tool_use look")
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("look", "toolu_1")]
    assert payload_of(wire(said))["tool"]["result"] == [{"type": "text", "text": "21C"}]


def test_its_call_under_an_instrumentations_counts_once() -> None:
    outer = mapped(
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "claude-sonnet-4-5",
            "llm.token_count.prompt": 120,
            "llm.token_count.completion": 30,
            "output.value": '{"id": "msg_1", "usage": {"input_tokens": 20}}',
        },
        span_id=b"\x01" * 8,
    )
    inner = msgspec.structs.replace(mapped(CALL, span_id=b"\x02" * 8), parent_span_id=b"\x01" * 8)
    rolled = roll_up([outer, inner])
    assert (rolled.repeats, buckets(rolled)) == ({b"\x01" * 8: "descendant"}, (20, 30, 60, 40, None))
