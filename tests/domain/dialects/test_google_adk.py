"""Laws of reading Google's Agent Development Kit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, mapped, wire
from tests.domain.dialects.clients import calls, span

REQUEST = {
    "model": "gemini-2.5-flash",
    "config": {"system_instruction": "Be brief."},
    "contents": [
        {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
        {"role": "model", "parts": [{"function_call": {"id": "c0", "name": "where", "args": {}}}]},
        {
            "role": "user",
            "parts": [{"function_response": {"id": "c0", "name": "where", "response": {"city": "Paris"}}}],
        },
    ],
}
RESPONSE = {
    "content": {
        "role": "model",
        "parts": [
            {"text": "hm", "thought": True},
            {"text": "Let me look."},
            {"function_call": {"id": "c1", "name": "look", "args": {"city": "Paris"}}},
        ],
    },
    "finish_reason": "STOP",
    "usage_metadata": {"prompt_token_count": 120},
}
CALL = {
    "gen_ai.system": "gcp.vertex.agent",
    "gen_ai.request.model": "gemini-2.5-flash",
    "gcp.vertex.agent.invocation_id": "e-1",
    "gcp.vertex.agent.session_id": "s",
    "gcp.vertex.agent.llm_request": json.dumps(REQUEST),
    "gcp.vertex.agent.llm_response": json.dumps(RESPONSE),
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 18,
    "gen_ai.response.finish_reasons": ["stop"],
}


def test_a_model_call_is_read_whole() -> None:
    row = mapped(CALL, name="call_llm")
    assert (row.kind, row.provider, row.model_id, row.session_id) == (
        "llm",
        "google",
        "gemini-2.5-flash",
        "s",
    )
    assert (row.input_preview, row.output_preview) == ("Weather in Paris?", "Let me look.")
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("look", "c1")]
    payload = payload_of(wire(CALL))
    assert [message["role"] for message in payload["input"]] == ["system", "user", "assistant", "user"]
    assert payload["input"][2]["parts"] == [
        {"type": "tool_call", "id": "c0", "name": "where", "arguments": {}}
    ]
    assert payload["input"][3]["parts"] == [
        {"type": "tool_result", "id": "c0", "name": "where", "result": {"city": "Paris"}}
    ]
    assert payload["output"][0]["parts"][0] == {"type": "reasoning", "text": "hm"}
    assert payload["finish_reasons"] == ["stop"]


def test_earlier_output_leaves_out_what_was_thought_and_present_output_does_not() -> None:
    earlier = {**CALL, "gen_ai.usage.experimental.reasoning_tokens": 12}
    assert buckets(mapped(earlier)) == (120, 18, None, None, 12)
    present = {**CALL, "gen_ai.usage.output_tokens": 30, "gen_ai.usage.reasoning.output_tokens": 12}
    assert buckets(mapped(present)) == (120, 18, None, None, 12)


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gemini-2.5-flash", "google"),
        ("projects/p/locations/l/endpoints/e", "google"),
        ("openai/gpt-4o", "openai"),
        ("anthropic/claude-sonnet-4-5", "anthropic"),
    ],
)
def test_the_kit_is_no_provider(model: str, provider: str) -> None:
    assert mapped({**CALL, "gen_ai.request.model": model}).provider == provider


TOOL: dict[str, Any] = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "look",
    "gen_ai.tool.description": "Looks.",
    "gen_ai.tool.call.id": "<not specified>",
    "gcp.vertex.agent.llm_request": "{}",
    "gcp.vertex.agent.llm_response": "{}",
    "gcp.vertex.agent.tool_call_args": '{"city": "Paris"}',
    "gcp.vertex.agent.tool_response": '{"temp": 21}',
}


def test_a_tool_shows_what_it_was_called_with_and_has_no_id_when_none_was_specified() -> None:
    row = mapped(TOOL)
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("look", None)]
    assert (row.input_preview, row.output_preview) == ('{"city": "Paris"}', '{"temp": 21}')
    assert payload_of(wire(TOOL))["tool"] == {
        "name": "look",
        "description": "Looks.",
        "arguments": {"city": "Paris"},
        "result": {"temp": 21},
    }


def test_merged_tools_are_no_call_once_more() -> None:
    row = mapped({**TOOL, "gen_ai.tool.name": "(merged tools)", "gcp.vertex.agent.tool_call_args": "N/A"})
    assert (row.kind, row.tool_calls) == ("step", ())


def test_an_id_that_numbers_a_call_within_its_answer_is_none() -> None:
    asks = {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.request.model": "gemini-2.5-flash",
        "gcp.vertex.agent.invocation_id": "e-1",
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [{"type": "tool_call", "id": "look_0", "name": "look"}]}]
        ),
    }
    runs = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "adk-1",
        "gcp.vertex.agent.event_id": "x",
    }
    model, tool = span(1, "generate_content", asks), span(2, "execute_tool look", runs)
    assert calls(model, tool) == [("look", "ok", None)]
