"""What the exporter of each dialect writes, for laws that hold whatever dialect a span speaks.

`CONVERSATIONS` encodes two lists of messages, `USAGES` the usage of one call, `WRAPPERS` the span around
calls that repeats their usage. Messages are OpenAI's: role, content and, where there are any, `tool_calls`
with id, name and arguments. Usage comes as inclusive totals: input, output, read, written and thought.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Attributes = dict[str, Any]
Messages = list[dict[str, Any]]


def spelled_out(prefix: str, messages: Messages, inner: str, call: tuple[str, str, str]) -> Attributes:
    said: Attributes = {}
    for i, message in enumerate(messages):
        for key in ("role", "content"):
            if key in message:
                said[f"{prefix}.{i}.{inner}{key}"] = message[key]
        for j, asked in enumerate(message.get("tool_calls", ())):
            for name, key in zip(("id", "name", "arguments"), call, strict=True):
                said[f"{prefix}.{i}.{inner}tool_calls.{j}.{key}"] = asked[name]
    return said


def openinference(given: Messages, answered: Messages) -> Attributes:
    call = ("tool_call.id", "tool_call.function.name", "tool_call.function.arguments")
    return {
        "openinference.span.kind": "LLM",
        **spelled_out("llm.input_messages", given, "message.", call),
        **spelled_out("llm.output_messages", answered, "message.", call),
    }


def openllmetry(given: Messages, answered: Messages) -> Attributes:
    call = ("id", "name", "arguments")
    return {
        "llm.request.type": "chat",
        **spelled_out("gen_ai.prompt", given, "", call),
        **spelled_out("gen_ai.completion", answered, "", call),
    }


def vercel(given: Messages, answered: Messages) -> Attributes:
    (answer,) = answered
    calls = [
        {"toolCallId": call["id"], "toolName": call["name"], "input": call["arguments"]}
        for call in answer.get("tool_calls", ())
    ]
    return {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.prompt.messages": json.dumps(given),
        "ai.response.text": answer["content"],
        "ai.response.toolCalls": json.dumps(calls),
    }


def google_adk(given: Messages, answered: Messages) -> Attributes:
    (answer,) = answered
    parts: list[Any] = [{"text": answer["content"]}]
    parts += [
        {"function_call": {"id": call["id"], "name": call["name"], "args": call["arguments"]}}
        for call in answer.get("tool_calls", ())
    ]
    contents = [{"role": message["role"], "parts": [{"text": message["content"]}]} for message in given]
    return {
        "gen_ai.operation.name": "generate_content",
        "gcp.vertex.agent.llm_request": json.dumps({"contents": contents}),
        "gcp.vertex.agent.llm_response": json.dumps({"content": {"role": "model", "parts": parts}}),
    }


def pydantic_ai(given: Messages, answered: Messages) -> Attributes:
    choice = [{"event.name": "gen_ai.choice", "message": message} for message in answered]
    return {"gen_ai.operation.name": "chat", "events": json.dumps([*given, *choice])}


def values(kind: Attributes, given_key: str, answered_key: str) -> Callable[[Messages, Messages], Attributes]:
    def encode(given: Messages, answered: Messages) -> Attributes:
        return {**kind, given_key: json.dumps(given), answered_key: json.dumps(answered)}

    return encode


CHAT = {"gen_ai.operation.name": "chat"}

CONVERSATIONS: dict[str, Callable[[Messages, Messages], Attributes]] = {
    "genai": values(CHAT, "gen_ai.input.messages", "gen_ai.output.messages"),
    "openinference": openinference,
    "openllmetry": openllmetry,
    "vercel": vercel,
    "google_adk": google_adk,
    "pydantic_ai": pydantic_ai,
    "langfuse": values(
        {"langfuse.observation.type": "generation"},
        "langfuse.observation.input",
        "langfuse.observation.output",
    ),
    "langsmith": values({"langsmith.span.kind": "llm"}, "gen_ai.prompt", "gen_ai.completion"),
    "mlflow": values({"mlflow.spanType": '"LLM"'}, "mlflow.spanInputs", "mlflow.spanOutputs"),
    "laminar": values({"lmnr.span.type": "LLM"}, "lmnr.span.input", "lmnr.span.output"),
    "openlit": values(CHAT, "gen_ai.content.prompt", "gen_ai.content.completion"),
}


def shared(
    given: Any, answered: Any, read: Any, written: Any, thought: Any, write: str = "cache_write.input_tokens"
) -> Attributes:
    return {
        "gen_ai.usage.input_tokens": given,
        "gen_ai.usage.output_tokens": answered,
        "gen_ai.usage.cache_read.input_tokens": read,
        f"gen_ai.usage.{write}": written,
        "gen_ai.usage.reasoning.output_tokens": thought,
    }


def openinference_usage(given: int, answered: int, read: int, written: int, thought: int) -> Attributes:
    return {
        "llm.token_count.prompt": given,
        "llm.token_count.completion": answered,
        "llm.token_count.prompt_details.cache_read": read,
        "llm.token_count.prompt_details.cache_write": written,
        "llm.token_count.completion_details.reasoning": thought,
    }


def openllmetry_usage(given: int, answered: int, read: int, written: int, thought: int) -> Attributes:
    return {
        "gen_ai.usage.prompt_tokens": given,
        "gen_ai.usage.completion_tokens": answered,
        "gen_ai.usage.cache_read_input_tokens": read,
        "gen_ai.usage.cache_creation_input_tokens": written,
        "llm.usage.reasoning_tokens": thought,
    }


def vercel_usage(given: int, answered: int, read: int, written: int, thought: int) -> Attributes:
    return {
        "ai.usage.inputTokens": given,
        "ai.usage.outputTokens": answered,
        "ai.usage.inputTokenDetails.cacheReadTokens": read,
        "ai.usage.inputTokenDetails.cacheWriteTokens": written,
        "ai.usage.outputTokenDetails.reasoningTokens": thought,
    }


def langfuse_usage(given: int, answered: int, read: int, written: int, thought: int) -> Attributes:
    details = {
        "input": given - read - written,
        "output": answered - thought,
        "input_cached_tokens": read,
        "input_cache_creation": written,
        "output_reasoning_tokens": thought,
        "total": given + answered,
    }
    return {"langfuse.observation.usage_details": json.dumps(details)}


def langsmith_usage(given: int, answered: int, read: int, written: int, thought: int) -> Attributes:
    return {
        "gen_ai.usage.input_tokens": given,
        "gen_ai.usage.output_tokens": answered,
        "gen_ai.usage.input_token_details": str({"cache_read": read, "cache_creation": written}),
        "gen_ai.usage.output_token_details": str({"reasoning": thought}),
    }


def mlflow_usage(given: int, answered: int, read: int, written: int, thought: int) -> Attributes:
    usage = {
        "input_tokens": given,
        "output_tokens": answered,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    }
    return {"mlflow.chat.tokenUsage": json.dumps(usage), "gen_ai.usage.reasoning_tokens": thought}


def claude_code_usage(given: int, answered: int, read: int, written: int, thought: int) -> Attributes:
    return {
        "input_tokens": given - read - written,
        "output_tokens": answered,
        "cache_read_tokens": read,
        "cache_creation_tokens": written,
        "gen_ai.usage.reasoning.output_tokens": thought,
    }


def earlier_adk_usage(given: int, answered: int, read: int, written: int, thought: int) -> Attributes:
    return {
        **shared(given, answered - thought, read, written, None),
        "gen_ai.usage.experimental.reasoning_tokens": thought,
    }


def openlit_usage(given: int, answered: int, read: int, written: int, thought: int) -> Attributes:
    return {
        "gen_ai.sdk.version": "1",
        "gen_ai.provider.name": "anthropic",
        **shared(given - read - written, answered, read, written, thought, "cache_creation.input_tokens"),
    }


Usage = Callable[[int, int, int, int, int], Attributes]

#: By dialect: how a call says that it is one, and its usage.
USAGES: dict[str, tuple[Attributes, Usage]] = {
    "genai": (CHAT, shared),
    "openinference": ({"openinference.span.kind": "LLM"}, openinference_usage),
    "openllmetry": ({"llm.request.type": "chat"}, openllmetry_usage),
    "vercel": ({"ai.operationId": "ai.streamText.doStream"}, vercel_usage),
    "langfuse": ({"langfuse.observation.type": "generation"}, langfuse_usage),
    "langsmith": ({"langsmith.span.kind": "llm"}, langsmith_usage),
    "mlflow": ({"mlflow.spanType": '"LLM"'}, mlflow_usage),
    "claude_code": ({"span.type": "llm_request"}, claude_code_usage),
    "google_adk": ({"gen_ai.operation.name": "generate_content"}, earlier_adk_usage),
    "openlit": (CHAT, openlit_usage),
    "laminar": ({"lmnr.span.type": "LLM"}, shared),
    "litellm": ({**CHAT, "litellm.call_id": "c"}, shared),
    "anthropic_sdk": ({**CHAT, "anthropic.request.id": "r"}, shared),
}

#: By dialect: the span around calls that says their usage once more.
WRAPPERS: dict[str, Attributes] = {
    "genai": {"gen_ai.operation.name": "invoke_agent"},
    "openinference": {"openinference.span.kind": "AGENT"},
    "openllmetry": {"traceloop.span.kind": "workflow"},
    "vercel": {"ai.operationId": "ai.streamText", "ai.model.id": "gpt-4o"},
    "langfuse": {"langfuse.observation.type": "agent"},
    "langsmith": {"langsmith.span.kind": "chain", "gen_ai.operation.name": "chain"},
    "mlflow": {"mlflow.spanType": '"AGENT"'},
    "claude_code": {"span.type": "interaction"},
    "google_adk": {"gen_ai.operation.name": "invoke_agent"},
    "openlit": {"gen_ai.operation.name": "invoke_workflow"},
    "laminar": {"lmnr.span.type": "DEFAULT", "gen_ai.operation.name": "invoke_agent"},
    "litellm": {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"},
    "anthropic_sdk": {"gen_ai.operation.name": "invoke_agent"},
    "pydantic_ai": {"agent_name": "weather", "model_name": "gpt-4o"},
}
