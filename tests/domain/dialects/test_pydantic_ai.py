"""Laws of reading pydantic-ai and Logfire, present and earlier formats."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, mapped, wire

EVENTS = [
    {"event.name": "gen_ai.system.message", "role": "system", "content": "Be brief."},
    {"event.name": "gen_ai.user.message", "role": "user", "content": "Weather in Paris?"},
    {
        "event.name": "gen_ai.assistant.message",
        "role": "assistant",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
        ],
    },
    {"event.name": "gen_ai.tool.message", "role": "tool", "id": "c", "name": "look", "content": "21"},
    {
        "event.name": "gen_ai.choice",
        "index": 0,
        "message": {"role": "assistant", "content": "It is 21C."},
    },
]


def test_events_on_a_calls_span_are_its_conversation() -> None:
    said = {"gen_ai.operation.name": "chat", "events": json.dumps(EVENTS)}
    row = mapped(said)
    assert (row.kind, row.input_preview, row.output_preview) == ("llm", "Weather in Paris?", "It is 21C.")
    payload = payload_of(wire(said))
    assert [message["role"] for message in payload["input"]] == ["system", "user", "assistant", "tool"]
    assert payload["input"][3]["parts"] == [
        {"type": "tool_result", "id": "c", "name": "look", "result": "21"}
    ]
    assert payload["output"] == [{"role": "assistant", "parts": [{"type": "text", "text": "It is 21C."}]}]


def test_an_earlier_run_of_an_agent_is_an_agent_though_it_carries_usage() -> None:
    said: dict[str, Any] = {
        "agent_name": "weather",
        "model_name": "gpt-4o",
        "all_messages_events": json.dumps(EVENTS),
        "final_result": "It is 21C.",
        "gen_ai.usage.input_tokens": 240,
        "gen_ai.usage.output_tokens": 60,
    }
    row = mapped(said, name="agent run")
    assert (row.kind, row.provided_model_name, row.tool_calls) == ("agent", "gpt-4o", ())
    assert (row.input_preview, row.output_preview) == ("Weather in Paris?", "It is 21C.")
    assert payload_of(wire(said))["agent"] == "weather"
    assert mapped({**said, "gen_ai.operation.name": "chat"}).kind == "llm"


def test_an_earlier_tool_shows_what_it_was_called_with() -> None:
    said = {
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "c",
        "tool_arguments": '{"city":"Paris"}',
        "tool_response": "21",
        "agent_name": "weather",
    }
    row = mapped(said, name="running tool: look")
    assert (row.kind, row.input_preview, row.output_preview) == ("tool", '{"city":"Paris"}', "21")
    assert payload_of(wire(said))["tool"] == {
        "name": "look",
        "call_id": "c",
        "arguments": {"city": "Paris"},
        "result": "21",
    }


def test_details_of_usage_are_parts_of_the_totals() -> None:
    row = mapped(
        {
            "gen_ai.usage.input_tokens": 120,
            "gen_ai.usage.output_tokens": 30,
            "gen_ai.usage.details.cache_read_tokens": 60,
            "gen_ai.usage.details.cache_write_tokens": 40,
            "gen_ai.usage.details.reasoning_tokens": 12,
            "operation.cost": 0.5,
        }
    )
    assert (buckets(row), row.total_cost) == ((20, 18, 60, 40, 12), Decimal("0.5"))


def test_requests_and_responses_that_logfire_records_are_messages() -> None:
    said = {
        "gen_ai.request.model": "gpt-4o",
        "request_data": json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}),
        "response_data": json.dumps({"message": {"role": "assistant", "content": "hello"}, "usage": {}}),
    }
    row = mapped(said)
    assert (row.kind, row.input_preview, row.output_preview) == ("llm", "hi", "hello")


def test_a_list_of_events_that_is_somebody_elses_is_left_alone() -> None:
    row = mapped({"events": '["deploy", "rollback"]'})
    assert (row.kind, row.input_preview, row.output_preview) == ("step", None, None)
