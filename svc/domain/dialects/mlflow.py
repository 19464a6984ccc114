"""MLflow Tracing: every value is JSON text, so that a name comes in quotes.

Owns: the keys under `mlflow.*`. Called by the table of dialects. `mlflow.chat.tokenUsage` counts as providers
do, with what was cached inside the input. A task is any function, so it is a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.spans.documents import documents_in
from svc.domain.spans.messages import conversation, messages_in
from svc.domain.spans.span import Kind
from svc.domain.spans.values import count, decoded, money, present_unquoted, text, text_unquoted, unquoted

TYPES: Final[Mapping[str, Kind]] = {
    "LLM": "llm",
    "CHAT_MODEL": "llm",
    "EMBEDDING": "embedding",
    "RETRIEVER": "retrieval",
    "RERANKER": "reranker",
    "TOOL": "tool",
    "AGENT": "agent",
    "WORKFLOW": "workflow",
    "MEMORY": "memory",
    "GUARDRAIL": "guardrail",
    "CHAIN": "step",
    "PARSER": "step",
    "TASK": "step",
    "EVALUATOR": "step",
}

_TYPE: Final = "mlflow.spanType"
_INPUTS: Final = "mlflow.spanInputs"
_OUTPUTS: Final = "mlflow.spanOutputs"
_USAGE: Final = "mlflow.chat.tokenUsage"
_COST: Final = "mlflow.llm.cost"
_TEXT_KEYS: Final = ("mlflow.llm.model", "mlflow.llm.provider", "mlflow.trace.session", "mlflow.trace.user")


def _kind(value: Any) -> Kind | None:
    name = unquoted(value)
    return TYPES.get(name.upper()) if type(name) is str else None


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """Usage and cost, each inside one JSON object, and what a tool was called with."""
    if type(usage := decoded(attributes.get(_USAGE))) is dict:
        yield "input_tokens", count(usage.get("input_tokens"))
        yield "output_tokens", count(usage.get("output_tokens"))
        yield "cache_read_tokens", count(usage.get("cache_read_input_tokens"))
        yield "cache_write_tokens", count(usage.get("cache_creation_input_tokens"))
        yield "cache_write_1h_tokens", count(usage.get("cache_creation_input_tokens_above_1hr"))
    if type(cost := decoded(attributes.get(_COST))) is dict:
        yield "input_cost", money(cost.get("input_cost"))
        yield "output_cost", money(cost.get("output_cost"))
        yield "total_cost", money(cost.get("total_cost"))
    # A call that failed has its model where the caller put it; of others to look for it costs a third more.
    if (
        "output_value" not in fields
        and "request_model" not in fields
        and "response_model" not in fields
        and fields.get("kind") in ("llm", "embedding")
        and type(inputs := decoded(attributes.get(_INPUTS))) is dict
    ):
        yield "request_model", text(inputs.get("model"))
    if _kind(attributes.get(_TYPE)) == "tool":
        yield "tool_arguments", present_unquoted(attributes.get(_INPUTS))
        yield "tool_result", present_unquoted(attributes.get(_OUTPUTS))


def _messages(span: WireSpan, key: str, role: str) -> list[Any] | None:
    kind = _kind(span.attributes.get(_TYPE))
    if kind in ("tool", "retrieval", "embedding", "reranker"):
        return None
    value = unquoted(span.attributes.get(key))
    opened = decoded(value)
    return messages_in(value, role) if kind == "llm" and opened is None else conversation(opened)


def input_messages(span: WireSpan) -> list[Any] | None:
    """The conversation inside the inputs; of a model call plain text too."""
    return _messages(span, _INPUTS, "user")


def output_messages(span: WireSpan) -> list[Any] | None:
    """The conversation inside the outputs; of a model call plain text too."""
    return _messages(span, _OUTPUTS, "assistant")


def documents(span: WireSpan) -> list[Any] | None:
    """What a retriever found."""
    kind = _kind(span.attributes.get(_TYPE))
    return documents_in(span.attributes.get(_OUTPUTS)) if kind in ("retrieval", "reranker") else None


DIALECT: Final = Dialect(
    name="mlflow",
    title="MLflow",
    keys={
        "kind": (_TYPE,),
        "request_model": ("mlflow.llm.model",),
        "provider": ("mlflow.llm.provider",),
        "session_id": ("mlflow.trace.session",),
        "user_id": ("mlflow.trace.user",),
        "input_value": (_INPUTS,),
        "output_value": (_OUTPUTS,),
    },
    readers={
        _TYPE: _kind,
        **dict.fromkeys(_TEXT_KEYS, text_unquoted),
        **dict.fromkeys((_INPUTS, _OUTPUTS), present_unquoted),
    },
    derive=derive,
    derives=(
        "request_model",
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_1h_tokens",
        "cache_write_tokens",
        "input_cost",
        "output_cost",
        "total_cost",
        "tool_arguments",
        "tool_result",
    ),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=(_INPUTS,),
    output_keys=(_OUTPUTS,),
    documents=documents,
    counting="inclusive",
    marks=(_USAGE, _COST),
    usage_prefixes=(_USAGE, _COST),
    reads=("mlflow.*",),
)
