"""Which log events become spans, and why any other is dropped.

Owns `AGENTS`, `span_of` and the reasons for dropping. The reading of a logs body calls it for each record.
Never reads OTLP, and never raises over what an event says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from protocol.otlp.event_spans import EventSpan
from svc.domain.log_events import claude_code, codex, gemini_cli
from svc.domain.log_events.event import LogEvent
from svc.domain.log_events.rules import Rules

AGENTS: Final[tuple[Rules, ...]] = (claude_code.RULES, codex.RULES, gemini_cli.RULES)
_BY_EVENT: Final[Mapping[str, Rules]] = {name: rules for rules in AGENTS for name in rules.events}
#: Claude Code names its events without this in an attribute, and with it in the body.
_PREFIX: Final = "claude_code."
_CLAUDE_SCOPE: Final = "com.anthropic.claude_code"

#: The events that carry the messages of a span.
CONTENT_EVENTS: Final = frozenset(
    {
        "gen_ai.client.inference.operation.details",
        "gen_ai.system.message",
        "gen_ai.user.message",
        "gen_ai.assistant.message",
        "gen_ai.tool.message",
        "gen_ai.choice",
    }
)

Reason = Literal[
    "no event of an agent",
    "messages of a span, which are read from the span alone",
    "belongs to a span, which tells it",
    "names no session",
    "has no time",
    "a part of an answer",
]
UNKNOWN: Final[Reason] = "no event of an agent"
CONTENT: Final[Reason] = "messages of a span, which are read from the span alone"
OF_A_SPAN: Final[Reason] = "belongs to a span, which tells it"
NO_SESSION: Final[Reason] = "names no session"
NO_TIME: Final[Reason] = "has no time"
PART: Final[Reason] = "a part of an answer"


def event_name(candidates: tuple[str, ...], scope: str) -> str:
    """The name of an event by the places where exporters put it; empty when none is known."""
    for name in candidates:
        if name in _BY_EVENT or name in CONTENT_EVENTS:
            return name
    if scope.startswith(_CLAUDE_SCOPE):
        return next((_PREFIX + name for name in candidates if _PREFIX + name in _BY_EVENT), "")
    return ""


def span_of(event: LogEvent) -> EventSpan | Reason:
    """The span that an event is made into, or why it is dropped."""
    rules = _BY_EVENT.get(event.name)
    if rules is None:
        return CONTENT if event.name in CONTENT_EVENTS else UNKNOWN
    if any(event.span_id):
        return OF_A_SPAN
    if not event.time_ns:
        return NO_TIME
    key = rules.key_of(event)
    if key is None:
        return NO_SESSION
    return rules.events[event.name](key, event) or PART
