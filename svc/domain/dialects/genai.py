"""The OpenTelemetry GenAI conventions, present and older, and those of MCP, which live beside them.

Owns: the keys under `gen_ai.*` and `mcp.*`, what the operations mean, and where messages are found: on
attributes (structured or as JSON text), on span events, or under the names used before 1.37. Called by the
table of dialects. Never reads log records: they do not travel with traces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from protocol.otlp.reading import WireEvent, WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field
from svc.domain.spans.messages import messages_in
from svc.domain.spans.span import Kind
from svc.domain.spans.values import decoded, milliseconds, present, present_unquoted, text

#: Well-known values of `gen_ai.operation.name`. Others (such as `agent_step`) leave the kind to other signs.
OPERATIONS: Final[Mapping[str, Kind]] = {
    "chat": "llm",
    "text_completion": "llm",
    "generate_content": "llm",
    # One answer of a model within a realtime session, under its earlier and its present name.
    "generate_live_content": "llm",
    "realtime_inference": "llm",
    "speech_to_text": "llm",
    "text_to_speech": "llm",
    "embeddings": "embedding",
    "retrieval": "retrieval",
    "execute_tool": "tool",
    "invoke_agent": "agent",
    "create_agent": "agent",
    "invoke_workflow": "workflow",
    "plan": "plan",
    "rerank": "reranker",
    "guardrail": "guardrail",
    "run_guardrail": "guardrail",
    "apply_guardrail": "guardrail",
    "run_step": "step",
    "fetch_response": "step",
    # What MLflow calls its types of spans, where it speaks GenAI.
    "llm": "llm",
    "chat_model": "llm",
    "embedding": "embedding",
    "retriever": "retrieval",
    "reranker": "reranker",
    "tool": "tool",
    "agent": "agent",
    "workflow": "workflow",
    "chain": "step",
    "parser": "step",
    "task": "step",
    "evaluator": "step",
    # Gemini CLI's, but for `llm_call`, whose spans may say nothing of the call.
    "tool_call": "tool",
    "agent_call": "agent",
    "user_prompt": "agent",
    "system_prompt": "agent",
    "schedule_tool_calls": "step",
}

_ROLES_OF_EVENTS: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_DETAILS: Final = "gen_ai.client.inference.operation.details"
_INSTRUCTIONS: Final = "gen_ai.system_instructions"


def _kind(value: Any) -> Kind | None:
    if type(value) is not str:
        return None
    operation = value.lower()
    # Seven operations on memories share the word and nothing else.
    return OPERATIONS.get(operation) or ("memory" if "memory" in operation else None)


def _says_mcp(value: Any) -> str | None:
    return "mcp" if type(value) is str and value.lower() == "mcp" else None


def _call_id(value: Any) -> str | None:
    # What Google's ADK writes for a call without an id.
    return None if value == "<not specified>" else text(value)


def _conversation(value: Any) -> str | None:
    # Some name a conversation by the answer before; a response's id is no session.
    return None if type(value) is str and value.startswith("resp_") else text(value)


def _event_message(event: WireEvent, role: str) -> dict[str, Any]:
    fields: Attributes = event.attributes
    message: dict[str, Any] = {**fields, "role": fields.get("role") or role}
    if (content := decoded(fields.get("content"))) is not None:
        message["content"] = content
    if (calls := decoded(fields.get("tool_calls"))) is not None:
        message["tool_calls"] = calls
    # Without an id of its own its parts say which calls it answers.
    if role == "tool" and "tool_call_id" not in message and "id" in fields:
        message["tool_call_id"] = fields["id"]
    return message


def _choice(event: WireEvent) -> dict[str, Any]:
    message_json = event.attributes.get("message")
    inner = decoded(message_json)
    if type(inner) is not dict:
        message = _event_message(event, "assistant")
        # Strands writes the content alone: its blocks, or bare text.
        if present(message_json) is not None and "content" not in message:
            message["content"] = message_json if inner is None else inner
        return message
    return {
        "role": "assistant",
        **inner,
        "finish_reason": inner.get("finish_reason") or event.attributes.get("finish_reason"),
    }


def input_messages(span: WireSpan) -> list[Any] | None:
    """What the model was given: attributes first, then span events."""
    attributes = span.attributes
    for key in ("gen_ai.input.messages", "gen_ai.prompt"):
        if (messages := messages_in(attributes.get(key), "user")) is not None:
            return messages
    messages = []
    for event in span.events:
        if (role := _ROLES_OF_EVENTS.get(event.name)) is not None:
            messages.append(_event_message(event, role))
        elif event.name == _DETAILS:
            # Strands sends the system's instructions in an event of its own.
            if (instructions := event.attributes.get(_INSTRUCTIONS)) is not None:
                messages.append({"role": "system", "content": decoded(instructions) or instructions})
            messages += messages_in(event.attributes.get("gen_ai.input.messages"), "user") or ()
        elif event.name == "gen_ai.content.prompt":
            messages += messages_in(event.attributes.get("gen_ai.prompt"), "user") or ()
    return messages or None


def output_messages(span: WireSpan) -> list[Any] | None:
    """What the model answered: attributes first, then span events."""
    attributes = span.attributes
    for key in ("gen_ai.output.messages", "gen_ai.completion"):
        if (messages := messages_in(attributes.get(key), "assistant")) is not None:
            return messages
    messages = []
    for event in span.events:
        if event.name == "gen_ai.choice":
            messages.append(_choice(event))
        elif event.name == _DETAILS:
            messages += messages_in(event.attributes.get("gen_ai.output.messages"), "assistant") or ()
        elif event.name == "gen_ai.content.completion":
            messages += messages_in(event.attributes.get("gen_ai.completion"), "assistant") or ()
    return messages or None


def tool_exchange(span: WireSpan) -> Iterable[tuple[Field, Any]]:
    """What a tool was called with and what it gave back, on the events that tell a model's messages."""
    for event in span.events:
        get = event.attributes.get
        if event.name == "gen_ai.tool.message":
            yield "tool_arguments", present(get("content"))
        elif event.name == "gen_ai.choice":
            yield "tool_result", present(get("message"))


def _first_token_ms(value: Any, span: WireSpan) -> float | None:
    # The name of a metric, used on spans by OpenLIT in seconds and by Strands in whole milliseconds.
    return milliseconds(value, 1) if type(value) is int else milliseconds(value, 1000)


def documents(span: WireSpan) -> list[Any] | None:
    """What a retrieval found."""
    documents = decoded(span.attributes.get("gen_ai.retrieval.documents"))
    return documents if type(documents) is list else None


DIALECT: Final = Dialect(
    name="genai",
    title="OpenTelemetry GenAI and MCP",
    keys={
        "kind": ("gen_ai.operation.name",),
        "mcp_method": ("mcp.method.name",),
        "mcp": (
            "gen_ai.tool.type",
            "mcp.session.id",
            "mcp.protocol.version",
            "mcp.tool.name",
        ),
        "response_model": ("gen_ai.response.model",),
        "request_model": ("gen_ai.request.model",),
        "provider": ("gen_ai.provider.name", "gen_ai.system"),
        "response_id": ("gen_ai.response.id",),
        "session_id": ("gen_ai.conversation.id", "gen_ai.realtime_session.id"),
        "named": ("gen_ai.agent.name", "gen_ai.workflow.name"),
        "tool_name": ("gen_ai.tool.name", "mcp.tool.name"),
        "tool_call_id": ("gen_ai.tool.call.id", "gen_ai.tool.call_id"),
        "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        "cache_read_tokens": (
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
        ),
        "cache_write_tokens": (
            "gen_ai.usage.cache_write.input_tokens",
            "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.cache_write_input_tokens",
            "gen_ai.usage.cache_creation_input_tokens",
        ),
        # No convention names it; some write it as Anthropic does.
        "cache_write_1h_tokens": ("gen_ai.usage.cache_creation.ephemeral_1h_input_tokens",),
        "reasoning_tokens": ("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens"),
        # Of the modalities audio alone has a price of its own.
        "input_audio_tokens": ("gen_ai.usage.audio.input_tokens", "gen_ai.usage.input_audio_tokens"),
        "cached_audio_tokens": ("gen_ai.usage.audio.cache_read.input_tokens",),
        "output_audio_tokens": ("gen_ai.usage.audio.output_tokens", "gen_ai.usage.output_audio_tokens"),
        # What was granted before what was asked for.
        "service_tier": (
            "openai.response.service_tier",
            "gen_ai.openai.response.service_tier",
            "gen_ai.response.service_tier",
            "openai.request.service_tier",
            "gen_ai.openai.request.service_tier",
        ),
        "tool_arguments": ("gen_ai.tool.call.arguments",),
        "tool_result": ("gen_ai.tool.call.result",),
        "input_text": ("gen_ai.retrieval.query.text", "gen_ai.memory.query.text"),
        "output_value": ("gen_ai.retrieval.documents", "gen_ai.memory.records"),
    },
    readers={
        "gen_ai.operation.name": _kind,
        "gen_ai.tool.type": _says_mcp,
        "gen_ai.tool.call.id": _call_id,
        "gen_ai.conversation.id": _conversation,
        # Some write every result as JSON, plain text too.
        "gen_ai.tool.call.result": present_unquoted,
    },
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=("gen_ai.input.messages", "gen_ai.prompt"),
    output_keys=("gen_ai.output.messages", "gen_ai.completion"),
    instructions=(_INSTRUCTIONS,),
    details={
        "agent": ("gen_ai.agent.name",),
        "workflow": ("gen_ai.workflow.name",),
        "tool_description": ("gen_ai.tool.description",),
        "finish_reasons": ("gen_ai.response.finish_reasons",),
        "time_to_first_token_ms": (
            "gen_ai.response.time_to_first_chunk",
            "gen_ai.client.operation.time_to_first_chunk",
            "gen_ai.server.time_to_first_token",
        ),
        "parameters": ("gen_ai.request.*",),
    },
    detail_readers={"gen_ai.server.time_to_first_token": _first_token_ms},
    documents=documents,
    tool_exchange=tool_exchange,
    counting="inclusive",
    usage_prefixes=("gen_ai.usage.", "gen_ai.aggregated_usage."),
    reads=(
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.prompt",
        "gen_ai.completion",
        "gen_ai.tool.definitions",
        "gen_ai.agent.*",
        "gen_ai.output.type",
        "gen_ai.memory.*",
        "gen_ai.retrieval.*",
        "gen_ai.guardrail.*",
        "a2a.*",
        "mcp.*",
        "openai.*",
        "gen_ai.openai.*",
    ),
)
