"""Laws of reading OpenLLMetry: the shape of its 0.40, spelled out over numbered keys, and that since 0.55."""

from __future__ import annotations

import json
from typing import Any

import pytest

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, event, mapped, wire

OLD = {
    "llm.request.type": "chat",
    "gen_ai.system": "OpenAI",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.response.model": "gpt-4o-2024-08-06",
    "gen_ai.prompt.0.role": "system",
    "gen_ai.prompt.0.content": "Be brief.",
    "gen_ai.prompt.1.role": "user",
    "gen_ai.prompt.1.content": json.dumps(
        [
            {"type": "text", "text": "Weather here?"},
            {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
        ]
    ),
    "gen_ai.prompt.2.role": "assistant",
    "gen_ai.prompt.2.tool_calls.0.id": "call_0",
    "gen_ai.prompt.2.tool_calls.0.name": "where",
    "gen_ai.prompt.2.tool_calls.0.arguments": "{}",
    "gen_ai.prompt.3.role": "tool",
    "gen_ai.prompt.3.tool_call_id": "call_0",
    "gen_ai.prompt.3.content": '{"city": "Paris"}',
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": "Let me look.",
    "gen_ai.completion.0.finish_reason": "tool_calls",
    "gen_ai.completion.0.tool_calls.0.id": "call_1",
    "gen_ai.completion.0.tool_calls.0.name": "get_weather",
    "gen_ai.completion.0.tool_calls.0.arguments": '{"city": "Paris"}',
    "gen_ai.usage.prompt_tokens": 120,
    "gen_ai.usage.completion_tokens": 30,
    "gen_ai.usage.cache_read_input_tokens": 100,
    "llm.usage.reasoning_tokens": 12,
    "llm.usage.total_tokens": 150,
    "llm.user": "u",
    "traceloop.association.properties.session_id": "s",
    "traceloop.workflow.name": "trip",
}


def test_a_call_of_the_old_shape_is_read_whole() -> None:
    row = mapped(OLD, name="openai.chat")
    assert (row.kind, row.provider, row.provided_model_name) == ("llm", "openai", "gpt-4o-2024-08-06")
    assert (row.session_id, row.user_id) == ("s", "u")
    assert buckets(row) == (20, 18, 100, None, 12)
    assert (row.input_preview, row.output_preview) == ("Weather here?", "Let me look.")
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("get_weather", "call_1")]
    payload = payload_of(wire(OLD))
    assert payload["input"] == [
        {"role": "system", "parts": [{"type": "text", "text": "Be brief."}]},
        {
            "role": "user",
            "parts": [
                {"type": "text", "text": "Weather here?"},
                {"type": "media", "media": "image", "uri": "http://x/y.png"},
            ],
        },
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "call_0", "name": "where", "arguments": {}}],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_result", "id": "call_0", "name": None, "result": {"city": "Paris"}}],
        },
    ]
    assert payload["output"] == [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "text": "Let me look."},
                {
                    "type": "tool_call",
                    "id": "call_1",
                    "name": "get_weather",
                    "arguments": {"city": "Paris"},
                },
            ],
            "finish_reason": "tool_calls",
        }
    ]
    assert (payload["finish_reasons"], payload["workflow"]) == (["tool_calls"], "trip")


def test_a_call_of_the_new_shape_is_read_whole() -> None:
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.input.messages": json.dumps(
            [{"role": "user", "parts": [{"type": "text", "content": "Weather?"}]}]
        ),
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": "21C"}], "finish_reason": "stop"}]
        ),
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 30,
        "gen_ai.usage.cache_read.input_tokens": 100,
        "gen_ai.usage.reasoning_tokens": 12,
        "gen_ai.usage.total_tokens": 150,
        "gen_ai.user": "u",
        "gen_ai.is_streaming": False,
        "traceloop.association.properties.user_id": "app user",
    }
    row = mapped(said)
    assert (row.kind, buckets(row)) == ("llm", (20, 18, 100, None, 12))
    assert (row.input_preview, row.output_preview, row.user_id) == ("Weather?", "21C", "app user")


def test_present_messages_win_over_numbered_ones() -> None:
    assert mapped({**OLD, "gen_ai.prompt": "newer"}).input_preview == "newer"


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"traceloop.span.kind": "workflow"}, "workflow"),
        ({"traceloop.span.kind": "task"}, "step"),
        ({"traceloop.span.kind": "agent"}, "agent"),
        ({"traceloop.span.kind": "tool"}, "tool"),
        ({"traceloop.span.kind": "unknown"}, "step"),
        ({"llm.request.type": "completion"}, "llm"),
        ({"llm.request.type": "embedding"}, "embedding"),
        ({"llm.request.type": "rerank"}, "reranker"),
        ({"llm.request.type": "unknown", "traceloop.span.kind": "task"}, "step"),
        ({"llm.request.type": "chat", "traceloop.span.kind": "task"}, "llm"),
        ({"gen_ai.operation.name": "invoke_agent", "traceloop.span.kind": "workflow"}, "agent"),
        ({"db.system": "pinecone", "pinecone.query.top_k": 3}, "retrieval"),
        ({"db.system": "pinecone", "pinecone.usage.write_units": 3}, "step"),
    ],
)
def test_the_kind_is_the_request_before_the_entity(attributes: dict[str, Any], kind: str) -> None:
    assert mapped(attributes).kind == kind


def test_a_decorated_tool_shows_what_it_was_called_with() -> None:
    said = {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "get_weather",
        "traceloop.entity.input": '{"args": [], "kwargs": {"city": "Paris"}}',
        "traceloop.entity.output": '{"temp": 21}',
        "traceloop.workflow.name": "trip",
    }
    row = mapped(said, name="get_weather.tool")
    assert [call.name for call in row.tool_calls] == ["get_weather"]
    assert row.output_preview == '{"temp": 21}'
    payload = payload_of(wire(said))
    assert payload["tool"] == {
        "name": "get_weather",
        "arguments": {"args": [], "kwargs": {"city": "Paris"}},
        "result": {"temp": 21},
    }


def test_an_entity_that_is_no_tool_names_its_call_site_and_nothing_else() -> None:
    row = mapped(
        {"traceloop.span.kind": "task", "traceloop.entity.name": "Plan", "traceloop.entity.input": "{}"},
        name="plan.task",
    )
    assert (row.call_site_id, row.tool_calls) == ("unknown_service/Plan/plan.task", ())


def test_the_hits_of_a_vector_database_are_documents() -> None:
    hits = (
        event("db.query.embeddings", vector="[]"),
        event(
            "db.query.result",
            **{
                "db.query.result.id": "d1",
                "db.query.result.score": 0.9,
                "db.query.result.document": "Paris is warm.",
                "db.query.result.metadata": '{"page": 1}',
            },
        ),
        event("db.search.result", **{"db.search.result.id": 7, "db.search.result.distance": "0.5"}),
    )
    payload = payload_of(wire({"pinecone.query.top_k": 2}, events=hits))
    assert payload["documents"] == [
        {"rank": 1, "id": "d1", "score": 0.9, "text": "Paris is warm.", "metadata": {"page": 1}},
        {"rank": 2, "id": "7", "score": 0.5, "text": None, "metadata": None},
    ]


def test_numbers_with_gaps_in_any_order_are_read_in_order() -> None:
    said: dict[str, Any] = {"llm.request.type": "chat"}
    for number in (4294967295, 10, 9):
        said[f"gen_ai.prompt.{number}.role"] = "user"
        said[f"gen_ai.prompt.{number}.content"] = f"n{number}"
    said["gen_ai.prompt.__proto__.content"] = "never"
    payload = payload_of(wire(said))
    assert [message["parts"][0]["text"] for message in payload["input"]] == ["n9", "n10", "n4294967295"]


def test_json_that_a_user_wrote_is_what_the_user_said() -> None:
    said = {**OLD, "gen_ai.prompt.1.content": '{"city": "Paris"}'}
    assert mapped(said).input_preview == '{"city": "Paris"}'
