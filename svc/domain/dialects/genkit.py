"""Genkit, for JavaScript and Go.

Owns: the keys under `genkit:*`. Called by the table of dialects. What an action was given and gave is JSON
under two keys, whatever it is; the subtype says what. A model's usage is the plugin's own count, and where
the provider's answer stands beside it, that answer says what the plugin leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.dialects.usage_objects import DETAILS, agreeing, usage_in, usage_of_answer
from svc.domain.spans.messages import conversation
from svc.domain.spans.span import Kind
from svc.domain.spans.values import count, decoded, present_unquoted, text

SUBTYPES: Final[Mapping[str, Kind]] = {
    "model": "llm",
    "background-model": "llm",
    "embedder": "embedding",
    "retriever": "retrieval",
    "reranker": "reranker",
    "tool": "tool",
    "tool.v2": "tool",
    "flow": "workflow",
    "agent": "agent",
}

#: Who serves the models of a plugin, where the plugin is called otherwise.
_PROVIDERS: Final[Mapping[str, str]] = {"googleai": "gcp.gemini", "vertexai": "gcp.vertex_ai"}
_SUBTYPE: Final = "genkit:metadata:subtype"
_NAME: Final = "genkit:name"
_INPUT: Final = "genkit:input"
_OUTPUT: Final = "genkit:output"


class _Output(msgspec.Struct):
    """The fields of a model's output that hold usage; all others are passed over, not built."""

    usage: Any = None
    raw: Any = None
    custom: Any = None


_output: Final = msgspec.json.Decoder(_Output)


def _kind(value: Any) -> Kind | None:
    return SUBTYPES.get(value) if type(value) is str else None


def _usage(value: Any) -> Iterable[tuple[Field, int]]:
    if type(value) is not str or '"usage' not in value:
        return
    try:
        output = _output.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return
    usage = output.usage if type(output.usage) is dict else {}
    counts: dict[Field, int] = usage_in(usage)
    thought, total = count(usage.get("thoughtsTokens")), count(usage.get("totalTokens"))
    input_tokens, output_tokens = counts.get("input_tokens", 0), counts.get("output_tokens", 0)
    if thought is not None:
        counts["reasoning_tokens"] = thought
        # Google's plugins count what was thought beside the answer.
        if total == input_tokens + output_tokens + thought:
            counts["output_tokens"] = output_tokens + thought
    for answer in (output.raw, output.custom):
        counts |= dict(agreeing(usage_of_answer(answer), {**counts}))
    yield from counts.items()


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """What the name of an action names by its subtype, and what is read of its input and output."""
    name = text(attributes.get(_NAME))
    match fields.get("kind"):
        case "llm" | "embedding" as kind:
            plugin, _, model = (name or "").partition("/")
            yield "request_model", model or None
            yield "provider", _PROVIDERS.get(plugin, plugin) if model else None
            if kind == "llm":
                yield from _usage(attributes.get(_OUTPUT))
        case "tool":
            yield "tool_name", name
            yield "tool_arguments", present_unquoted(attributes.get(_INPUT))
            yield "tool_result", present_unquoted(attributes.get(_OUTPUT))
        case "workflow" | "agent":
            yield "named", name


def _record(span: WireSpan, key: str) -> dict[str, Any] | None:
    """What a model was given or gave; None of anything else."""
    if _kind(span.attributes.get(_SUBTYPE)) != "llm":
        return None
    record = decoded(span.attributes.get(key))
    return record if type(record) is dict else None


def input_messages(span: WireSpan) -> list[Any] | None:
    """The messages of a model's request."""
    request = _record(span, _INPUT)
    return None if request is None else conversation(request.get("messages"))


def output_messages(span: WireSpan) -> list[Any] | None:
    """The message of a model's answer."""
    response = _record(span, _OUTPUT)
    message = response.get("message") if response is not None else None
    if response is None or type(message) is not dict:
        return None
    return [{**message, "finish_reason": response.get("finishReason")}]


DIALECT: Final = Dialect(
    name="genkit",
    title="Genkit",
    keys={
        "kind": (_SUBTYPE,),
        "session_id": ("genkit:metadata:agent:sessionId",),
        "input_value": (_INPUT,),
        "output_value": (_OUTPUT,),
    },
    readers={_SUBTYPE: _kind, _INPUT: present_unquoted, _OUTPUT: present_unquoted},
    derive=derive,
    derives=(
        "request_model",
        "provider",
        "tool_name",
        "tool_arguments",
        "tool_result",
        "named",
        "input_tokens",
        "output_tokens",
        *DETAILS,
    ),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=(_INPUT,),
    output_keys=(_OUTPUT,),
    counting="inclusive",
    marks=("genkit:type", _NAME),
    reads=("genkit:*",),
)
