"""Laws of reading MLflow Tracing, where every value is JSON text."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, mapped, wire


def quoted(**values: Any) -> dict[str, str]:
    return {f"mlflow.{key.replace('__', '.')}": json.dumps(value) for key, value in values.items()}


CALL = quoted(
    spanType="CHAT_MODEL",
    llm__model="gpt-4o",
    llm__provider="openai",
    trace__session="s",
    trace__user="u",
    spanInputs={"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]},
    spanOutputs={
        "id": "chatcmpl-1",
        "choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    },
    chat__tokenUsage={
        "input_tokens": 120,
        "output_tokens": 30,
        "total_tokens": 150,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 40,
    },
    llm__cost={"input_cost": 0.1, "output_cost": 0.2, "total_cost": 0.3},
)


def test_a_model_call_is_read_whole() -> None:
    row = mapped(CALL)
    assert (row.kind, row.provider, row.provided_model_name) == ("llm", "openai", "gpt-4o")
    assert (row.session_id, row.user_id) == ("s", "u")
    assert buckets(row) == (20, 30, 60, 40, None)
    assert (row.total_cost, row.cost_source) == (Decimal("0.3"), "provided")
    assert (row.input_preview, row.output_preview) == ("hi", "hello")
    payload = payload_of(wire(CALL))
    assert payload["output"] == [
        {"role": "assistant", "parts": [{"type": "text", "text": "hello"}], "finish_reason": "stop"}
    ]
    assert payload["finish_reasons"] == ["stop"]
    assert payload["provided_usage"].keys() == {"mlflow.chat.tokenUsage", "mlflow.llm.cost"}


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("LLM", "llm"),
        ("CHAT_MODEL", "llm"),
        ("EMBEDDING", "embedding"),
        ("RETRIEVER", "retrieval"),
        ("RERANKER", "reranker"),
        ("TOOL", "tool"),
        ("AGENT", "agent"),
        ("CHAIN", "step"),
        ("WORKFLOW", "workflow"),
        ("MEMORY", "memory"),
        ("GUARDRAIL", "guardrail"),
        ("UNKNOWN", "step"),
    ],
)
def test_a_span_type_names_its_kind_with_and_without_quotes(said: str, kind: str) -> None:
    assert mapped({"mlflow.spanType": f'"{said}"'}).kind == kind
    assert mapped({"mlflow.spanType": said}).kind == kind


def test_a_tool_shows_its_inputs_and_outputs() -> None:
    said = quoted(spanType="TOOL", spanInputs={"city": "Paris"}, spanOutputs="21C")
    row = mapped(said, name="get_weather")
    assert (row.input_preview, row.output_preview) == ('{"city": "Paris"}', "21C")
    assert payload_of(wire(said, name="get_weather"))["tool"] == {
        "name": "get_weather",
        "arguments": {"city": "Paris"},
        "result": "21C",
    }


def test_plain_text_loses_its_quotes() -> None:
    row = mapped(quoted(spanType="CHAIN", spanInputs='say "hi"', spanOutputs="hello"))
    assert (row.input_preview, row.output_preview) == ('say "hi"', "hello")


def test_what_a_retriever_found_is_documents() -> None:
    said = quoted(
        spanType="RETRIEVER", spanOutputs=[{"page_content": "sun", "metadata": {"doc_uri": "u"}, "id": "d"}]
    )
    assert payload_of(wire(said))["documents"] == [
        {"rank": 1, "id": "d", "score": None, "text": "sun", "metadata": {"doc_uri": "u"}}
    ]


@pytest.mark.parametrize("value", ['"', '"LLM', 'LLM"', '"\\ud800"', '""', "{}", "[", 5, None, ["LLM"]])
def test_a_value_that_is_no_json_is_no_reason_to_stumble(value: Any) -> None:
    row = mapped({"mlflow.spanType": value, "mlflow.llm.model": value, "mlflow.spanInputs": value})
    assert row.kind == "step"
