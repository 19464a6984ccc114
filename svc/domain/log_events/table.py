"""Which log events become spans, and why any other is dropped.

Owns `AGENTS`, `span_of`, `event_name` and the reasons for dropping. The translation calls it for each
record. Never reads OTLP, and never raises over what an event says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from protocol.otlp.event_spans import EventSpan
from svc.domain.feedback.entries import EVALUATION_EVENT
from svc.domain.log_events import claude_code, codex, gemini_cli
from svc.domain.log_events.content import CONTENT_EVENTS, content_span, evaluation_span
from svc.domain.log_events.event import LogEvent
from svc.domain.log_events.rules import Rules

AGENTS: Final[tuple[Rules, ...]] = (claude_code.RULES, codex.RULES, gemini_cli.RULES)
_BY_EVENT: Final[Mapping[str, Rules]] = {name: rules for rules in AGENTS for name in rules.events}
#: Claude Code names its events without this in an attribute, and with it in the body.
_PREFIX: Final = "claude_code."
_CLAUDE_SCOPE: Final = "com.anthropic.claude_code"

Reason = Literal[
    "no event of an agent",
    "holds no messages of a span",
    "holds no result of an evaluation",
    "belongs to a span, which tells it",
    "names no session",
    "has no time",
    "names no span",
    "a part of an answer",
]
NO_SPAN: Final[Reason] = "names no span"
UNKNOWN: Final[Reason] = "no event of an agent"
NO_MESSAGES: Final[Reason] = "holds no messages of a span"
NO_RESULT: Final[Reason] = "holds no result of an evaluation"
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
    if event.name in CONTENT_EVENTS:
        return _step(event)
    rules = _BY_EVENT.get(event.name)
    if rules is None:
        return UNKNOWN
    if any(event.span_id):
        return OF_A_SPAN
    if not event.time_ns:
        return NO_TIME
    key = rules.key_of(event)
    if key is None:
        return NO_SESSION
    return rules.events[event.name](key, event) or PART


def _step(event: LogEvent) -> EventSpan | Reason:
    if not (
        len(event.trace_id) == 16 and len(event.span_id) == 8 and any(event.trace_id) and any(event.span_id)
    ):
        return NO_SPAN
    if not event.time_ns:
        return NO_TIME
    if event.name == EVALUATION_EVENT:
        return evaluation_span(event) or NO_RESULT
    return content_span(event) or NO_MESSAGES
