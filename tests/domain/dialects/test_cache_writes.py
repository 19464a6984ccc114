"""What is written to the cache for an hour is told apart from other writes, however a client says it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from svc.domain.dialects import is_usage
from svc.domain.intake.rework import repriced
from tests.domain import BOOK, buckets, mapped

MODEL = "claude-sonnet-4-5"
#: 20 in, 60 from the cache, 40 written to it, 30 of them for an hour; 30 out.
SPLIT = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 30}
ANTHROPIC = {
    "input_tokens": 20,
    "cache_read_input_tokens": 60,
    "cache_creation_input_tokens": 40,
    "cache_creation": SPLIT,
    "output_tokens": 30,
}
CHAT: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": MODEL,
}
TOTALS: dict[str, Any] = {**CHAT, "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 30}
CACHED = {"gen_ai.usage.cache_read.input_tokens": 60, "gen_ai.usage.cache_creation.input_tokens": 40}

SPANS: dict[str, dict[str, Any]] = {
    "Anthropic's own object": {**CHAT, "anything.usage": json.dumps(ANTHROPIC)},
    "the name of the object as a key": {
        **TOTALS,
        **CACHED,
        "gen_ai.usage.cache_creation.ephemeral_1h_input_tokens": 30,
    },
    "Anthropic's SDK": {
        **TOTALS,
        **CACHED,
        "anthropic.usage.cache_creation.ephemeral_5m_input_tokens": 10,
        "anthropic.usage.cache_creation.ephemeral_1h_input_tokens": 30,
    },
    "pydantic-ai": {**TOTALS, **CACHED, "gen_ai.usage.details.ephemeral_1h_input_tokens": 30},
    # LangChain takes the count of all writes back, so that nothing is counted twice.
    "LangChain": {
        **CHAT,
        "x.usage_metadata": json.dumps(
            {
                "input_tokens": 120,
                "output_tokens": 30,
                "total_tokens": 150,
                "input_token_details": {"cache_read": 60, "cache_creation": 0, **SPLIT},
            }
        ),
    },
    "LangSmith": {
        **CHAT,
        "langsmith.span.kind": "llm",
        "langsmith.usage_metadata": json.dumps(
            {
                "input_tokens": 120,
                "output_tokens": 30,
                "input_token_details": {"cache_read": 60, **SPLIT},
            }
        ),
    },
    "LangSmith, Claude Agent SDK": {
        **CHAT,
        "langsmith.span.kind": "llm",
        "langsmith.usage_metadata": json.dumps(
            {
                "input_tokens": 120,
                "output_tokens": 30,
                "input_token_details": {
                    "cache_read": 60,
                    "ephemeral_5m_input_tokens": 10,
                    "ephemeral_1hr_input_tokens": 30,
                },
            }
        ),
    },
    "Langfuse, parts beside their whole": {
        **CHAT,
        "langfuse.observation.type": "generation",
        "langfuse.observation.usage_details": json.dumps(
            {
                "input": 20,
                "output": 30,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 40,
                "cache_creation_ephemeral_5m_input_tokens": 10,
                "cache_creation_ephemeral_1h_input_tokens": 30,
            }
        ),
    },
    "Langfuse, parts alone": {
        **CHAT,
        "langfuse.observation.type": "generation",
        "langfuse.observation.usage_details": json.dumps(
            {
                "input": 20,
                "output": 30,
                "input_cache_read": 60,
                "input_cache_creation_5m": 10,
                "input_cache_creation_1h": 30,
            }
        ),
    },
    "MLflow": {
        **CHAT,
        "mlflow.spanType": '"CHAT_MODEL"',
        "mlflow.chat.tokenUsage": json.dumps(
            {
                "input_tokens": 120,
                "output_tokens": 30,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 40,
                "cache_creation_input_tokens_above_1hr": 30,
            }
        ),
    },
    "LiteLLM": {
        **TOTALS,
        "metadata.usage_object": json.dumps(
            {
                "prompt_tokens": 120,
                "completion_tokens": 30,
                "prompt_tokens_details": {
                    "cached_tokens": 60,
                    "cache_creation_tokens": 40,
                    "cache_creation_token_details": SPLIT,
                },
            }
        ),
    },
    "Vercel AI SDK": {
        **TOTALS,
        **CACHED,
        "ai.response.text": "Sunny.",
        "ai.response.providerMetadata": json.dumps({"anthropic": {"usage": ANTHROPIC}}),
    },
    "Bedrock": {
        **CHAT,
        "bedrock.usage": json.dumps(
            {
                "inputTokens": 20,
                "outputTokens": 30,
                "totalTokens": 150,
                "cacheReadInputTokens": 60,
                "cacheWriteInputTokens": 40,
                "cacheDetails": [{"ttl": "1h", "inputTokens": 30}, {"ttl": "5m", "inputTokens": 10}],
            }
        ),
    },
}


@pytest.mark.parametrize("client", SPANS)
def test_a_span_that_says_the_split_is_priced_by_it_to_the_digit(client: str) -> None:
    row = mapped(SPANS[client])
    assert (buckets(row), row.cache_write_1h_tokens) == ((20, 30, 60, 40, None), 30)
    # Per million: 3.75 for five minutes, 6 for an hour.
    assert row.cache_write_cost == (10 * Decimal("3.75") + 30 * Decimal(6)) / 10**6
    assert row.total_cost == (
        20 * Decimal(3) + 60 * Decimal("0.3") + 10 * Decimal("3.75") + 30 * Decimal(6) + 30 * Decimal(15)
    ) / Decimal(10**6)
    # Later prices need the split, too.
    assert repriced(row, BOOK).total_cost == row.total_cost


def test_writes_of_which_nothing_is_said_are_those_of_five_minutes() -> None:
    row = mapped({**TOTALS, **CACHED})
    assert (row.cache_write_tokens, row.cache_write_1h_tokens) == (40, None)
    assert row.cache_write_cost == 40 * Decimal("3.75") / 10**6


def test_the_split_is_shown_as_what_the_exporter_said_of_usage() -> None:
    assert is_usage("gen_ai.usage.cache_creation.ephemeral_1h_input_tokens")
    assert is_usage("anthropic.usage.cache_creation.ephemeral_1h_input_tokens")
