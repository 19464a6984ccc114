"""Codex, OpenAI's coding agent, beside the GenAI conventions.

Owns: the keys under `codex.*`, and what `tool_name` and `call_id` mean beside each other. Called by the table
of dialects. Most of its spans are functions of its own and steps. The span of an answer holds its usage, the
one of the request above it the model: `svc.domain.intake.inherited_models` brings them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.spans.values import present, text

_CALL: Final = "call_id"
THOUGHT: Final = "codex.usage.reasoning_output_tokens"
_CACHED: Final = "codex.usage.cached_input_tokens"


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """A call of a tool, and a model's answer by what only it says."""
    get = attributes.get
    if _CALL in attributes and (tool_name := text(get("tool_name"))) is not None:
        yield "kind", "tool"
        yield "tool_name", tool_name
        yield "tool_call_id", text(get(_CALL))
        yield "tool_arguments", present(get("arguments"))
        yield "tool_result", present(get("output"))
        if str(get("success")).lower() == "false":
            yield "failed", True
    elif THOUGHT in attributes or _CACHED in attributes:
        yield "kind", "llm"
        yield "provider", "openai"


DIALECT: Final = Dialect(
    name="codex",
    title="Codex",
    keys={"cache_read_tokens": (_CACHED,), "reasoning_tokens": (THOUGHT,)},
    derive=derive,
    derives=(
        "kind",
        "provider",
        "failed",
        "tool_name",
        "tool_call_id",
        "tool_arguments",
        "tool_result",
    ),
    counting="inclusive",
    beside_genai=True,
    marks=(_CALL,),
    usage_prefixes=("codex.usage.",),
    reads=("codex.*", "tool_name"),
)
