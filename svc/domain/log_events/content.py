"""Messages of a model call and results of its evaluation that stand in log events, as steps under its span.

Called by the table. The events name the span that they belong to, which comes by another way, before or
after: the step is under it whichever is first. Only messages and results are taken over, for tokens and model
are the span's own to say. Older events hold one message each, as the provider's API writes it. The step of a
result has the name of its event, by which it is read as feedback on the span above it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from protocol.otlp.event_spans import EventSpan
from svc.domain.feedback.entries import (
    AUTHOR_ATTRIBUTE,
    CATEGORY_ATTRIBUTE,
    EVALUATION_EVENT,
    NAME_ATTRIBUTE,
    NUMBER_ATTRIBUTE,
    SESSION_ATTRIBUTE,
    TEXT_ATTRIBUTE,
)
from svc.domain.log_events.event import LogEvent, content_span_id

DETAILS: Final = "gen_ai.client.inference.operation.details"
#: By the name of an older event: who speaks, and on which side of the call.
_OLDER: Final[Mapping[str, tuple[str, str]]] = {
    "gen_ai.system.message": ("system", "gen_ai.input.messages"),
    "gen_ai.user.message": ("user", "gen_ai.input.messages"),
    "gen_ai.assistant.message": ("assistant", "gen_ai.input.messages"),
    "gen_ai.tool.message": ("tool", "gen_ai.input.messages"),
    "gen_ai.choice": ("assistant", "gen_ai.output.messages"),
}
CONTENT_EVENTS: Final = frozenset({DETAILS, EVALUATION_EVENT, *_OLDER})
_MESSAGES: Final = frozenset(
    {
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.tool.definitions",
    }
)
#: What an evaluation says: beside its name at least one of these.
_RATING: Final = frozenset({NUMBER_ATTRIBUTE, CATEGORY_ATTRIBUTE, TEXT_ATTRIBUTE})
_RESULT: Final = frozenset({NAME_ATTRIBUTE, AUTHOR_ATTRIBUTE, SESSION_ATTRIBUTE, *_RATING})


def content_span(event: LogEvent) -> EventSpan | None:
    """The step that holds the messages; None for an event that holds none."""
    attributes: dict[str, Any] = {"gen_ai.operation.name": "run_step"}
    if event.name == DETAILS:
        without = frozenset(event.attributes) - _MESSAGES
        if len(without) == len(event.attributes):
            return None
    else:
        role, side = _OLDER[event.name]
        message = _message(event, role)
        if message is None:
            return None
        attributes[side] = json.dumps([message], default=str)
        without = frozenset(event.attributes)
    span_id = content_span_id(event)
    name = event.name.removeprefix("gen_ai.")
    return EventSpan(
        event.trace_id, span_id, event.span_id, name, event.time_ns, event.time_ns, attributes, without
    )


def evaluation_span(event: LogEvent) -> EventSpan | None:
    """The step of an evaluation's result; None for an event that holds none."""
    if _RATING.isdisjoint(event.attributes):
        return None
    attributes, without = {"gen_ai.operation.name": "run_step"}, frozenset(event.attributes) - _RESULT
    span_id = content_span_id(event)
    return EventSpan(
        event.trace_id, span_id, event.span_id, event.name, event.time_ns, event.time_ns, attributes, without
    )


def _message(event: LogEvent, role: str) -> dict[str, Any] | None:
    # Some exporters write the message into the body, some into attributes.
    body = event.body if isinstance(event.body, dict) else event.attributes
    message = body.get("message", body)
    if not isinstance(message, dict):
        return None
    fields = {key: message[key] for key in ("role", "content", "tool_calls", "id") if key in message}
    return {"role": role, **fields} if "content" in fields or "tool_calls" in fields else None
