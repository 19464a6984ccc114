"""Laws of reading OpenInference."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import svc.domain.dialects.dialect as shape
from svc.domain.dialects.dialect import indexed
from svc.domain.intake.payload import payload_of
from tests.domain import buckets, mapped, wire


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("LLM", "llm"),
        ("llm", "llm"),
        ("EMBEDDING", "embedding"),
        ("CHAIN", "step"),
        ("RETRIEVER", "retrieval"),
        ("RERANKER", "reranker"),
        ("TOOL", "tool"),
        ("AGENT", "agent"),
        ("GUARDRAIL", "guardrail"),
        ("EVALUATOR", "step"),
        ("PROMPT", "step"),
    ],
)
def test_a_span_kind_names_its_kind(said: str, kind: str) -> None:
    assert mapped({"openinference.span.kind": said}).kind == kind


def test_a_chain_that_carries_messages_and_a_model_is_still_a_step() -> None:
    row = mapped(
        {
            "openinference.span.kind": "CHAIN",
            "llm.model_name": "gpt-4o",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "hi",
        }
    )
    assert (row.kind, row.input_preview) == ("step", "hi")


def test_what_only_prepares_a_request_is_no_model_call() -> None:
    said = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-4o", "output.value": '{"messages": []}'}
    assert mapped(said, name="OpenAI._prepare_chat_with_tools").kind == "step"
    assert mapped(said, name="OpenAI.astream_chat").kind == "llm"
    assert mapped({**said, "llm.token_count.prompt": 3}, name="A._prepare_chat_with_tools").kind == "llm"


MODELS = [
    ("llm.response.model_name", "a"),
    ("llm.model_name", "b"),
    ("embedding.model_name", "c"),
    ("reranker.model_name", "d"),
    ("llm.request.model_name", "e"),
    ("llm.invocation_parameters", '{"model": "f"}'),
]


@pytest.mark.parametrize("absent", range(len(MODELS)))
def test_the_model_is_the_one_that_answered_before_the_one_that_was_asked(absent: int) -> None:
    said = dict(reversed(MODELS[absent:]))
    assert mapped({"openinference.span.kind": "LLM", **said}).provided_model_name == "abcdef"[absent]


def test_messages_are_put_in_the_order_of_their_numbers() -> None:
    said: dict[str, Any] = {"openinference.span.kind": "LLM"}
    for number in (10, 9, 4294967295, 0):
        said[f"llm.input_messages.{number}.message.role"] = "user"
        said[f"llm.input_messages.{number}.message.content"] = f"n{number}"
    payload = payload_of(wire(said))
    assert [message["parts"][0]["text"] for message in payload["input"]] == ["n0", "n9", "n10", "n4294967295"]
    assert mapped(said).input_preview == "n4294967295"


numbers = st.lists(st.integers(0, 10**15), unique=True, max_size=20)


@given(numbers, st.randoms(use_true_random=False))
def test_numbered_keys_in_any_order_and_with_gaps_read_in_order(given_: list[int], random: Any) -> None:
    keys = [f"p.{number}.x" for number in given_] + ["p.x.x", "p.-1.x", "p..x", "q.1.x", "p.²"]
    random.shuffle(keys)
    # The second time the keys are known to come again, the third time where the records lie among them.
    for time in range(3):
        records = indexed({key: (time, key) for key in keys}, "p.")
        assert [record["x"] for record in records] == [(time, f"p.{number}.x") for number in sorted(given_)]


def test_records_hold_what_stands_within_and_stand_apart_by_it() -> None:
    said = {"p.1.m.role": 1, "p.1.n": 2, "p.0.n": 3, "q.0.m.role": 4}
    for _ in range(3):
        assert indexed(said, "p.", "m.") == [{}, {"role": 1}]
        assert indexed(said, "p.") == [{"n": 3}, {"m.role": 1, "n": 2}]
        assert indexed(said, "q.", "m.") == [{"role": 4}]


def test_where_records_lie_is_remembered_within_bounds() -> None:
    for number in range(2 * shape._MET_BOUND):
        said = {"p.0.x": number, f"key {number}": 1}
        for _ in range(2 if number % 2 else 1):
            assert indexed(said, "p.") == [{"x": number}]
        assert len(shape._layouts) <= shape._LAYOUTS_BOUND
        assert len(shape._met) <= shape._MET_BOUND
    for long in ({"p.0.x": 1, "k" * shape._LAID_OUT_CHARS: 1}, {f"p.{n}.x": n for n in range(97)}):
        for _ in range(3):
            assert indexed(long, "p.")[0] == {"x": long["p.0.x"]}
        assert (tuple(long), "p.", "") not in shape._layouts


def test_parts_calls_and_results_are_read_from_their_keys() -> None:
    said = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.1.message_content.type": "image",
        "llm.input_messages.0.message.contents.1.message_content.image.image.url": "http://x/y.png",
        "llm.input_messages.0.message.contents.0.message_content.type": "text",
        "llm.input_messages.0.message.contents.0.message_content.text": "What is it?",
        "llm.input_messages.1.message.role": "tool",
        "llm.input_messages.1.message.tool_call_id": "call_0",
        "llm.input_messages.1.message.content": '{"temp":21}',
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "call_1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "look",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"at": "x"}',
    }
    payload = payload_of(wire(said))
    assert payload["input"] == [
        {
            "role": "user",
            "parts": [
                {"type": "text", "text": "What is it?"},
                {"type": "media", "media": "image", "uri": "http://x/y.png"},
            ],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_result", "id": "call_0", "name": None, "result": {"temp": 21}}],
        },
    ]
    assert payload["output"][0]["parts"] == [
        {"type": "tool_call", "id": "call_1", "name": "look", "arguments": {"at": "x"}}
    ]
    row = mapped(said)
    assert (row.input_preview, row.output_preview) == ("What is it?", 'look({"at": "x"})')
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("look", "call_1")]


def test_token_counts_are_inclusive() -> None:
    row = mapped(
        {
            "llm.token_count.prompt": 120,
            "llm.token_count.completion": "30",
            "llm.token_count.total": 150,
            "llm.token_count.prompt_details.cache_read": 60,
            "llm.token_count.prompt_details.cache_write": 40.0,
            "llm.token_count.completion_details.reasoning": 12,
        }
    )
    assert buckets(row) == (20, 18, 60, 40, 12)


def test_the_price_of_a_prompt_includes_its_cached_part() -> None:
    row = mapped(
        {
            "openinference.span.kind": "LLM",
            "llm.cost.prompt": 0.5,
            "llm.cost.prompt_details.cache_read": 0.2,
            "llm.cost.completion": 0.25,
        }
    )
    assert (row.input_cost, row.cache_read_cost, row.cache_write_cost, row.output_cost) == (
        Decimal("0.3"),
        Decimal("0.2"),
        None,
        Decimal("0.25"),
    )
    assert (row.total_cost, row.cost_source) == (Decimal("0.75"), "provided")
    assert mapped({"llm.cost.total": "1.5", "llm.cost.prompt": float("nan")}).total_cost == Decimal("1.5")


def test_the_provider_that_hosts_comes_before_the_system_that_made_the_model() -> None:
    assert mapped({"llm.provider": "azure", "llm.system": "openai"}).provider == "azure"
    assert mapped({"llm.system": "vertexai"}).provider == "google"


def test_a_tools_arguments_are_its_input_and_never_its_schema() -> None:
    said = {
        "openinference.span.kind": "TOOL",
        "tool.name": "capital",
        "tool.parameters": '{"type": "object"}',
        "input.value": "Paris",
        "output.value": '{"role": "user", "content": "x"}',
        "output.mime_type": "application/json",
    }
    row = mapped(said)
    assert (row.input_preview, row.output_preview) == ("Paris", '{"role": "user", "content": "x"}')
    assert [call.name for call in row.tool_calls] == ["capital"]
    payload = payload_of(wire(said))
    assert (payload["input"], payload["output"]) == ("Paris", {"role": "user", "content": "x"})


def test_a_chains_preview_is_the_conversation_inside_its_value() -> None:
    human = {"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "hi"}}
    ai = {"message": {"kwargs": {"content": "hello", "type": "ai"}}, "text": "hello"}
    row = mapped(
        {
            "openinference.span.kind": "CHAIN",
            "input.value": json.dumps({"messages": [[human]]}),
            "output.value": json.dumps({"generations": [[ai]]}),
        }
    )
    assert (row.input_preview, row.output_preview) == ("hi", "hello")
    row = mapped(
        {"openinference.span.kind": "CHAIN", "input.value": '{"city": "Paris"}', "output.value": "ok"}
    )
    assert (row.input_preview, row.output_preview) == ('{"city": "Paris"}', "ok")


def test_an_embedding_shows_its_text_and_no_vector() -> None:
    row = mapped(
        {
            "openinference.span.kind": "EMBEDDING",
            "embedding.embeddings.0.embedding.text": "hello",
            "input.value": '{"input": "hello"}',
            "output.value": '{"data": [0.1]}',
        }
    )
    assert (row.input_preview, row.output_preview) == ("hello", None)


def langchain_result(metadata: Any) -> str:
    said = {"kwargs": {"content": "hi", "response_metadata": metadata, "id": "lc_run--1"}}
    return json.dumps({"generations": [[{"text": "hi", "message": said}]], "llm_output": None})


@pytest.mark.parametrize(
    ("metadata", "known"),
    [
        ({"id": "chatcmpl-1", "model_name": "gpt-4o"}, "chatcmpl-1"),
        ({"id": "msg_1", "usage": {"input_tokens": 3}}, "msg_1"),
        ({"model_name": "gpt-4o"}, None),
        ({"id": 7}, None),
        (None, None),
    ],
)
def test_langchain_says_the_id_of_the_answer_within_its_result(metadata: Any, known: str | None) -> None:
    # So that its span and that of the provider's SDK, which has the same id, are one call.
    answer = langchain_result(metadata)
    assert mapped({"openinference.span.kind": "LLM", "output.value": answer}).response_id == known
    cut = mapped({"openinference.span.kind": "LLM", "output.value": answer[:40]})
    assert cut.response_id is None


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        ('{"id": "msg_1", "usage": {}}', "msg_1"),
        ('{"id": 5, "usage": {}}', None),
        ('{"id": "order-7", "note": "\\"usage\\""}', None),
        ('{"usage": {', None),
        ('"usage"', None),
    ],
)
def test_the_response_id_is_taken_only_from_a_raw_answer(answer: str, known: str | None) -> None:
    assert mapped({"openinference.span.kind": "LLM", "output.value": answer}).response_id == known
    assert mapped({"openinference.span.kind": "CHAIN", "output.value": answer}).response_id is None


def test_a_call_among_the_contents_and_beside_them_is_one_call() -> None:
    call = {
        "tool_call.id": "toolu_1",
        "tool_call.function.name": "get_weather",
        "tool_call.function.arguments": '{"city": "Paris"}',
    }
    start = "llm.output_messages.0.message."
    among = {f"{start}contents.0.{key}": value for key, value in call.items()}
    beside = {f"{start}tool_calls.0.{key}": value for key, value in call.items()}
    said = {f"{start}role": "assistant", f"{start}contents.0.message_content.type": "tool_use"}
    part = {"type": "tool_call", "id": "toolu_1", "name": "get_weather", "arguments": {"city": "Paris"}}
    for attributes in ({**said, **among, **beside}, {**said, **among}, {**said, **beside, **among}):
        span = wire({"openinference.span.kind": "LLM", **attributes})
        assert payload_of(span)["output"] == [{"role": "assistant", "parts": [part]}]
        assert [call.name for call in mapped(span.attributes).tool_calls] == ["get_weather"]


def test_roles_without_words_leave_the_words_to_the_value() -> None:
    value = '{"messages": [{"role": "user", "content": "hello"}]}'
    span = {
        "openinference.span.kind": "CHAIN",
        "llm.input_messages.0.message.role": "user",
        "input.value": value,
    }
    assert payload_of(wire(span))["input"] == {"messages": [{"role": "user", "content": "hello"}]}
    assert mapped(span).input_preview == "hello"
