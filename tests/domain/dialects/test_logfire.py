"""Laws of reading Logfire's own integrations."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, mapped, wire

USAGE = {
    "prompt_tokens": 120,
    "completion_tokens": 30,
    "prompt_tokens_details": {"cached_tokens": 100},
    "completion_tokens_details": {"reasoning_tokens": 12},
}
CALL = {
    "logfire.msg_template": "Chat Completion with {request_data[model]!r}",
    "logfire.msg": "Chat Completion with 'gpt-4o'",
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 30,
}


@pytest.mark.parametrize("key", ["gen_ai.usage.raw", "usage"])
def test_cached_and_reasoning_tokens_stand_in_the_providers_object(key: str) -> None:
    row = mapped({**CALL, key: json.dumps(USAGE)}, name=CALL["logfire.msg_template"])
    assert buckets(row) == (20, 18, 100, None, 12)
    assert (row.total_cost, row.cost_source) == (Decimal("0.000475"), "inferred")


def test_usage_that_sums_up_the_calls_below_is_none_of_its_own() -> None:
    row = mapped(
        {
            "logfire.msg_template": "Turn {turn} for agent weather",
            "sdk_span_type": "turn",
            "agent_name": "weather",
            "usage": json.dumps({"input_tokens": 120, "cached_input_tokens": 100}),
        }
    )
    assert (row.kind, buckets(row)) == ("step", (None, None, None, None, None))


def test_the_message_is_the_name_and_the_template_the_call_site() -> None:
    template = CALL["logfire.msg_template"]
    row = mapped(CALL, name=template)
    assert row.name == "Chat Completion with 'gpt-4o'"
    other = mapped({**CALL, "logfire.msg": "Chat Completion with 'gpt-4o-mini'"}, name=template)
    assert row.call_site_id == other.call_site_id
    assert mapped({"logfire.msg": "x"}, name="agent run").name == "agent run"


@pytest.mark.parametrize(
    ("template", "kind"),
    [
        ("OpenAI Agents trace: {name}", "workflow"),
        ("Agent run: {name!r}", "agent"),
        ("Function: {name}", "tool"),
        ("Handoff: {from_agent} → {to_agent}", "handoff"),
        ("Guardrail {name!r} {triggered=}", "guardrail"),
        ("Saving {input}", "step"),
    ],
)
def test_a_template_names_its_kind(template: str, kind: str) -> None:
    assert mapped({"logfire.msg_template": template}).kind == kind


def test_a_function_is_a_call_of_a_tool() -> None:
    said = {
        "logfire.msg_template": "Function: {name}",
        "name": "look",
        "input": '{"city": "Paris"}',
        "output": "sunny",
        "mcp_data": "null",
    }
    row = mapped(said)
    assert (row.kind, row.input_preview, row.output_preview) == ("tool", '{"city": "Paris"}', "sunny")
    assert [call.name for call in row.tool_calls] == ["look"]
    assert payload_of(wire(said))["tool"] == {
        "name": "look",
        "arguments": {"city": "Paris"},
        "result": "sunny",
    }
    assert mapped({**said, "mcp_data": '{"server": "files"}'}).kind == "mcp"


def test_a_generations_answer_is_no_part_of_its_input() -> None:
    asked = [{"role": "user", "content": "Weather?"}]
    answered = [{"role": "assistant", "content": "Sunny."}]
    said: dict[str, Any] = {
        **CALL,
        "input": json.dumps(asked),
        "output": json.dumps(answered),
        "request_data": json.dumps({"model": "gpt-4o", "messages": asked + answered}),
    }
    row = mapped(said)
    assert (row.input_preview, row.output_preview) == ("Weather?", "Sunny.")
    payload = payload_of(wire(said))
    assert [message["role"] for message in payload["input"]] == ["user"]
    assert [message["role"] for message in payload["output"]] == ["assistant"]


def test_a_runs_group_is_the_session_and_a_scrubbed_session_is_none() -> None:
    run = {"logfire.msg_template": "OpenAI Agents trace: {name}", "group_id": "s"}
    assert mapped(run).session_id == "s"
    assert mapped({**run, "group_id": "null"}).session_id is None
    assert mapped({**run, "session.id": "[Scrubbed due to 'session']"}).session_id == "s"


def test_the_common_keys_mean_nothing_without_a_template() -> None:
    row = mapped({"name": "look", "input": "a", "output": "b", "usage": json.dumps(USAGE)}, name="x")
    assert (row.kind, row.name, row.input_preview, row.output_preview) == ("step", "x", None, None)
