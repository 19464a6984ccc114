"""pipecat, a framework of voice agents, beside the GenAI conventions.

Owns: what `input` and `output` mean beside an operation, and where calls of tools stand: its spans of models
never say which tool an answer calls, so that the next request is the first to hold it; realtime models have
spans or attributes of their own for it. Called by the table of dialects. Keys that are too common to be
claimed wherever they stand are read beside an operation only, calls under pipecat's own scope only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.spans.messages import messages_in
from svc.domain.spans.values import present, text

_OPERATION: Final = "gen_ai.operation.name"
#: Operations of realtime models: an answer, and what a tool gave.
_ANSWER: Final = "llm_response"
_RESULT: Final = "llm_tool_result"
_TOOL: Final = "tool.function_name"
_TOOLS: Final = "tool.all_function_names"
_CALLED: Final = "function_calls.all_names"


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """What an operation was given and what it gave; the tool whose result a span holds."""
    operation = attributes.get(_OPERATION)
    if operation == _RESULT and _TOOL in attributes:
        yield "kind", "tool"
        yield "tool_name", text(attributes[_TOOL])
        yield "tool_call_id", text(attributes.get("tool.call_id"))
        yield "tool_result", present(attributes.get("tool.result"))
        if attributes.get("tool.result_status") == "error":
            yield "failed", True
    elif operation is not None and fields.get("kind") != "llm":
        yield "input_value", present(attributes.get("input"))
        yield "output_value", present(attributes.get("output"))


def _messages(span: WireSpan, key: str, role: str) -> list[Any] | None:
    attributes = span.attributes
    if attributes.get(_OPERATION) not in ("chat", _ANSWER):
        return None
    return messages_in(attributes.get(key), role)


def input_messages(span: WireSpan) -> list[Any] | None:
    """The conversation that a model was given, or the text of its last turn."""
    return _messages(span, "input", "user")


def output_messages(span: WireSpan) -> list[Any] | None:
    """What the model answered."""
    return _messages(span, "output", "assistant")


def request(span: WireSpan) -> list[Any] | None:
    """The conversation that a model was given, or the calls that a realtime model asks for."""
    attributes = span.attributes
    if span.scope.name != "pipecat":
        return None
    match attributes.get(_OPERATION):
        case "chat":
            return input_messages(span)
        case "llm_response":
            return _calls(attributes.get(_CALLED), None, None)
        case "llm_tool_call":
            names = attributes.get(_TOOLS, attributes.get(_TOOL))
            return _calls(names, attributes.get("tool.call_id"), attributes.get("tool.arguments"))
    return None


def _calls(names: Any, call_id: Any, arguments: Any) -> list[Any] | None:
    """One message with a call of each tool; id and arguments are those of the first."""
    if type(names) is not str:
        return None
    calls: list[dict[str, Any]] = [{"type": "tool_call", "name": name} for name in names.split(",")]
    calls[0].update(id=call_id, arguments=arguments)
    return [{"role": "assistant", "parts": calls}]


DIALECT: Final = Dialect(
    name="pipecat",
    title="pipecat",
    keys={},
    derive=derive,
    derives=("kind", "tool_name", "tool_call_id", "tool_result", "failed", "input_value", "output_value"),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=("input",),
    output_keys=("output",),
    request=request,
    request_keys=("input", _TOOL, _CALLED),
    beside_genai=True,
    marks=("input", "output", _TOOL, _CALLED),
    reads=("tool.call_id", "tool.arguments", "tool.result", "tool.result_status", _TOOLS),
)
