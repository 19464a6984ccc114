"""Laws of reading Genkit, whose actions hold what they were given and gave as JSON under two keys."""

from __future__ import annotations

import json
from typing import Any

import pytest

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, mapped, wire
from tests.domain.dialects.clients import calls, span

QUESTION = {"role": "user", "content": [{"text": "Weather in Paris?"}]}
REQUEST = {"toolRequest": {"name": "get_weather", "ref": "call_1", "input": {"city": "Paris"}}}
#: One call of the stand-in: 120 in, 100 of them cached, 30 out, 12 of them thought.
CALL = (20, 18, 100, None, 12)


def action(subtype: str, name: str, given: Any, answer: Any) -> dict[str, Any]:
    """The attributes of an action."""
    return {
        "genkit:type": "action",
        "genkit:metadata:subtype": subtype,
        "genkit:name": name,
        "genkit:input": json.dumps(given),
        "genkit:output": json.dumps(answer),
        "genkit:state": "success",
    }


def answer(*parts: Any, usage: Any = None, **beside: Any) -> dict[str, Any]:
    """A model's answer."""
    message = {"role": "model", "content": list(parts)}
    return {"message": message, "finishReason": "stop", "usage": usage or {}, **beside}


GIVEN = {"messages": [{"role": "system", "content": [{"text": "Be brief."}]}, QUESTION]}


def test_a_model_is_read_whole() -> None:
    attributes = action("model", "openai/gpt-4o", GIVEN, answer({"reasoning": "hm"}, {"text": "Sunny."}))
    row = mapped(attributes, name="openai/gpt-4o")
    assert (row.kind, row.provider, row.model_id) == ("llm", "openai", "gpt-4o")
    assert (row.input_preview, row.output_preview) == ("Weather in Paris?", "Sunny.")
    payload = payload_of(wire(attributes))
    assert [message["role"] for message in payload["input"]] == ["system", "user"]
    assert payload["output"][0]["parts"] == [
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "Sunny."},
    ]


@pytest.mark.parametrize(
    ("name", "usage", "beside"),
    [
        # For JavaScript, OpenAI's plugin counts the totals alone; the provider's answer stands beside them.
        (
            "openai/gpt-4o",
            {"inputTokens": 120, "outputTokens": 30, "totalTokens": 150},
            {
                "raw": {
                    "usage": {
                        "prompt_tokens": 120,
                        "completion_tokens": 30,
                        "prompt_tokens_details": {"cached_tokens": 100},
                        "completion_tokens_details": {"reasoning_tokens": 12},
                    }
                }
            },
        ),
        # For Go it counts the parts within them.
        (
            "openai/gpt-4o",
            {
                "inputTokens": 120,
                "outputTokens": 30,
                "totalTokens": 150,
                "thoughtsTokens": 12,
                "cachedContentTokens": 100,
            },
            {},
        ),
        # Google's counts what was thought beside the answer, with the provider's own usage and without.
        (
            "googleai/gemini-2.5-flash",
            {
                "inputTokens": 120,
                "outputTokens": 18,
                "totalTokens": 150,
                "thoughtsTokens": 12,
                "cachedContentTokens": 100,
            },
            {},
        ),
        (
            "googleai/gemini-2.5-flash",
            {
                "inputTokens": 120,
                "outputTokens": 18,
                "totalTokens": 150,
                "thoughtsTokens": 12,
                "cachedContentTokens": 100,
            },
            {
                "custom": {
                    "usageMetadata": {
                        "promptTokenCount": 120,
                        "cachedContentTokenCount": 100,
                        "candidatesTokenCount": 18,
                        "thoughtsTokenCount": 12,
                        "totalTokenCount": 150,
                    }
                }
            },
        ),
    ],
)
def test_usage_is_counted_once_whoever_counts_it(name: str, usage: Any, beside: Any) -> None:
    row = mapped(action("model", name, GIVEN, answer({"text": "Sunny."}, usage=usage, **beside)))
    assert buckets(row) == CALL
    assert row.provider == ("openai" if name.startswith("openai") else "google")
    assert row.total_cost is not None


def test_a_tool_that_an_answer_asks_for_and_a_span_runs_is_one_call() -> None:
    model = span(2, "openai/gpt-4o", action("model", "openai/gpt-4o", GIVEN, answer(REQUEST)), below=1)
    attributes = action("tool", "get_weather", {"city": "Paris"}, "sunny")
    tool = span(3, "get_weather", attributes, below=1)
    flow = span(1, "forecaster", action("flow", "forecaster", "Weather in Paris?", "Sunny."))
    assert calls(flow, model, tool) == [("get_weather", "ok", None)]
    assert payload_of(wire(attributes))["tool"] == {
        "name": "get_weather",
        "arguments": {"city": "Paris"},
        "result": "sunny",
    }


def test_a_flow_is_a_workflow_with_what_it_was_given_and_gave() -> None:
    row = mapped(action("flow", "forecaster", "Weather in Paris?", "Sunny."), name="forecaster")
    assert (row.kind, row.input_preview, row.output_preview) == ("workflow", "Weather in Paris?", "Sunny.")


@pytest.mark.parametrize("output", ["", "{", '"usage', '{"usage": 7}', '{"raw": {"usage": []}}', "[]", "7"])
def test_an_output_that_is_no_answer_says_nothing(output: str) -> None:
    row = mapped({**action("model", "openai/gpt-4o", GIVEN, None), "genkit:output": output})
    assert (row.kind, row.output_tokens) == ("llm", None)
