"""LiveKit Agents, a framework of voice agents, beside the GenAI conventions.

Owns: the keys under `lk.*`, with `pii.` inside since 1.8. Called by the table of dialects. A turn of the
agent and what runs a tool have no operation of GenAI: their keys say what they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.spans.values import present

_TOOL: Final = ("lk.function_tool.name", "lk.pii.function_tool.name")
_INPUTS: Final = ("lk.pii.user_input", "lk.user_input", "lk.pii.user_transcript", "lk.user_transcript")
_OUTPUTS: Final = ("lk.pii.response.text", "lk.response.text")
_TURN: Final = ("lk.pii.user_input", "lk.user_input", "lk.generation_id")
_FAILED: Final = "lk.function_tool.is_error"


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """The kind of a turn, and a tool's own word that it failed."""
    if any(key in attributes for key in _TOOL):
        if attributes.get(_FAILED) is True:
            yield "failed", True
    elif "kind" not in fields and any(key in attributes for key in _TURN):
        yield "kind", "agent"


DIALECT: Final = Dialect(
    name="livekit",
    title="LiveKit Agents",
    keys={
        "named": ("lk.agent_name", "lk.agent_label"),
        "tool_name": _TOOL,
        "tool_call_id": ("lk.function_tool.id", "lk.pii.function_tool.id"),
        "tool_arguments": ("lk.function_tool.arguments", "lk.pii.function_tool.arguments"),
        "tool_result": ("lk.function_tool.output", "lk.pii.function_tool.output"),
        "input_value": _INPUTS,
        "output_value": _OUTPUTS,
    },
    readers=dict.fromkeys((*_INPUTS, *_OUTPUTS), present),
    derive=derive,
    derives=("kind", "failed"),
    beside_genai=True,
    marks=(*_TURN, _FAILED),
    reads=("lk.*",),
)
