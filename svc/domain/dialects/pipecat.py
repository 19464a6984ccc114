"""pipecat, a framework of voice agents, beside the GenAI conventions.

Owns: what `input` and `output` mean beside an operation. Called by the table of dialects. The two keys are
too common to be claimed wherever they stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.spans.messages import messages_in
from svc.domain.spans.values import present

_OPERATION: Final = "gen_ai.operation.name"


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """What an operation was given and what it gave."""
    if _OPERATION in attributes and fields.get("kind") != "llm":
        yield "input_value", present(attributes.get("input"))
        yield "output_value", present(attributes.get("output"))


def _messages(span: WireSpan, key: str, role: str) -> list[Any] | None:
    attributes = span.attributes
    if attributes.get(_OPERATION) != "chat":
        return None
    return messages_in(attributes.get(key), role)


def input_messages(span: WireSpan) -> list[Any] | None:
    """The conversation that a model was given, or the text of its last turn."""
    return _messages(span, "input", "user")


def output_messages(span: WireSpan) -> list[Any] | None:
    """What the model answered."""
    return _messages(span, "output", "assistant")


DIALECT: Final = Dialect(
    name="pipecat",
    title="pipecat",
    keys={},
    derive=derive,
    derives=("input_value", "output_value"),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=("input",),
    output_keys=("output",),
    beside_genai=True,
    marks=("input", "output"),
)
