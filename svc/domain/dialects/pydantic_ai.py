"""What pydantic-ai says beside the GenAI conventions, now and in its earlier formats.

Owns: the cost of a call, the conversation of an agent run, the requests and answers that Logfire records, and
the names used before the conventions. Called by the table of dialects. `gen_ai.aggregated_usage.*` sums the
calls below an agent and is no usage of its own, so no field claims it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.spans.messages import conversation
from svc.domain.spans.values import decoded, text

_CONVERSATIONS: Final = ("pydantic_ai.all_messages", "all_messages_events", "events")


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """The run of an agent, which earlier versions name nothing else, and its model.

    The model's key is too common to be claimed wherever it stands.
    """
    if "agent_name" in attributes:
        yield "request_model", text(attributes.get("model_name"))
        if "tool_name" not in fields:
            yield "kind", "agent"


def _event(message: dict[str, Any]) -> dict[str, Any]:
    if message.get("event.name") == "gen_ai.tool.message" and "tool_call_id" not in message:
        return {**message, "tool_call_id": message.get("id")}
    return message


def _conversation(span: WireSpan) -> list[dict[str, Any]]:
    for key in _CONVERSATIONS:
        messages = decoded(span.attributes.get(key))
        if type(messages) is list:
            return [_event(message) for message in messages if type(message) is dict]
    return []


def _is_answer(message: dict[str, Any]) -> bool:
    return message.get("role") == "assistant" or message.get("event.name") == "gen_ai.choice"


def _answers_from(messages: list[dict[str, Any]]) -> int:
    end = len(messages)
    while end and _is_answer(messages[end - 1]):
        end -= 1
    return end


def input_messages(span: WireSpan) -> list[Any] | None:
    """The conversation up to its closing answer, else the messages of the request."""
    messages = _conversation(span)
    return messages[: _answers_from(messages)] or conversation(decoded(span.attributes.get("request_data")))


def output_messages(span: WireSpan) -> list[Any] | None:
    """The answer that closes the conversation, else the message of the response."""
    messages = _conversation(span)
    return messages[_answers_from(messages) :] or conversation(decoded(span.attributes.get("response_data")))


DIALECT: Final = Dialect(
    name="pydantic_ai",
    title="pydantic-ai",
    keys={
        "named": ("agent_name",),
        "cache_read_tokens": (
            "gen_ai.usage.details.cache_read_tokens",
            "gen_ai.usage.details.cached_tokens",
            "gen_ai.usage.details.cache_read_input_tokens",
        ),
        "cache_write_tokens": (
            "gen_ai.usage.details.cache_write_tokens",
            "gen_ai.usage.details.cache_creation_input_tokens",
        ),
        "cache_write_1h_tokens": ("gen_ai.usage.details.ephemeral_1h_input_tokens",),
        "reasoning_tokens": (
            "gen_ai.usage.details.reasoning_tokens",
            "gen_ai.usage.details.thoughts_tokens",
        ),
        "input_audio_tokens": ("gen_ai.usage.details.input_audio_tokens",),
        "output_audio_tokens": ("gen_ai.usage.details.output_audio_tokens",),
        "total_cost": ("operation.cost",),
        "tool_arguments": ("tool_arguments",),
        "tool_result": ("tool_response",),
        "output_value": ("final_result",),
    },
    derive=derive,
    derives=("kind", "request_model"),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=(*_CONVERSATIONS, "request_data"),
    output_keys=(*_CONVERSATIONS, "response_data"),
    details={"agent": ("agent_name",)},
    counting="inclusive",
    beside_genai=True,
    marks=(
        "pydantic_ai.all_messages",
        "all_messages_events",
        "events",
        "request_data",
        "response_data",
    ),
    usage_prefixes=("operation.cost",),
    reads=(
        "model_request_parameters",
        "pydantic_ai.*",
    ),
)
