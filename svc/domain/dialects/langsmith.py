"""LangSmith's OpenTelemetry export.

Owns: the keys under `langsmith.*`, and what `gen_ai.prompt` and `gen_ai.completion` mean beside them: all
inputs and outputs of a run, whatever it is. Called by the table of dialects. `gen_ai.operation.name` calls a
prompt `chat` and a retriever `embeddings`, so the kind of the run is heard first. The key
`langsmith.trace.session_id` is the project and no session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.dialects.usage_objects import DETAILS, opened, writes_in
from svc.domain.spans.documents import documents_in
from svc.domain.spans.messages import conversation
from svc.domain.spans.span import Kind
from svc.domain.spans.values import count, decoded, money

RUNS: Final[Mapping[str, Kind]] = {
    "llm": "llm",
    "chain": "step",
    "tool": "tool",
    "retriever": "retrieval",
    "embedding": "embedding",
    "prompt": "step",
    "parser": "step",
}

_KIND: Final = "langsmith.span.kind"
_PROMPT: Final = "gen_ai.prompt"
_COMPLETION: Final = "gen_ai.completion"
_USAGE: Final = "langsmith.usage_metadata"
_GIVEN: Final = "gen_ai.usage.input_token_details"
_ANSWERED: Final = "gen_ai.usage.output_token_details"


def _kind(value: Any) -> Kind | None:
    return RUNS.get(value.lower()) if type(value) is str else None


def _unwrapped(value: Any, key: str) -> Any:
    """What a run was given or answered when it is one thing under the usual key, else all of it."""
    record = decoded(value)
    return record[key] if type(record) is dict and record.keys() == {key} else value


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """Details of usage, and what a tool was called with."""
    input_details, output_details = opened(attributes.get(_GIVEN)), opened(attributes.get(_ANSWERED))
    if usage := opened(attributes.get(_USAGE)):
        input_details = input_details or opened(usage.get("input_token_details"))
        output_details = output_details or opened(usage.get("output_token_details"))
        yield "input_tokens", count(usage.get("input_tokens"))
        yield "output_tokens", count(usage.get("output_tokens"))
        yield "input_cost", money(usage.get("input_cost"))
        yield "output_cost", money(usage.get("output_cost"))
        yield "total_cost", money(usage.get("total_cost"))
    if input_details:
        yield "cache_read_tokens", count(input_details.get("cache_read"))
        write_tokens, hour_tokens = writes_in(input_details, input_details.get("cache_creation"))
        yield "cache_write_tokens", write_tokens
        yield "cache_write_1h_tokens", hour_tokens
        yield "input_audio_tokens", count(input_details.get("audio"))
    if output_details:
        yield "reasoning_tokens", count(output_details.get("reasoning"))
        yield "output_audio_tokens", count(output_details.get("audio"))
    if attributes.get(_KIND) == "tool":
        if (tool_input := attributes.get(_PROMPT)) is not None:
            yield "tool_arguments", _unwrapped(tool_input, "input")
        if (answer := attributes.get(_COMPLETION)) is not None:
            yield "tool_result", _unwrapped(answer, "output")


def _messages(span: WireSpan, key: str) -> list[Any] | None:
    kind = span.attributes.get(_KIND)
    value = span.attributes.get(key)
    if kind is None or value is None:
        return None
    if kind in ("tool", "retriever", "embedding"):
        return []
    # Of a model call, text is what was said; of anything else it is a value.
    return conversation(decoded(value)) or (None if kind == "llm" else [])


def input_messages(span: WireSpan) -> list[Any] | None:
    """The conversation inside the inputs of a run; an empty one when they are no messages."""
    return _messages(span, _PROMPT)


def output_messages(span: WireSpan) -> list[Any] | None:
    """The conversation inside the outputs of a run; an empty one when they are no messages."""
    return _messages(span, _COMPLETION)


def documents(span: WireSpan) -> list[Any] | None:
    """What a retriever found."""
    completion = span.attributes.get(_COMPLETION)
    return documents_in(completion) if span.attributes.get(_KIND) == "retriever" else None


DIALECT: Final = Dialect(
    name="langsmith",
    title="LangSmith",
    keys={
        "kind": (_KIND,),
        "provider": ("langsmith.metadata.ls_provider",),
        "request_model": ("langsmith.metadata.ls_model_name",),
        "session_id": (
            "langsmith.metadata.session_id",
            "langsmith.metadata.thread_id",
            "langsmith.metadata.conversation_id",
        ),
        "user_id": ("langsmith.metadata.user_id",),
        "named": ("langsmith.metadata.lc_agent_name", "langsmith.metadata.langgraph_node"),
        "input_value": (_PROMPT,),
        "output_value": (_COMPLETION,),
    },
    readers={_KIND: _kind},
    derive=derive,
    derives=(
        "input_tokens",
        "output_tokens",
        *DETAILS,
        "input_cost",
        "output_cost",
        "total_cost",
        "tool_arguments",
        "tool_result",
    ),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=(_PROMPT,),
    output_keys=(_COMPLETION,),
    details={
        "agent": ("langsmith.metadata.lc_agent_name",),
        "workflow": ("langsmith.metadata.graph_id",),
    },
    documents=documents,
    counting="inclusive",
    beside_genai=True,
    raises=True,
    marks=(_USAGE, _GIVEN, _ANSWERED),
    usage_prefixes=(_USAGE,),
    reads=("langsmith.*",),
)
