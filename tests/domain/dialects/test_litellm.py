"""Laws of reading LiteLLM, SDK and proxy."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, mapped, wire
from tests.domain.dialects.clients import rolled, span

CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.response.model": "gpt-4o-2024-08-06",
    "gen_ai.response.time_to_first_chunk": 0.25,
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 30,
    "gen_ai.usage.cache_read.input_tokens": 100,
    "litellm.call_id": "c",
    "litellm.end_user.id": "u",
}


@pytest.mark.parametrize(
    "names",
    [
        ("litellm.cost.total", "litellm.cost.input", "litellm.cost.cache_read", "litellm.cost.output"),
        (
            "gen_ai.cost.total_cost",
            "gen_ai.cost.input_cost",
            "gen_ai.cost.cache_read_cost",
            "gen_ai.cost.output_cost",
        ),
    ],
)
def test_its_cost_is_kept_and_that_of_input_leaves_out_the_cache(names: tuple[str, ...]) -> None:
    row = mapped({**CALL, **dict(zip(names, (0.6, 0.1, 0.2, 0.3), strict=True))})
    assert (row.input_cost, row.cache_read_cost, row.output_cost, row.total_cost) == (
        Decimal("0.1"),
        Decimal("0.2"),
        Decimal("0.3"),
        Decimal("0.6"),
    )
    assert (row.cost_source, row.user_id, buckets(row)) == ("provided", "u", (20, 30, 100, None, None))
    assert payload_of(wire(CALL))["time_to_first_token_ms"] == 250


@pytest.mark.parametrize(("given", "tools"), [(0.000175, 0.0), (0.00005, 0.0), (0.000175, 0.0002)])
def test_the_cost_of_cached_tokens_is_there_once_whether_or_not_that_of_input_holds_it(
    given: float, tools: float
) -> None:
    said = {
        "gen_ai.cost.input_cost": given,
        "gen_ai.cost.output_cost": 0.00030000000000000003,
        "gen_ai.cost.cache_read_cost": 0.000125,
        "gen_ai.cost.tool_usage_cost": tools,
        "gen_ai.cost.original_cost": 0.00047500000000000005 + tools,
        # What was granted as a discount tells nothing of the parts.
        "gen_ai.cost.total_cost": 0.0002375,
    }
    row = mapped({**CALL, **said})
    assert (row.input_cost, row.cache_read_cost, row.output_cost) == (
        Decimal("0.00005"),
        Decimal("0.000125"),
        Decimal("0.0003"),
    )
    assert row.total_cost == Decimal("0.0002375")


@pytest.mark.parametrize("encode", [str, json.dumps])
def test_the_parts_of_usage_stand_in_the_providers_object(encode: Any) -> None:
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 12, "audio_tokens": None},
        "cache_creation_input_tokens": 40,
    }
    said = {key: value for key, value in CALL.items() if "cache_read" not in key}
    row = mapped({**said, "metadata.usage_object": encode(usage)})
    assert buckets(row) == (20, 18, 60, 40, 12)
    # What the span says by itself is heard first.
    assert buckets(mapped({**CALL, "metadata.usage_object": encode(usage)}))[2] == 100


def test_a_turn_of_tools_stands_beside_a_message_without_parts() -> None:
    hollow = [{"role": "assistant", "parts": [], "finish_reason": "tool_calls"}]
    said = {
        **CALL,
        "llm.request.type": "completion",
        "gen_ai.output.messages": json.dumps(hollow),
        "gen_ai.completion.0.function_call.name": "look",
        "gen_ai.completion.0.function_call.arguments": '{"city": "Paris"}',
    }
    row = mapped(said)
    assert ([call.name for call in row.tool_calls], row.output_preview) == (
        ["look"],
        'look({"city": "Paris"})',
    )
    assert payload_of(wire(said))["output"][0]["parts"] == [
        {"type": "tool_call", "id": None, "name": "look", "arguments": {"city": "Paris"}}
    ]
    alone = {**CALL, "gen_ai.output.messages": json.dumps(hollow)}
    assert payload_of(wire(alone))["output"] == hollow


@pytest.mark.parametrize(
    ("model", "provider"), [("openai/gpt-4o", "openai"), ("openrouter/openai/gpt-4o", "openrouter")]
)
def test_the_provider_stands_before_the_model_it_serves(model: str, provider: str) -> None:
    said = {**CALL, "gen_ai.provider.name": "", "litellm.provider.model": model}
    assert mapped(said).provider == provider
    assert mapped({**CALL, "litellm.provider.model": "azure/gpt-4o"}).provider == "openai"


@pytest.mark.parametrize(
    "said",
    [{"gen_ai.usage.cost": 0.5}, {"gen_ai.usage.cost": "0.5"}, {"hidden_params": '{"response_cost": 0.5}'}],
)
def test_a_total_alone_is_a_given_cost(said: dict[str, Any]) -> None:
    row = mapped({**CALL, **said})
    assert (row.total_cost, row.input_cost, row.cost_source) == (Decimal("0.5"), None, "provided")


def test_a_cost_that_is_no_number_is_inferred() -> None:
    for value in (float("nan"), "n/a", -1, [0.5]):
        row = mapped(
            {**CALL, "litellm.cost.total": value, "hidden_params": json.dumps({"response_cost": None})}
        )
        assert (row.total_cost, row.cost_source) == (Decimal("0.000475"), "inferred")


def test_a_guardrail_is_one() -> None:
    assert (
        mapped({"litellm.guardrail.name": "pii", "litellm.guardrail.status": "success"}).kind == "guardrail"
    )


def test_the_older_keys_name_the_request_by_its_function() -> None:
    assert mapped({"llm.request.type": "acompletion"}).kind == "llm"
    assert mapped({"llm.request.type": "aembedding"}).kind == "embedding"


def test_the_request_below_a_call_is_no_call_once_more() -> None:
    usage = str({"completion_tokens": 30, "prompt_tokens": 120, "total_tokens": 150})
    raw = {"llm.openai.model": "gpt-4o-2024-08-06", "llm.openai.usage": usage}
    call, request = span(1, "litellm_request", CALL), span(2, "raw_gen_ai_request", raw, below=1)
    trace = rolled(call, request)
    assert (trace.input_tokens, trace.cache_read_tokens, trace.output_tokens) == (20, 100, 30)
    assert trace.unpriced_spans == 0
    assert trace.total_cost is not None
