"""Mastra, beside the GenAI conventions.

Owns: the keys under `mastra.*`. Called by the table of dialects. What a span was given and gave stands under
keys that hold its type, except of models' calls and tools, which write GenAI's keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.spans.values import present

_TYPE: Final = "mastra.span.type"


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """What a span of this type was given and gave."""
    if fields.get("kind") != "llm":
        head = f"mastra.{attributes.get(_TYPE)}"
        yield "input_value", present(attributes.get(f"{head}.input"))
        yield "output_value", present(attributes.get(f"{head}.output"))


DIALECT: Final = Dialect(
    name="mastra",
    title="Mastra",
    keys={
        "session_id": ("mastra.metadata.sessionId", "mastra.metadata.threadId"),
        "user_id": ("mastra.metadata.userId",),
    },
    derive=derive,
    derives=("input_value", "output_value"),
    beside_genai=True,
    marks=(_TYPE,),
    reads=("mastra.*",),
)
