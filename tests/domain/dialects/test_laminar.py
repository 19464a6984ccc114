"""Laws of reading Laminar."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, mapped, wire

CALL = {
    "lmnr.span.type": "LLM",
    "lmnr.span.path": ["trip", "openai.chat"],
    "lmnr.association.properties.session_id": "s",
    "lmnr.association.properties.user_id": "u",
    "lmnr.span.input": json.dumps([{"role": "user", "content": "hi"}]),
    "lmnr.span.output": json.dumps(
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "name": "look", "arguments": {}}]}
    ),
    "gen_ai.system": "anthropic",
    "gen_ai.request.model": "claude-sonnet-4-5",
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 30,
    "gen_ai.usage.cache_read_input_tokens": 60,
    "gen_ai.usage.cache_creation_input_tokens": 40,
    "gen_ai.usage.reasoning_output_tokens": 12,
    "gen_ai.usage.input_cost": 0.1,
    "gen_ai.usage.output_cost": 0.2,
    "gen_ai.usage.cost": 0.3,
}


def test_a_model_call_is_read_whole() -> None:
    row = mapped(CALL)
    assert (row.kind, row.provider, row.session_id, row.user_id) == ("llm", "anthropic", "s", "u")
    assert buckets(row) == (20, 18, 60, 40, 12)
    assert (row.input_cost, row.output_cost, row.total_cost) == (
        Decimal("0.1"),
        Decimal("0.2"),
        Decimal("0.3"),
    )
    assert (row.input_preview, row.output_preview) == ("hi", "look({})")
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("look", "c")]


def test_costs_by_direction_make_a_total() -> None:
    row = mapped({key: value for key, value in CALL.items() if key != "gen_ai.usage.cost"})
    assert row.total_cost == Decimal("0.3")


@pytest.mark.parametrize(
    ("said", "kind"),
    [("LLM", "llm"), ("CACHED", "llm"), ("TOOL", "tool"), ("DEFAULT", "step"), ("EVALUATOR", "step")],
)
def test_a_span_type_names_its_kind(said: str, kind: str) -> None:
    assert mapped({"lmnr.span.type": said}).kind == kind


def test_a_default_type_leaves_the_kind_to_others() -> None:
    assert mapped({"lmnr.span.type": "DEFAULT", "gen_ai.operation.name": "invoke_agent"}).kind == "agent"


def test_a_tool_shows_its_input_and_output() -> None:
    said = {
        "lmnr.span.type": "TOOL",
        "lmnr.span.input": '{"city": "Paris"}',
        "lmnr.span.output": '"21C"',
    }
    row = mapped(said, name="look")
    assert (row.input_preview, row.output_preview) == ('{"city": "Paris"}', "21C")
    payload = payload_of(wire(said, name="look"))
    assert payload["tool"] == {"name": "look", "arguments": {"city": "Paris"}, "result": "21C"}
