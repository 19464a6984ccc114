"""OpenLLMetry, Traceloop's conventions: those before 0.55, spelled out over numbered keys, and those since.

Owns: the keys under `traceloop.*` and `llm.request.*`, `gen_ai.prompt.<n>` and `gen_ai.completion.<n>`, and
the results of vector databases on span events. Called by the table of dialects. What it shares with the
GenAI conventions is left to them. A task is any decorated function, so it is a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found, indexed
from svc.domain.spans.span import Kind
from svc.domain.spans.values import decoded, present, text

KINDS: Final[Mapping[str, Kind]] = {"workflow": "workflow", "task": "step", "agent": "agent", "tool": "tool"}
REQUESTS: Final[Mapping[str, Kind]] = {
    "chat": "llm",
    "completion": "llm",
    "embedding": "embedding",
    "rerank": "reranker",
    # LiteLLM puts the name of the function there.
    "acompletion": "llm",
    "text_completion": "llm",
    "atext_completion": "llm",
    "responses": "llm",
    "aresponses": "llm",
    "aembedding": "embedding",
    "arerank": "reranker",
}
#: Only a search has these, unlike the other operations on a vector database.
_SEARCHES: Final = (
    "db.vector.query.top_k",
    "pinecone.query.top_k",
    "db.chroma.query.n_results",
    "db.milvus.search.collection_name",
    "qdrant.search.collection_name",
    "db.marqo.search.query",
)
_RESULTS: Final = ("db.query.result", "db.search.result")


def _kind(value: Any) -> Kind | None:
    return KINDS.get(value.lower()) if type(value) is str else None


def _request(value: Any) -> Kind | None:
    return REQUESTS.get(value.lower()) if type(value) is str else None


def _retrieval(value: Any) -> Kind | None:
    return "retrieval" if present(value) is not None else None


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """What a decorated tool was called with: only there is the entity's name a tool's."""
    if fields.get("kind") in ("tool", "mcp") and attributes.get("traceloop.span.kind") == "tool":
        yield "tool_name", text(attributes.get("traceloop.entity.name"))
        yield "tool_arguments", present(attributes.get("traceloop.entity.input"))
        yield "tool_result", present(attributes.get("traceloop.entity.output"))


def _message(record: Mapping[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {key: value for key, value in record.items() if "." not in key}
    content = decoded(message.get("content"))
    # JSON is content in parts only if these have types: else it is what was said.
    if type(content) is list and all(type(part) is dict and "type" in part for part in content):
        message["content"] = content
    if calls := indexed(record, "tool_calls."):
        message["tool_calls"] = calls
    elif "function_call.name" in record:
        message["tool_calls"] = [
            {"name": record["function_call.name"], "arguments": record.get("function_call.arguments")}
        ]
    if (reasoning := text(message.get("reasoning"))) is not None:
        original = message.get("content")
        message["content"] = [{"type": "reasoning", "content": reasoning}] + (
            original if type(original) is list else [original]
        )
    return message


def input_messages(span: WireSpan) -> list[Any] | None:
    """The messages under `gen_ai.prompt.<n>`."""
    return [_message(record) for record in indexed(span.attributes, "gen_ai.prompt.")] or None


def output_messages(span: WireSpan) -> list[Any] | None:
    """The messages under `gen_ai.completion.<n>`, said by the assistant unless they say otherwise."""
    records = indexed(span.attributes, "gen_ai.completion.")
    return [{"role": "assistant", **_message(record)} for record in records] or None


def documents(span: WireSpan) -> list[Any] | None:
    """What a vector database found, one event each."""
    documents = []
    for event in span.events:
        if event.name in _RESULTS:
            fields = {
                key.removeprefix(event.name).removeprefix("."): value
                for key, value in event.attributes.items()
            }
            documents.append({"document": fields.get("entity"), **fields})
    return documents or None


DIALECT: Final = Dialect(
    name="openllmetry",
    title="OpenLLMetry (Traceloop)",
    keys={
        "kind": ("llm.request.type", "traceloop.span.kind", *_SEARCHES),
        "session_id": (
            "traceloop.association.properties.session_id",
            "traceloop.association.properties.sessionId",
            "traceloop.association.properties.conversation_id",
            "traceloop.association.properties.thread_id",
            "traceloop.association.properties.chat_id",
        ),
        "user_id": (
            "traceloop.association.properties.user_id",
            "traceloop.association.properties.userId",
            "gen_ai.user",
            "llm.user",
        ),
        "named": ("traceloop.entity.name", "traceloop.workflow.name"),
        "reasoning_tokens": ("llm.usage.reasoning_tokens",),
        "cache_read_tokens": ("llm.usage.cache_read_input_tokens",),
        "cache_write_tokens": ("llm.usage.cache_creation_input_tokens",),
        "input_value": ("traceloop.entity.input",),
        "output_value": ("traceloop.entity.output",),
    },
    readers={
        "llm.request.type": _request,
        "traceloop.span.kind": _kind,
        **dict.fromkeys(_SEARCHES, _retrieval),
    },
    derive=derive,
    derives=("tool_name", "tool_arguments", "tool_result"),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=("gen_ai.prompt.*",),
    output_keys=("gen_ai.completion.*",),
    details={
        "workflow": ("traceloop.workflow.name",),
        "finish_reasons": (
            "gen_ai.response.finish_reason",
            "gen_ai.response.stop_reason",
            "llm.response.finish_reason",
            "llm.response.stop_reason",
        ),
    },
    documents=documents,
    counting="inclusive",
    beside_genai=True,
    marks=(
        "traceloop.workflow.name",
        "traceloop.entity.path",
        "gen_ai.prompt.0.role",
        "gen_ai.prompt.0.content",
        "gen_ai.completion.0.role",
        "gen_ai.completion.0.content",
        "gen_ai.completion.0.finish_reason",
        "gen_ai.completion.0.tool_calls.0.name",
        "llm.usage.total_tokens",
        "llm.is_streaming",
        "gen_ai.is_streaming",
        "llm.request.functions.0.name",
    ),
    usage_prefixes=("llm.usage.",),
    reads=(
        "gen_ai.prompt.*",
        "gen_ai.completion.*",
        "traceloop.*",
        "llm.*",
    ),
)
