"""Laminar, beside the GenAI conventions and OpenLLMetry's older ones.

Owns: the keys under `lmnr.*` and the cost by direction. Called by the table of dialects. A span of type
DEFAULT is any function, so other signs decide; one whose answer came from a cache is a call all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.spans.messages import conversation, messages_in
from svc.domain.spans.span import Kind
from svc.domain.spans.values import decoded, present_unquoted, unquoted

TYPES: Final[Mapping[str, Kind]] = {
    "LLM": "llm",
    "CACHED": "llm",
    "TOOL": "tool",
    "PIPELINE": "workflow",
    "EXECUTOR": "step",
    "EVALUATOR": "step",
    "HUMAN_EVALUATOR": "step",
    "EVALUATION": "step",
}

_TYPE: Final = "lmnr.span.type"
_INPUT: Final = "lmnr.span.input"
_OUTPUT: Final = "lmnr.span.output"


def _kind(value: Any) -> Kind | None:
    return TYPES.get(value.upper()) if type(value) is str else None


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """What a tool was called with."""
    if attributes.get(_TYPE) == "TOOL":
        yield "tool_arguments", present_unquoted(attributes.get(_INPUT))
        yield "tool_result", present_unquoted(attributes.get(_OUTPUT))


def _messages(span: WireSpan, key: str, role: str) -> list[Any] | None:
    kind = _kind(span.attributes.get(_TYPE))
    if kind == "tool":
        return None
    value = unquoted(span.attributes.get(key))
    opened = decoded(value)
    return messages_in(value, role) if kind == "llm" and opened is None else conversation(opened)


def input_messages(span: WireSpan) -> list[Any] | None:
    """The conversation that a span was given; of a model call plain text too."""
    return _messages(span, _INPUT, "user")


def output_messages(span: WireSpan) -> list[Any] | None:
    """The conversation that a span answered; of a model call plain text too."""
    return _messages(span, _OUTPUT, "assistant")


DIALECT: Final = Dialect(
    name="laminar",
    title="Laminar",
    keys={
        "kind": (_TYPE,),
        "session_id": ("lmnr.association.properties.session_id",),
        "user_id": ("lmnr.association.properties.user_id",),
        "reasoning_tokens": ("gen_ai.usage.reasoning_output_tokens",),
        "input_cost": ("gen_ai.usage.input_cost",),
        "output_cost": ("gen_ai.usage.output_cost",),
        "total_cost": ("gen_ai.usage.cost", "gen_ai.usage.total_cost"),
        "input_value": (_INPUT,),
        "output_value": (_OUTPUT,),
    },
    readers={_TYPE: _kind, **dict.fromkeys((_INPUT, _OUTPUT), present_unquoted)},
    derive=derive,
    derives=("tool_arguments", "tool_result"),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=(_INPUT,),
    output_keys=(_OUTPUT,),
    counting="inclusive",
    beside_genai=True,
    reads=("lmnr.*",),
)
