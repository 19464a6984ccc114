"""OpenInference: Arize's conventions, spoken by its instrumentations of some thirty libraries.

Owns: the keys under `openinference.*`, `llm.*`, `embedding.*`, `reranker.*`, `tool.*`, `input.*`, `output.*`,
and the messages that are spelled out over numbered keys. Called by the table of dialects. `tool.parameters`
is a tool's schema, not what it was called with, and is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found, indexed
from svc.domain.dialects.usage_objects import DETAILS, USAGE_CHARS, agreeing, opened
from svc.domain.spans.span import Kind
from svc.domain.spans.values import decoded, text

#: A CHAIN is any glue between calls, the outermost or not, so it is a step; UNKNOWN leaves it to other signs.
KINDS: Final[Mapping[str, Kind]] = {
    "LLM": "llm",
    "EMBEDDING": "embedding",
    "CHAIN": "step",
    "RETRIEVER": "retrieval",
    "RERANKER": "reranker",
    "TOOL": "tool",
    "AGENT": "agent",
    "GUARDRAIL": "guardrail",
    "EVALUATOR": "step",
    "PROMPT": "step",
}

#: A message of no other keys has no parts and calls nothing.
_FLAT: Final = frozenset({"role", "content", "name", "tool_call_id"})
_CALL_NAME: Final = "tool_call.function.name"
_GENERATIONS: Final = '{"generations":'
#: Haystack's answer is given as Python prints it, with the usage in its `meta`.
_PRINTED: Final = "'usage': {"
_OBJECT: Final = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}")
_PARAMETERS: Final = ("llm.invocation_parameters", "embedding.invocation_parameters")


class _Envelope(msgspec.Struct):
    """A provider's raw answer, told from any other object by its usage."""

    id: str
    usage: Any


class _Metadata(msgspec.Struct):
    id: str


class _Said(msgspec.Struct):
    response_metadata: _Metadata


class _Message(msgspec.Struct):
    kwargs: _Said


class _Generation(msgspec.Struct):
    message: _Message


class _LangChain(msgspec.Struct):
    """LangChain's result, which holds the provider's id of the answer; else its span and that of the
    provider's SDK below it are two calls.
    """

    generations: list[list[_Generation]]


_envelope: Final = msgspec.json.Decoder(_Envelope)
_langchain: Final = msgspec.json.Decoder(_LangChain)


def _kind(value: Any) -> Kind | None:
    return KINDS.get(value.upper()) if type(value) is str else None


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """The model of a failed call, which only its parameters name, and id and usage inside a raw answer."""
    if "response_model" not in fields and "request_model" not in fields:
        for key in _PARAMETERS:
            parameters = decoded(attributes.get(key))
            if type(parameters) is dict and (model := text(parameters.get("model"))) is not None:
                yield "request_model", model
                break
    answer = attributes.get("output.value")
    if fields.get("kind") != "llm" or type(answer) is not str:
        return
    if "cache_read_tokens" not in fields and _PRINTED in answer:
        yield from agreeing(_printed_usage(answer), fields)
    elif "response_id" not in fields:
        with suppress(msgspec.DecodeError, RecursionError, UnicodeError):
            yield from _inside(answer, fields)


def _inside(answer: str, fields: Found) -> Iterable[tuple[Field, Any]]:
    """Id and usage inside a raw answer, or the id inside LangChain's."""
    if answer.startswith(_GENERATIONS):
        generations = _langchain.decode(answer).generations
        if generations and generations[0]:
            yield "response_id", text(generations[0][0].message.kwargs.response_metadata.id)
    elif '"usage"' in answer:
        envelope = _envelope.decode(answer)
        yield "response_id", text(envelope.id)
        if "cache_read_tokens" not in fields and type(usage := envelope.usage) is dict:
            yield from agreeing(usage, fields)


def _printed_usage(answer: str) -> dict[str, Any]:
    """The last usage in a text: what stands before it may be the model's own words."""
    start = answer.rfind(_PRINTED) + len(_PRINTED) - 1
    printed = _OBJECT.match(answer, start, start + USAGE_CHARS)
    return {} if printed is None else opened(printed[0])


def _call(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "tool_call",
        "id": record.get("tool_call.id"),
        "name": record.get(_CALL_NAME),
        "arguments": record.get("tool_call.function.arguments"),
    }


def _message(message: dict[str, Any]) -> dict[str, Any]:
    if message.keys() <= _FLAT:
        return message
    calls = indexed(message, "tool_calls.")
    if contents := indexed(message, "contents."):
        # Calls may stand among the contents, and once more beside them.
        message["content"] = [
            _call(part)
            if _CALL_NAME in part
            else {key.removeprefix("message_content."): value for key, value in part.items()}
            for part in contents
            if not (calls and _CALL_NAME in part)
        ]
    if calls:
        message["tool_calls"] = [_call(call) for call in calls]
    elif "function_call_name" in message:
        message["tool_calls"] = [
            {
                "name": message["function_call_name"],
                "arguments": message.get("function_call_arguments_json"),
            }
        ]
    return message


def _messages(span: WireSpan, prefix: str) -> list[Any] | None:
    messages = [_message(message) for message in indexed(span.attributes, prefix, "message.")]
    # LangChain's root names the roles alone; the words then stand in the value beside them.
    return messages if any(message.keys() > {"role"} for message in messages) else None


def input_messages(span: WireSpan) -> list[Any] | None:
    """The messages under `llm.input_messages.<n>`."""
    return _messages(span, "llm.input_messages.")


def output_messages(span: WireSpan) -> list[Any] | None:
    """The messages under `llm.output_messages.<n>`."""
    return _messages(span, "llm.output_messages.")


def documents(span: WireSpan) -> list[Any] | None:
    """What a retriever found or a reranker kept, spelled out over numbered keys."""
    for prefix in ("retrieval.documents.", "reranker.output_documents."):
        if records := indexed(span.attributes, prefix):
            return [
                {key.removeprefix("document."): value for key, value in record.items()} for record in records
            ]
    return None


DIALECT: Final = Dialect(
    name="openinference",
    title="OpenInference",
    keys={
        "kind": ("openinference.span.kind",),
        "response_model": (
            "llm.response.model_name",
            "llm.model_name",
            "embedding.model_name",
            "reranker.model_name",
        ),
        "request_model": ("llm.request.model_name",),
        "provider": ("llm.provider", "llm.system"),
        "named": ("agent.name", "graph.node.id"),
        "tool_name": ("tool.name",),
        "tool_call_id": ("tool.id", "tool_call.id"),
        "input_tokens": ("llm.token_count.prompt",),
        "output_tokens": ("llm.token_count.completion",),
        "cache_read_tokens": ("llm.token_count.prompt_details.cache_read",),
        "cache_write_tokens": ("llm.token_count.prompt_details.cache_write",),
        "reasoning_tokens": ("llm.token_count.completion_details.reasoning",),
        "input_audio_tokens": ("llm.token_count.prompt_details.audio",),
        "output_audio_tokens": ("llm.token_count.completion_details.audio",),
        "total_cost": ("llm.cost.total",),
        "input_cost": ("llm.cost.prompt",),
        "output_cost": ("llm.cost.completion",),
        "cache_read_cost": ("llm.cost.prompt_details.cache_read",),
        "cache_write_cost": ("llm.cost.prompt_details.cache_write",),
        "input_text": ("embedding.embeddings.0.embedding.text", "reranker.query"),
        "input_value": ("input.value",),
        "output_value": ("output.value",),
    },
    readers={"openinference.span.kind": _kind},
    derive=derive,
    derives=("request_model", "response_id", "input_tokens", "output_tokens", *DETAILS),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=("llm.input_messages.*",),
    output_keys=("llm.output_messages.*",),
    details={
        "agent": ("agent.name",),
        "tool_description": ("tool.description",),
        "finish_reasons": ("llm.finish_reason",),
        "parameters": _PARAMETERS,
    },
    documents=documents,
    counting="inclusive",
    marks=(
        "retrieval.documents.0.document.id",
        "retrieval.documents.0.document.content",
        "reranker.output_documents.0.document.id",
        "llm.input_messages.0.message.role",
        "llm.input_messages.0.message.content",
        "llm.output_messages.0.message.role",
        "llm.output_messages.0.message.content",
    ),
    usage_prefixes=("llm.token_count.", "llm.cost."),
    reads=(
        "llm.input_messages.*",
        "llm.output_messages.*",
        "retrieval.documents.*",
        "reranker.*",
        "embedding.embeddings.*",
        "llm.tools.*",
        "input.mime_type",
        "output.mime_type",
        "tool.parameters",
        "metadata",
        "tag.tags",
    ),
)
