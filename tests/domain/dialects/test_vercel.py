"""Laws of reading Vercel's AI SDK: its own `ai.*` shape and the GenAI shape of version 7."""

from __future__ import annotations

import json
from typing import Any

import pytest

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, mapped, wire

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather in Paris?"}]},
    {
        "role": "assistant",
        "content": [
            {
                "type": "tool-call",
                "toolCallId": "call_0",
                "toolName": "get_weather",
                "input": {"city": "Paris"},
            }
        ],
    },
    {
        "role": "tool",
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "call_0",
                "toolName": "get_weather",
                "output": {"type": "json", "value": {"temp": 21}},
            }
        ],
    },
]

INNER = {
    "operation.name": "ai.generateText.doGenerate weather",
    "ai.operationId": "ai.generateText.doGenerate",
    "ai.telemetry.functionId": "weather",
    "ai.telemetry.metadata.sessionId": "s",
    "ai.telemetry.metadata.userId": "u",
    "ai.model.provider": "openai.responses",
    "ai.model.id": "gpt-4o",
    "ai.settings.temperature": 0.5,
    "ai.prompt.messages": json.dumps(MESSAGES),
    "ai.prompt.tools": ['{"type":"function","name":"get_weather"}'],
    "ai.response.text": "",
    "ai.response.reasoning": "hm",
    "ai.response.toolCalls": json.dumps(
        [{"toolCallId": "call_1", "toolName": "get_weather", "input": {"city": "Rome"}}]
    ),
    "ai.response.finishReason": "tool-calls",
    "ai.response.id": "chatcmpl-1",
    "ai.response.model": "gpt-4o-2024-08-06",
    "ai.response.msToFirstChunk": 120.5,
    "ai.usage.inputTokens": 120,
    "ai.usage.outputTokens": 30,
    "ai.usage.cachedInputTokens": 100,
    "ai.usage.outputTokenDetails.reasoningTokens": 12,
    "gen_ai.system": "openai.responses",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.response.finish_reasons": ["tool-calls"],
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.response.model": "gpt-4o-2024-08-06",
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 30,
}


def test_the_inner_span_is_the_call_and_is_read_whole() -> None:
    row = mapped(INNER, name="ai.generateText.doGenerate")
    assert (row.kind, row.provider, row.provided_model_name) == ("llm", "openai", "gpt-4o-2024-08-06")
    assert (row.session_id, row.user_id, row.response_id) == ("s", "u", "chatcmpl-1")
    assert buckets(row) == (20, 18, 100, None, 12)
    assert (row.input_preview, row.output_preview) == ("Weather in Paris?", 'get_weather({"city":"Rome"})')
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("get_weather", "call_1")]
    assert row.call_site_id == "unknown_service/weather/ai.generateText.doGenerate"
    payload = payload_of(wire(INNER))
    assert payload["input"][2]["parts"] == [
        {"type": "tool_call", "id": "call_0", "name": "get_weather", "arguments": {"city": "Paris"}}
    ]
    assert payload["input"][3]["parts"] == [
        {"type": "tool_result", "id": "call_0", "name": "get_weather", "result": {"temp": 21}}
    ]
    assert payload["output"] == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "text": "hm"},
                {"type": "tool_call", "id": "call_1", "name": "get_weather", "arguments": {"city": "Rome"}},
            ],
        }
    ]
    assert (payload["agent"], payload["finish_reasons"]) == ("weather", ["tool-calls"])
    assert (payload["time_to_first_token_ms"], payload["parameters"]) == (120.5, {"temperature": 0.5})


@pytest.mark.parametrize(
    "operation", ["ai.generateText", "ai.streamText", "ai.generateObject", "ai.embedMany"]
)
def test_an_outer_span_is_a_step_whatever_it_repeats(operation: str) -> None:
    row = mapped(
        {
            "ai.operationId": operation,
            "ai.model.id": "gpt-4o",
            "ai.prompt": json.dumps({"system": "Be brief.", "prompt": "Weather in Paris?"}),
            "ai.response.text": "21C",
            "ai.response.toolCalls": '[{"toolCallId": "a", "toolName": "t"}]',
            "ai.usage.inputTokens": 240,
        }
    )
    assert (row.kind, row.tool_calls, row.input_tokens) == ("step", (), 240)
    assert (row.input_preview, row.output_preview) == ("Weather in Paris?", "21C")


def test_the_prompt_of_an_outer_span_becomes_messages() -> None:
    prompt = {"system": "Be brief.", "messages": [{"role": "user", "content": "hi"}]}
    payload = payload_of(wire({"ai.operationId": "ai.generateText", "ai.prompt": json.dumps(prompt)}))
    assert [message["role"] for message in payload["input"]] == ["system", "user"]


def test_a_tools_span_is_read_whole() -> None:
    said = {
        "ai.operationId": "ai.toolCall",
        "ai.toolCall.name": "get_weather",
        "ai.toolCall.id": "call_1",
        "ai.toolCall.args": '{"city":"Paris"}',
        "ai.toolCall.result": '{"temp":21}',
    }
    row = mapped(said, name="ai.toolCall")
    assert (row.kind, [(call.name, call.call_id) for call in row.tool_calls]) == (
        "tool",
        [("get_weather", "call_1")],
    )
    assert payload_of(wire(said))["tool"] == {
        "name": "get_weather",
        "call_id": "call_1",
        "arguments": {"city": "Paris"},
        "result": {"temp": 21},
    }


def test_version_4_names_of_answer_and_usage_are_understood() -> None:
    row = mapped(
        {
            "ai.operationId": "ai.streamText.doStream",
            "ai.model.id": "gpt-4o",
            "ai.prompt.messages": '[{"role":"user","content":"hi"}]',
            "ai.result.text": "hello",
            "ai.finishReason": "stop",
            "ai.usage.promptTokens": 7,
            "ai.usage.completionTokens": float("nan"),
        }
    )
    assert (row.kind, row.output_preview, row.provided_model_name) == ("llm", "hello", "gpt-4o")
    assert buckets(row) == (7, None, None, None, None)


def test_an_object_is_an_answer() -> None:
    row = mapped({"ai.operationId": "ai.generateObject.doGenerate", "ai.response.object": '{"temp":21}'})
    assert row.output_preview == '{"temp":21}'


def test_an_embedding_shows_its_text_and_no_vector() -> None:
    said = {"ai.embedding": "[0.1]", "ai.embeddings": ["[0.1]"], "ai.usage.tokens": 5}
    outer = mapped({**said, "ai.operationId": "ai.embed", "ai.value": '"sunny"'})
    inner = mapped({**said, "ai.operationId": "ai.embed.doEmbed", "ai.values": ['"sunny"', '"rainy"']})
    assert (outer.kind, outer.input_preview) == ("step", "sunny")
    assert (inner.kind, inner.input_preview, inner.output_preview, inner.input_tokens) == (
        "embedding",
        "sunny",
        None,
        5,
    )


def test_a_ranking_shows_the_documents_it_ranked() -> None:
    said = {
        "ai.operationId": "ai.rerank.doRerank",
        "ai.documents": ['"rain"', '"sun"'],
        "ai.ranking": ['{"originalIndex": 1, "relevanceScore": 0.9}', '{"index": 0, "score": 0.1}', "x"],
    }
    assert mapped(said).kind == "reranker"
    assert payload_of(wire(said))["documents"] == [
        {"rank": 1, "id": "1", "score": 0.9, "text": "sun", "metadata": None},
        {"rank": 2, "id": "0", "score": 0.1, "text": "rain", "metadata": None},
    ]


def test_a_step_of_version_7_is_a_step_and_its_agent_an_agent() -> None:
    step: dict[str, Any] = {"gen_ai.operation.name": "agent_step"}
    assert mapped(step, name="step 1").kind == "step"
    said = {"gen_ai.operation.name": "invoke_agent", "ai.settings.context.sessionId": "s"}
    assert (mapped(said).kind, mapped(said).session_id) == ("agent", "s")
    payload = payload_of(wire({"gen_ai.client.operation.time_to_first_chunk": 0.25}))
    assert payload["time_to_first_token_ms"] == 250


@pytest.mark.parametrize(
    "kind", [{"ai.operationId": "ai.toolCall"}, {"gen_ai.operation.name": "execute_tool"}]
)
def test_a_text_that_a_tool_returned_is_shown_without_the_quotes_of_json(kind: dict[str, Any]) -> None:
    key = "ai.toolCall.result" if "ai.operationId" in kind else "gen_ai.tool.call.result"
    said = {**kind, key: '"sunny"'}
    assert (payload_of(wire(said))["output"], mapped(said).output_preview) == ("sunny", "sunny")
