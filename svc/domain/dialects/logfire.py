"""Logfire's own integrations, beside the GenAI conventions.

Owns: what its templates of span names mean, and the usage that it passes on as the provider wrote it. Called
by the table of dialects. The keys `name`, `input` and `output` are too common to be claimed wherever they
stand: they are read beside a template alone. What pydantic-ai writes, with Logfire or without, is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.dialects.usage_objects import DETAILS, details_in, opened
from svc.domain.spans.messages import conversation
from svc.domain.spans.span import Kind
from svc.domain.spans.values import decoded, present, text

_TEMPLATE: Final = "logfire.msg_template"
_MESSAGE: Final = "logfire.msg"
_RAW: Final = "gen_ai.usage.raw"

#: The spans of OpenAI's agents SDK that have no GenAI operation, by their template.
TEMPLATES: Final[Mapping[str, Kind]] = {
    "OpenAI Agents trace: {name}": "workflow",
    "Agent run: {name!r}": "agent",
    "Function: {name}": "tool",
    "Handoff: {from_agent} → {to_agent}": "handoff",
    "Guardrail {name!r} {triggered=}": "guardrail",
}


def _present(value: Any) -> Any:
    # Null is written as JSON.
    return None if value == "null" else present(value)


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """The kind and the exchange of a span by its template, its readable name, and the parts of its usage."""
    get = attributes.get
    if (template := get(_TEMPLATE)) is not None:
        yield "title", text(get(_MESSAGE))
        kind = TEMPLATES.get(template) if type(template) is str else None
        input_value, output_value = _present(get("input")), _present(get("output"))
        if kind == "tool":
            yield "tool_name", text(get("name"))
            yield "tool_arguments", input_value
            yield "tool_result", output_value
            yield "mcp", _present(get("mcp_data"))
        else:
            yield "input_value", input_value
            yield "output_value", output_value
        if kind == "agent" or kind == "workflow":
            yield "named", text(get("name"))
            yield "session_id", text(_present(get("group_id")))
        # Each turn of an agent and the task around them sum up the usage of the calls below.
        yield "kind", "step" if kind is None and "sdk_span_type" in attributes else kind
    if "input_tokens" in fields or "output_tokens" in fields:
        yield from details_in(opened(get(_RAW)) or opened(get("usage")))


def input_messages(span: WireSpan) -> list[Any] | None:
    """The conversation under `input`."""
    return conversation(decoded(span.attributes.get("input"))) if _TEMPLATE in span.attributes else None


def output_messages(span: WireSpan) -> list[Any] | None:
    """The conversation under `output`."""
    return conversation(decoded(span.attributes.get("output"))) if _TEMPLATE in span.attributes else None


DIALECT: Final = Dialect(
    name="logfire",
    title="Logfire",
    keys={},
    derive=derive,
    derives=(
        "title",
        "kind",
        "named",
        "session_id",
        "mcp",
        "tool_name",
        "tool_arguments",
        "tool_result",
        "input_value",
        "output_value",
        *DETAILS,
    ),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=("input",),
    output_keys=("output",),
    counting="inclusive",
    beside_genai=True,
    marks=(_TEMPLATE, _RAW),
    reads=("logfire.*", _RAW, "sdk_span_type"),
)
