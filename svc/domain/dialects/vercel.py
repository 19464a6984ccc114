"""Vercel's AI SDK: its own `ai.*` keys, from version 3 on, also where version 7 adds them to the GenAI ones.

Owns: the keys under `ai.*`. Called by the table of dialects. An outer span (`ai.generateText`) repeats the
calls below it and is a step; `ai.generateText.doGenerate` is the call. What version 7 says in GenAI keys is
left to them, its `agent_step` too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.dialects.usage_objects import writes_in
from svc.domain.spans.messages import conversation
from svc.domain.spans.span import Kind
from svc.domain.spans.values import (
    decoded,
    milliseconds,
    present,
    present_unquoted,
    text,
    text_unquoted,
    unquoted,
)

OPERATIONS: Final[Mapping[str, Kind]] = {
    "ai.generateText": "step",
    "ai.generateText.doGenerate": "llm",
    "ai.streamText": "step",
    "ai.streamText.doStream": "llm",
    "ai.generateObject": "step",
    "ai.generateObject.doGenerate": "llm",
    "ai.streamObject": "step",
    "ai.streamObject.doStream": "llm",
    "ai.streamUI": "step",
    "ai.embed": "step",
    "ai.embed.doEmbed": "embedding",
    "ai.embedMany": "step",
    "ai.embedMany.doEmbed": "embedding",
    "ai.rerank": "step",
    "ai.rerank.doRerank": "reranker",
    "ai.toolCall": "tool",
}

_METADATA_OF_PROVIDER: Final = "ai.response.providerMetadata"
_SESSIONS: Final = ("sessionId", "session_id", "conversationId", "chatId", "threadId")
_USERS: Final = ("userId", "user_id")
_METADATA: Final = ("ai.telemetry.metadata.", "ai.settings.context.")


def _kind(value: Any) -> Kind | None:
    # `operation.name` has the function's id after the operation.
    return OPERATIONS.get(value.partition(" ")[0]) if type(value) is str else None


def _metadata(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(prefix + name for prefix in _METADATA for name in names)


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """What was embedded, texts that are each written as JSON, and which part is cached for an hour."""
    values = attributes.get("ai.values")
    if type(values) is list and values:
        yield "input_text", text_unquoted(values[0])
    metadata = attributes.get(_METADATA_OF_PROVIDER)
    if (
        type(metadata) is str
        and "ephemeral_1h" in metadata
        and type(by_provider := decoded(metadata)) is dict
    ):
        anthropic = by_provider.get("anthropic")
        usage = anthropic.get("usage") if type(anthropic) is dict else None
        creation = usage.get("cache_creation") if type(usage) is dict else None
        if type(creation) is dict:
            yield "cache_write_1h_tokens", writes_in(creation)[1]


def input_messages(span: WireSpan) -> list[Any] | None:
    """The prompt: as the model got it, else as the caller gave it."""
    sent_messages = decoded(span.attributes.get("ai.prompt.messages"))
    if type(sent_messages) is list:
        return sent_messages or None
    prompt = decoded(span.attributes.get("ai.prompt"))
    if type(prompt) is not dict:
        return None
    messages = conversation(prompt.get("messages")) or conversation(prompt.get("prompt")) or []
    if type(question := prompt.get("prompt")) is str and question:
        messages = [*messages, {"role": "user", "content": question}]
    if (instructions := present(prompt.get("system"))) is not None:
        messages = [{"role": "system", "content": instructions}, *messages]
    return messages or None


def output_messages(span: WireSpan) -> list[Any] | None:
    """The answer, put together from what each key holds of it."""
    attributes = span.attributes
    content: list[Any] = []
    if (reasoning := text(attributes.get("ai.response.reasoning"))) is not None:
        content.append({"type": "reasoning", "text": reasoning})
    for key in ("ai.response.text", "ai.result.text", "ai.response.object", "ai.result.object"):
        if (answer := present(attributes.get(key))) is not None:
            content.append({"type": "text", "text": answer} if type(answer) is str else answer)
            break
    for key in ("ai.response.toolCalls", "ai.result.toolCalls"):
        calls = decoded(attributes.get(key))
        if type(calls) is list and calls:
            content += [{**call, "type": "tool-call"} for call in calls if type(call) is dict]
            break
    files = decoded(attributes.get("ai.response.files"))
    if type(files) is list:
        content += [{"type": "file", **file} for file in files if type(file) is dict]
    return [{"role": "assistant", "content": content}] if content else None


def documents(span: WireSpan) -> list[Any] | None:
    """What a reranker made of the documents it was given."""
    ranking = span.attributes.get("ai.ranking")
    if type(ranking) is not list:
        return None
    sent_documents = span.attributes.get("ai.documents")
    documents = sent_documents if type(sent_documents) is list else []
    ranked = []
    for entry in ranking:
        if type(opened := decoded(entry)) is dict:
            index = opened.get("originalIndex", opened.get("index"))
            if type(index) is int and 0 <= index < len(documents):
                opened = {"document": unquoted(documents[index]), **opened}
            ranked.append(opened)
    return ranked or None


def _since_start(value: Any, span: WireSpan) -> float | None:
    return milliseconds(value, 1)


DIALECT: Final = Dialect(
    name="vercel",
    title="Vercel AI SDK",
    keys={
        "kind": ("ai.operationId", "operation.name"),
        "response_model": ("ai.response.model",),
        "request_model": ("ai.model.id",),
        "provider": ("ai.model.provider",),
        "response_id": ("ai.response.id",),
        "session_id": _metadata(_SESSIONS),
        "user_id": _metadata(_USERS),
        "named": ("ai.telemetry.functionId",),
        "tool_name": ("ai.toolCall.name",),
        "tool_call_id": ("ai.toolCall.id",),
        "tool_arguments": ("ai.toolCall.args", "ai.toolCall.input"),
        "tool_result": ("ai.toolCall.result", "ai.toolCall.output"),
        "input_tokens": ("ai.usage.inputTokens", "ai.usage.promptTokens", "ai.usage.tokens"),
        "output_tokens": ("ai.usage.outputTokens", "ai.usage.completionTokens"),
        "cache_read_tokens": ("ai.usage.inputTokenDetails.cacheReadTokens", "ai.usage.cachedInputTokens"),
        "cache_write_tokens": ("ai.usage.inputTokenDetails.cacheWriteTokens",),
        "reasoning_tokens": ("ai.usage.outputTokenDetails.reasoningTokens", "ai.usage.reasoningTokens"),
        "input_text": ("ai.value",),
    },
    readers={
        "ai.operationId": _kind,
        "operation.name": _kind,
        "ai.toolCall.result": present_unquoted,
        "ai.value": text_unquoted,
    },
    derive=derive,
    derives=("input_text", "cache_write_1h_tokens"),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=("ai.prompt.messages", "ai.prompt"),
    output_keys=(
        "ai.response.reasoning",
        "ai.response.text",
        "ai.response.object",
        "ai.response.toolCalls",
        "ai.response.files",
        "ai.result.text",
        "ai.result.object",
        "ai.result.toolCalls",
    ),
    details={
        "agent": ("ai.telemetry.functionId",),
        "finish_reasons": ("ai.response.finishReason", "ai.finishReason"),
        "time_to_first_token_ms": ("ai.response.msToFirstChunk", "ai.stream.msToFirstChunk"),
        "parameters": ("ai.settings.*",),
    },
    detail_readers={
        "ai.response.msToFirstChunk": _since_start,
        "ai.stream.msToFirstChunk": _since_start,
    },
    documents=documents,
    counting="inclusive",
    beside_genai=True,
    marks=(
        "ai.prompt",
        "ai.prompt.messages",
        "ai.response.text",
        "ai.response.object",
        "ai.response.toolCalls",
        "ai.result.text",
        "ai.result.object",
        "ai.result.toolCalls",
        "ai.values",
        "ai.ranking",
    ),
    usage_prefixes=("ai.usage.",),
    reads=(
        "ai.prompt*",
        "ai.response.*",
        "ai.values",
        "ai.ranking",
        "ai.documents",
        "ai.settings.*",
        "ai.telemetry.*",
        "operation.name",
        "resource.name",
    ),
)
