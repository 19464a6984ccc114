"""What pydantic-ai says beside the GenAI conventions, now and in its earlier formats.

Owns: the cost of a call, the conversation of an agent run, and the names used before the conventions.
Called by the table of dialects. `gen_ai.aggregated_usage.*` sums the calls below an agent and is no usage
of its own, so no field claims it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from protocol.otlp import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.values import decoded, text


def derive(attributes: Attributes, found: Found) -> Iterable[tuple[Field, Any]]:
    """The model of an agent run, under a key too common to be claimed wherever it stands."""
    if "agent_name" in attributes and (model := text(attributes.get("model_name"))) is not None:
        yield "request_model", model


def _conversation(span: WireSpan) -> list[dict[str, Any]]:
    for key in ("pydantic_ai.all_messages", "all_messages_events", "events"):
        messages = decoded(span.attributes.get(key))
        if type(messages) is list:
            return [message for message in messages if type(message) is dict]
    return []


def _is_answer(message: dict[str, Any]) -> bool:
    return message.get("role") == "assistant" or message.get("event.name") == "gen_ai.choice"


def _answers_from(messages: list[dict[str, Any]]) -> int:
    end = len(messages)
    while end and _is_answer(messages[end - 1]):
        end -= 1
    return end


def input_messages(span: WireSpan) -> list[Any] | None:
    """The conversation up to its closing answer."""
    messages = _conversation(span)
    return messages[: _answers_from(messages)] or None


def output_messages(span: WireSpan) -> list[Any] | None:
    """The answer that closes the conversation."""
    messages = _conversation(span)
    return messages[_answers_from(messages) :] or None


DIALECT: Final = Dialect(
    name="pydantic_ai",
    keys={
        "named": ("agent_name",),
        "cache_read_tokens": ("gen_ai.usage.details.cache_read_tokens",),
        "cache_write_tokens": ("gen_ai.usage.details.cache_write_tokens",),
        "reasoning_tokens": ("gen_ai.usage.details.reasoning_tokens",),
        "total_cost": ("operation.cost",),
        "tool_arguments": ("tool_arguments",),
        "tool_result": ("tool_response",),
        "output_value": ("final_result",),
    },
    derive=derive,
    input_messages=input_messages,
    output_messages=output_messages,
    marks=("pydantic_ai.all_messages", "all_messages_events", "events"),
    usage_prefixes=("operation.cost",),
)
