"""Laws of reading OpenLIT."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, event, mapped, wire

CALL: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.system": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.request.user": "u",
    "gen_ai.sdk.version": "3.51.0",
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 30,
    "gen_ai.usage.prompt_tokens_details.cached_tokens": 100,
    "gen_ai.usage.completion_tokens_details.reasoning_tokens": 12,
    "gen_ai.usage.cost": 0.5,
    "gen_ai.server.time_to_first_token": 0.25,
    "gen_ai.tool.name": "look, find",
}


def test_a_call_is_read_whole_and_the_tools_it_asks_for_make_it_no_tool() -> None:
    said = (
        event("gen_ai.content.prompt", **{"gen_ai.prompt": "user: hi"}),
        event("gen_ai.content.completion", **{"gen_ai.completion": "hello"}),
    )
    row = mapped(CALL, events=said)
    assert (row.kind, row.user_id, buckets(row)) == ("llm", "u", (20, 18, 100, None, 12))
    assert (row.total_cost, row.cost_source) == (Decimal("0.5"), "provided")
    assert (row.input_preview, row.output_preview) == ("user: hi", "hello")
    payload = payload_of(wire(CALL))
    assert payload["time_to_first_token_ms"] == 250
    assert "tool" not in payload


def test_content_on_attributes_is_read_too() -> None:
    row = mapped({**CALL, "gen_ai.content.prompt": "hi", "gen_ai.content.completion": "hello"})
    assert (row.input_preview, row.output_preview) == ("hi", "hello")


@pytest.mark.parametrize(
    ("provider", "version", "kept"),
    [
        ("anthropic", True, (120, 30, 60, 40, None)),
        ("aws.bedrock", True, (120, 30, 60, 40, None)),
        ("openai", True, (20, 30, 60, 40, None)),
        # Not OpenLIT's: instrumentations count inclusively.
        ("anthropic", False, (20, 30, 60, 40, None)),
    ],
)
def test_the_input_of_anthropics_models_leaves_out_the_cache(
    provider: str, version: bool, kept: tuple[int | None, ...]
) -> None:
    said = {
        "gen_ai.provider.name": provider,
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 30,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 40,
    }
    row = mapped({**said, "gen_ai.sdk.version": "1"} if version else said)
    assert buckets(row) == kept


@pytest.mark.parametrize(
    ("operation", "kind"),
    [("query", "retrieval"), ("SEARCH", "retrieval"), ("UPSERT", "step"), (None, "step")],
)
def test_only_a_search_of_a_vector_database_is_a_retrieval(operation: str | None, kind: str) -> None:
    said = {
        "gen_ai.operation.name": "vectordb",
        "db.sdk.version": "1",
        "db.operation.name": operation,
        "db.query.text": "sun",
    }
    row = mapped(said)
    assert (row.kind, row.input_preview) == (kind, "sun")


def test_a_workflow_shows_what_it_was_given() -> None:
    row = mapped(
        {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": "trip",
            "gen_ai.workflow.input": "Paris",
            "gen_ai.workflow.output": "21C",
        }
    )
    assert (row.kind, row.input_preview, row.output_preview) == ("workflow", "Paris", "21C")
