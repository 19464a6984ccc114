"""Spring AI, beside the GenAI conventions.

Owns: the keys under `spring.ai.*`. Called by the table of dialects. Around the calls of models it has spans
of its own, whose operation is `framework` and whose provider is itself; the call below them names who serves
the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from svc.domain.dialects.dialect import Dialect
from svc.domain.spans.span import Kind
from svc.domain.spans.values import present_unquoted

KINDS: Final[Mapping[str, Kind]] = {
    "tool_call": "tool",
    "chat_client": "step",
    "advisor": "step",
    "vector_store": "retrieval",
}

_KIND: Final = "spring.ai.kind"
_RESULT: Final = "spring.ai.tool.call.result"


def _kind(value: Any) -> Kind | None:
    return KINDS.get(value.lower()) if type(value) is str else None


DIALECT: Final = Dialect(
    name="spring_ai",
    title="Spring AI",
    keys={
        "kind": (_KIND,),
        "session_id": ("spring.ai.chat.client.conversation.id",),
        "named": ("spring.ai.advisor.name",),
        "tool_name": ("spring.ai.tool.definition.name", "spring.ai.tool.name"),
        "tool_call_id": ("spring.ai.tool.call.id",),
        "tool_arguments": ("spring.ai.tool.call.arguments",),
        "tool_result": (_RESULT,),
        "input_text": ("db.vector.query.content",),
    },
    # A result in words is written as JSON.
    readers={_KIND: _kind, _RESULT: present_unquoted},
    details={"tool_description": ("spring.ai.tool.definition.description",)},
    beside_genai=True,
    reads=("spring.ai.*",),
)
