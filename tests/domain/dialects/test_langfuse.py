"""Laws of reading Langfuse's observations."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, mapped, wire

GENERATION = {
    "langfuse.observation.type": "generation",
    "langfuse.trace.name": "trip",
    "langfuse.observation.model.name": "gpt-4o",
    "langfuse.observation.model.parameters": '{"temperature": 0.5}',
    "langfuse.observation.input": json.dumps(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}]
    ),
    "langfuse.observation.output": json.dumps(
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [{"id": "call_1", "function": {"name": "look", "arguments": '{"at": 1}'}}],
        }
    ),
    "langfuse.observation.usage_details": json.dumps(
        {"input": 20, "input_cached_tokens": 100, "output": 18, "output_reasoning_tokens": 12, "total": 150}
    ),
    "langfuse.observation.cost_details": json.dumps({"input": 0.1, "output": 0.2, "total": 0.35}),
    "langfuse.observation.completion_start_time": '"2026-11-20T09:20:13.250000Z"',
    "session.id": "s",
    "user.id": "u",
}


def test_a_generation_is_read_whole() -> None:
    row = mapped(GENERATION)
    assert (row.kind, row.provided_model_name, row.model_id) == ("llm", "gpt-4o", "gpt-4o")
    assert (row.session_id, row.user_id) == ("s", "u")
    assert buckets(row) == (20, 18, 100, None, 12)
    assert (row.input_cost, row.output_cost, row.total_cost) == (
        Decimal("0.1"),
        Decimal("0.2"),
        Decimal("0.35"),
    )
    assert (row.input_preview, row.output_preview) == ("Weather?", "Let me look.")
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("look", "call_1")]
    payload = payload_of(wire(GENERATION))
    assert [message["role"] for message in payload["input"]] == ["system", "user"]
    assert payload["output"][0]["parts"][1] == {
        "type": "tool_call",
        "id": "call_1",
        "name": "look",
        "arguments": {"at": 1},
    }
    assert (payload["workflow"], payload["parameters"]) == ("trip", {"temperature": 0.5})
    assert payload["time_to_first_token_ms"] == 250


USAGES: list[tuple[dict[str, Any], tuple[int | None, ...]]] = [
    ({"input": 20, "output": 30, "total": 50}, (20, 30, None, None, None)),
    (
        {"input": 20, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 40, "output": 30},
        (20, 30, 60, 40, None),
    ),
    (
        {
            "input": 20,
            "input_cache_read": 60,
            "input_cache_creation": 40,
            "output": 18,
            "output_reasoning": 12,
        },
        (20, 18, 60, 40, 12),
    ),
    # More than input without the cache, where a clamp would be wrong.
    ({"input": 200, "input_cached_tokens": 100, "output": 30}, (200, 30, 100, None, None)),
    ({"input": 10, "input_audio": 5, "input_priority": 15, "output": 1}, (15, 1, None, None, None)),
    (
        {
            "input": 10,
            "cache_creation_ephemeral_5m_input_tokens": 40,
            "cache_creation_input_tokens": 40,
            "output": 1,
        },
        (10, 1, None, 40, None),
    ),
    # Anthropic's own usage as it came.
    (
        {
            "input_tokens": 20,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 40,
            "output_tokens": 9,
        },
        (20, 9, 60, 40, None),
    ),
    # OpenAI's, inclusive: chat and Responses.
    (
        {
            "prompt_tokens": 120,
            "completion_tokens": 30,
            "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 100, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 12},
        },
        (20, 18, 100, None, 12),
    ),
    (
        {
            "input_tokens": 120,
            "output_tokens": 30,
            "input_tokens_details": {"cached_tokens": 100},
            "output_tokens_details": {"reasoning_tokens": 12},
        },
        (20, 18, 100, None, 12),
    ),
    ({"input": 20, "prompt_tokens": 20, "output": 3, "completion_tokens": 3}, (20, 3, None, None, None)),
    ({"promptTokens": 7, "completionTokens": 2}, (7, 2, None, None, None)),
    ({"input": "20", "output": 3.0}, (20, 3, None, None, None)),
    ({"input": -1, "output": "x", "input_cached_tokens": None}, (None,) * 5),
]


@pytest.mark.parametrize(("details", "kept"), USAGES)
def test_each_spelling_of_usage_fills_the_same_buckets(
    details: dict[str, Any], kept: tuple[int | None, ...]
) -> None:
    for said in (details, json.dumps(details)):
        row = mapped({"langfuse.observation.type": "generation", "langfuse.observation.usage_details": said})
        assert buckets(row) == kept


tokens = st.integers(0, 10**6)


@given(tokens, tokens, tokens, tokens, tokens)
def test_exclusive_usage_is_kept_to_the_token(
    given_: int, read: int, written: int, said: int, thought: int
) -> None:
    details = {
        "input": given_,
        "input_cached_tokens": read,
        "input_cache_creation": written,
        "output": said,
        "output_reasoning_tokens": thought,
    }
    row = mapped({"langfuse.observation.usage_details": json.dumps(details)})
    assert buckets(row) == (given_, said, read, written, thought)


def test_its_own_usage_wins_over_the_same_usage_in_shared_keys() -> None:
    row = mapped({**GENERATION, "gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": 18})
    assert buckets(row) == (20, 18, 100, None, 12)


def test_cost_by_part_is_kept_by_part() -> None:
    row = mapped(
        {
            "langfuse.observation.cost_details": json.dumps(
                {"input": 0.1, "input_cached_tokens": 0.2, "output": 0.3, "output_reasoning_tokens": 0.4}
            )
        }
    )
    assert (row.input_cost, row.cache_read_cost, row.output_cost, row.total_cost) == (
        Decimal("0.1"),
        Decimal("0.2"),
        Decimal("0.7"),
        Decimal("1.0"),
    )


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("generation", "llm"),
        ("embedding", "embedding"),
        ("agent", "agent"),
        ("tool", "tool"),
        ("chain", "step"),
        ("retriever", "retrieval"),
        ("evaluator", "step"),
        ("guardrail", "guardrail"),
        ("span", "step"),
        ("event", "step"),
    ],
)
def test_an_observation_type_names_its_kind(said: str, kind: str) -> None:
    assert mapped({"langfuse.observation.type": said}).kind == kind


def test_the_type_wins_over_other_dialects_and_a_span_leaves_it_to_them() -> None:
    others = {"openinference.span.kind": "CHAIN", "gen_ai.operation.name": "chat"}
    assert mapped({**others, "langfuse.observation.type": "agent"}).kind == "agent"
    assert mapped({"gen_ai.operation.name": "chat", "langfuse.observation.type": "span"}).kind == "llm"


def test_a_level_of_error_is_an_error_with_its_message() -> None:
    said = {"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": "rate limit"}
    row = mapped(said)
    assert (row.status, row.error_message) == ("error", "rate limit")
    assert mapped({**said, "langfuse.observation.level": "WARNING"}).status == "ok"


def test_a_tool_shows_its_input_and_output() -> None:
    said = {
        "langfuse.observation.type": "tool",
        "langfuse.observation.input": '{"role": "user", "content": "x"}',
        "langfuse.observation.output": "21C",
    }
    row = mapped(said, name="get_weather")
    assert (row.input_preview, row.output_preview) == ('{"role": "user", "content": "x"}', "21C")
    assert [call.name for call in row.tool_calls] == ["get_weather"]
    assert payload_of(wire(said, name="get_weather"))["tool"] == {
        "name": "get_weather",
        "arguments": {"role": "user", "content": "x"},
        "result": "21C",
    }


def test_plain_text_is_a_message_of_a_generation_and_a_value_of_anything_else() -> None:
    said = {"langfuse.observation.input": "hi", "langfuse.observation.output": "hello"}
    payload = payload_of(wire({**said, "langfuse.observation.type": "generation"}))
    assert payload["input"] == [{"role": "user", "parts": [{"type": "text", "text": "hi"}]}]
    assert payload_of(wire({**said, "langfuse.observation.type": "chain"}))["output"] == "hello"


def test_what_a_retriever_found_is_documents() -> None:
    found = [{"page_content": "sun", "metadata": {"id": "d1", "score": 0.5}}, {"page_content": "rain"}]
    said = {"langfuse.observation.type": "retriever", "langfuse.observation.output": json.dumps(found)}
    assert payload_of(wire(said))["documents"] == [
        {"rank": 1, "id": "d1", "score": 0.5, "text": "sun", "metadata": {"id": "d1", "score": 0.5}},
        {"rank": 2, "id": None, "score": None, "text": "rain", "metadata": None},
    ]


def test_what_a_function_was_called_with_is_a_value_and_no_message() -> None:
    called = {"args": ["What is the weather?"], "kwargs": {}}
    for kind in ("agent", "span", "chain"):
        said = {"langfuse.observation.type": kind, "langfuse.observation.input": json.dumps(called)}
        assert payload_of(wire(said))["input"] == called
