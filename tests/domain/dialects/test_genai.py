"""Laws of reading the OpenTelemetry GenAI and MCP conventions, present and older."""

from __future__ import annotations

import json
from typing import Any

import pytest

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, event, mapped, wire

ASKED = [
    {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
    {"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": {"temp": 21}}]},
]
ANSWERED = [
    {
        "role": "assistant",
        "parts": [
            {"type": "text", "content": "It is 21C."},
            {"type": "tool_call", "id": "call_2", "name": "get_weather", "arguments": {"city": "Rome"}},
        ],
        "finish_reason": "stop",
    }
]


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("chat", "llm"),
        ("text_completion", "llm"),
        ("generate_content", "llm"),
        ("CHAT", "llm"),
        ("embeddings", "embedding"),
        ("retrieval", "retrieval"),
        ("execute_tool", "tool"),
        ("invoke_agent", "agent"),
        ("create_agent", "agent"),
        ("invoke_workflow", "workflow"),
        ("plan", "plan"),
        ("search_memory", "memory"),
        ("create_memory_store", "memory"),
    ],
)
def test_an_operation_names_its_kind(operation: str, kind: str) -> None:
    assert mapped({"gen_ai.operation.name": operation}).kind == kind


def shape(encode: Any) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": encode(ASKED),
        "gen_ai.output.messages": encode(ANSWERED),
        "gen_ai.system_instructions": encode([{"type": "text", "content": "In English."}]),
        "gen_ai.tool.call.arguments": encode({"city": "Paris"}),
    }


def test_structured_values_and_json_text_read_alike() -> None:
    structured, text = shape(lambda value: value), shape(json.dumps)
    one, other = mapped(structured), mapped(text)
    assert (one.input_preview, one.output_preview) == ("Weather in Paris?", "It is 21C.")
    assert (one.input_preview, one.output_preview) == (other.input_preview, other.output_preview)
    assert [(c.name, c.call_id) for c in one.tool_calls] == [("get_weather", "call_2")]
    assert [(c.name, c.call_id) for c in other.tool_calls] == [("get_weather", "call_2")]
    first, second = payload_of(wire(structured)), payload_of(wire(text))
    assert (first["input"], first["output"]) == (second["input"], second["output"])
    assert first["input"][0] == {"role": "system", "parts": [{"type": "text", "text": "In English."}]}
    assert first["input"][3]["parts"] == [
        {"type": "tool_result", "id": "call_1", "name": None, "result": {"temp": 21}}
    ]


@pytest.mark.parametrize("operation", ["execute_tool"])
def test_a_tools_arguments_and_result_read_alike_in_both_encodings(operation: str) -> None:
    for encode in (json.dumps, lambda value: value):
        span = wire(
            {
                "gen_ai.operation.name": operation,
                "gen_ai.tool.name": "get_weather",
                "gen_ai.tool.call.id": "call_1",
                "gen_ai.tool.call.arguments": encode({"city": "Paris"}),
                "gen_ai.tool.call.result": encode([21, None]),
            }
        )
        payload = payload_of(span)
        assert (payload["input"], payload["output"]) == ({"city": "Paris"}, [21, None])
        row = mapped(span.attributes, status_code=2, status_message="broken")
        assert row.input_preview is not None
        assert json.loads(row.input_preview) == {"city": "Paris"}
        (call,) = row.tool_calls
        assert (call.name, call.call_id, call.status, call.error_message) == (
            "get_weather",
            "call_1",
            "error",
            "broken",
        )


def test_a_tool_without_a_name_attribute_is_named_by_its_span() -> None:
    assert (
        mapped({"gen_ai.operation.name": "execute_tool"}, name="execute_tool a b").tool_calls[0].name == "a b"
    )
    assert mapped({"mcp.method.name": "tools/call"}, name="tools/call search").tool_calls[0].name == "search"
    assert mapped({"gen_ai.tool.call.id": "c"}, name="lookup").tool_calls[0].name == "lookup"


def test_older_names_of_provider_usage_and_content_are_understood() -> None:
    row = mapped(
        {
            "gen_ai.system": "OpenAI",
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.usage.prompt_tokens": 120,
            "gen_ai.usage.completion_tokens": 30,
            "gen_ai.usage.cache_read_input_tokens": 60,
            "gen_ai.usage.cache_creation_input_tokens": 40,
            "gen_ai.prompt": json.dumps([{"role": "user", "content": "hi"}]),
            "gen_ai.completion": "hello",
        }
    )
    assert buckets(row) == (20, 30, 60, 40, None)
    assert (row.provider, row.input_preview, row.output_preview) == ("openai", "hi", "hello")


def test_present_names_win_over_older_ones() -> None:
    row = mapped(
        {
            "gen_ai.usage.prompt_tokens": 1,
            "gen_ai.usage.input_tokens": 2,
            "gen_ai.usage.cache_creation.input_tokens": 0,
            "gen_ai.usage.cache_write.input_tokens": 1,
            "gen_ai.system": "aws.bedrock",
            "gen_ai.provider.name": "anthropic",
        }
    )
    assert (row.input_tokens, row.cache_write_tokens, row.provider) == (1, 1, "anthropic")


def test_aggregated_usage_is_no_usage() -> None:
    row = mapped(
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.aggregated_usage.input_tokens": 240,
            "model_name": "x",
        }
    )
    assert not row.has_usage()
    payload = payload_of(wire({"gen_ai.aggregated_usage.input_tokens": 240}))
    assert payload["provided_usage"] == {"gen_ai.aggregated_usage.input_tokens": 240}


def test_messages_on_span_events_are_read() -> None:
    calls = [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    span = wire(
        {"gen_ai.operation.name": "chat", "gen_ai.system": "openai"},
        events=(
            event("gen_ai.system.message", content="Be brief."),
            event("gen_ai.user.message", content="hi"),
            event("gen_ai.assistant.message", tool_calls=json.dumps(calls)),
            event("gen_ai.tool.message", id="call_1", content="42"),
            event("gen_ai.choice", index=0, finish_reason="stop", message=json.dumps({"content": "done"})),
        ),
    )
    row = mapped(span.attributes, events=span.events)
    assert (row.input_preview, row.output_preview) == ("hi", "done")
    payload = payload_of(span)
    assert [message["role"] for message in payload["input"]] == ["system", "user", "assistant", "tool"]
    assert payload["input"][2]["parts"] == [
        {"type": "tool_call", "id": "call_1", "name": "f", "arguments": {"a": 1}}
    ]
    assert payload["input"][3]["parts"] == [
        {"type": "tool_result", "id": "call_1", "name": None, "result": "42"}
    ]
    assert payload["output"] == [
        {"role": "assistant", "parts": [{"type": "text", "text": "done"}], "finish_reason": "stop"}
    ]


def test_one_event_may_hold_the_whole_conversation() -> None:
    details = event(
        "gen_ai.client.inference.operation.details",
        **{"gen_ai.input.messages": ASKED, "gen_ai.output.messages": json.dumps(ANSWERED)},
    )
    row = mapped({"gen_ai.operation.name": "chat"}, events=(details,))
    assert (row.input_preview, row.output_preview) == ("Weather in Paris?", "It is 21C.")
    assert len(row.tool_calls) == 1


def test_an_agent_run_of_pydantic_ai_splits_into_what_was_asked_and_what_was_answered() -> None:
    conversation = [*ASKED, *ANSWERED]
    span = wire(
        {
            "gen_ai.operation.name": "invoke_agent",
            "agent_name": "weather",
            "model_name": "gpt-4o",
            "pydantic_ai.all_messages": json.dumps(conversation),
            "final_result": "It is 21C.",
        }
    )
    payload = payload_of(span)
    assert [message["role"] for message in payload["input"]] == ["system", "user", "tool"]
    assert [message["role"] for message in payload["output"]] == ["assistant"]
    row = mapped(span.attributes)
    assert (row.input_preview, row.output_preview) == ("Weather in Paris?", "It is 21C.")
    assert (row.provided_model_name, row.tool_calls) == ("gpt-4o", ())


def strands(*events: Any, **said: Any) -> dict[str, Any]:
    """A span as strands-agents writes it by default: all content on events."""
    return {
        "attributes": {"gen_ai.system": "strands-agents", **said},
        "events": tuple(event(name, **fields) for name, fields in events),
    }


def test_a_choice_may_be_a_list_of_blocks() -> None:
    blocks = [
        {"text": "Let me look."},
        {"toolUse": {"toolUseId": "call_1", "name": "look", "input": {"city": "Paris"}}},
    ]
    told = [{"toolResult": {"toolUseId": "call_0", "status": "success", "content": [{"text": "sunny"}]}}]
    span = strands(
        ("gen_ai.user.message", {"content": json.dumps([{"text": "Weather?"}])}),
        ("gen_ai.tool.message", {"content": json.dumps(told)}),
        ("gen_ai.choice", {"finish_reason": "tool_use", "message": json.dumps(blocks)}),
        **{"gen_ai.operation.name": "chat"},
    )
    row = mapped(**span)
    assert (row.kind, row.input_preview, row.output_preview) == ("llm", "Weather?", "Let me look.")
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("look", "call_1")]
    payload = payload_of(wire(**span))
    assert payload["input"][1]["parts"] == [
        {"type": "tool_result", "id": "call_0", "name": None, "result": [{"text": "sunny"}]}
    ]
    assert payload["output"] == [
        {
            "role": "assistant",
            "finish_reason": "tool_use",
            "parts": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_call", "id": "call_1", "name": "look", "arguments": {"city": "Paris"}},
            ],
        }
    ]


def test_a_choice_may_be_bare_text() -> None:
    span = strands(
        ("gen_ai.choice", {"message": "It is sunny.", "finish_reason": "end_turn"}),
        **{"gen_ai.operation.name": "invoke_agent"},
    )
    assert mapped(**span).output_preview == "It is sunny."
    assert payload_of(wire(**span))["output"][0]["parts"] == [{"type": "text", "text": "It is sunny."}]


def test_a_tools_span_may_tell_its_exchange_on_events() -> None:
    span = strands(
        ("gen_ai.tool.message", {"role": "tool", "content": '{"city": "Paris"}', "id": "call_1"}),
        ("gen_ai.choice", {"message": '[{"text": "sunny"}]', "id": "call_1"}),
        **{
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "look",
            "gen_ai.tool.call.id": "call_1",
        },
    )
    row = mapped(**span)
    assert (row.kind, row.input_preview, row.output_preview) == (
        "tool",
        '{"city": "Paris"}',
        '[{"text": "sunny"}]',
    )
    tool = payload_of(wire(**span))["tool"]
    assert (tool["arguments"], tool["result"]) == ({"city": "Paris"}, [{"text": "sunny"}])
    # What attributes say is not said again by events.
    span["attributes"]["gen_ai.tool.call.result"] = "rainy"
    assert mapped(**span).output_preview == "rainy"


def test_an_event_that_holds_only_the_instructions_joins_the_input() -> None:
    details = "gen_ai.client.inference.operation.details"
    span = strands(
        (details, {"gen_ai.system_instructions": '[{"type": "text", "content": "Be brief."}]'}),
        (details, {"gen_ai.input.messages": '[{"role": "user", "parts": [{"text": "Hi"}]}]'}),
        (details, {"gen_ai.output.messages": '[{"role": "assistant", "parts": [{"text": "Hello"}]}]'}),
        **{"gen_ai.operation.name": "chat"},
    )
    row = mapped(**span)
    assert (row.input_preview, row.output_preview) == ("Hi", "Hello")
    assert payload_of(wire(**span))["input"] == [
        {"role": "system", "parts": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "text": "Hi"}]},
    ]


@pytest.mark.parametrize("key", ["gen_ai.input.messages", "gen_ai.prompt"])
def test_an_empty_list_of_messages_is_no_text(key: str) -> None:
    said = {"gen_ai.operation.name": "chat", key: "[]", "gen_ai.output.messages": " []"}
    row = mapped(said)
    assert (row.input_preview, row.output_preview) == (None, None)
    payload = payload_of(wire(said))
    assert (payload["input"] or None, payload["output"]) == (None, None)


def test_a_class_as_python_prints_it_is_its_name() -> None:
    failed = {"gen_ai.operation.name": "chat", "error.type": "<class 'openai.RateLimitError'>"}
    assert mapped(failed, status_code=2).error_type == "openai.RateLimitError"
    assert mapped({**failed, "error.type": "timeout"}, status_code=2).error_type == "timeout"


def test_a_method_of_calling_is_not_the_tools_name() -> None:
    tool = {"openinference.span.kind": "TOOL"}
    assert mapped(tool, name="weather.__call__").tool_calls[0].name == "weather"
    assert mapped(tool, name="weather").tool_calls[0].name == "weather"
