"""What a span is by its scope and its name, where its attributes say nothing.

Owns: `read_name`, and the `OPERATIONS` by which names begin. Some instrumentations write what they know when
a call has returned, so that a span that failed has no attribute at all. Called by the reading of dialects,
for spans that speak none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Field
from svc.domain.spans.span import Kind

_ADK: Final = "gcp.vertex.agent"
_CLIENT: Final = 3
_ERROR: Final = 2

#: Operations that nothing else is named after: a span of this name is one, and the rest names what it calls.
_SURE: Final[Mapping[str, tuple[Kind, Field]]] = {
    "execute_tool": ("tool", "tool_name"),
    "invoke_agent": ("agent", "named"),
    "create_agent": ("agent", "named"),
    "invoke_workflow": ("workflow", "named"),
}
#: Operations whose names are common words: only of a client's span that failed, before the model it called.
_CALLS: Final[Mapping[str, Kind]] = {
    "chat": "llm",
    "text_completion": "llm",
    "generate_content": "llm",
    "embeddings": "embedding",
}
#: LlamaIndex puts a request together in a span that its instrumentation calls a model's call.
PREPARES: Final = "._prepare_chat_with_tools"
#: The first words of the names that say anything.
OPERATIONS: Final = frozenset({*_SURE, *_CALLS, "call_llm", "agent_run"})


def read_name(span: WireSpan) -> Iterable[tuple[Field, Any]]:
    """The kind of a span, and the tool, agent or model that its name holds."""
    operation, _, operand = span.name.partition(" ")
    if (sure := _SURE.get(operation)) is not None:
        kind, field = sure
        if operand:
            yield "kind", kind
            yield field, operand
    elif (call := _CALLS.get(operation)) is not None:
        if operand and " " not in operand and span.kind == _CLIENT and span.status_code == _ERROR:
            yield "kind", call
            yield "request_model", operand
    elif span.scope.name == _ADK:
        if operation == "call_llm":
            yield "kind", "llm"
        elif operation == "agent_run":
            yield "kind", "agent"
            yield "named", operand.strip("[]") or None
