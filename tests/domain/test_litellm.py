"""Laws of reading LiteLLM, SDK and proxy."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from svc.domain.payload import payload_of
from tests.domain import buckets, mapped, wire

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
