"""Claude Code's log events as spans (2.1): a trace for each prompt.

Called by the table. `input_tokens` leaves out what was cached, as in Anthropic's own API. A release before
`prompt.id` has one trace for each session, without a root.
"""

from __future__ import annotations

from typing import Final

from protocol.otlp.event_spans import EventSpan
from svc.domain.log_events.event import (
    EventFailure,
    LogEvent,
    SpanKey,
    TokenUsage,
    call_span,
    message_text,
    step_span,
    tool_span,
    user_prompt,
)
from svc.domain.log_events.rules import Rules

AGENT: Final = "claude-code"
_TOKENS: Final = frozenset(
    {
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_creation_tokens",
        "cost_usd",
        "cost_usd_micros",
    }
)
_MICROS: Final = 1_000_000


def _key(event: LogEvent) -> SpanKey | None:
    session, prompt = event.text("session.id"), event.text("prompt.id")
    return None if session is None else SpanKey(AGENT, session, prompt, rooted=prompt is not None)


def _request(key: SpanKey, event: LogEvent) -> EventSpan:
    return _call(key, event, None)


def _error(key: SpanKey, event: LogEvent) -> EventSpan:
    # It is a text, and `undefined` where there was no answer, in releases before 2.1.
    code = event.text("status_code")
    status_code = code if code is not None and code.isdecimal() else None
    return _call(key, event, EventFailure(event.content("error"), status_code, status_code))


def _call(key: SpanKey, event: LogEvent, failure: EventFailure | None) -> EventSpan:
    uncached, cache_read = event.count("input_tokens"), event.count("cache_read_tokens")
    cache_write = event.count("cache_creation_tokens")
    usage = TokenUsage(
        None if uncached is None else uncached + (cache_read or 0) + (cache_write or 0),
        event.count("output_tokens"),
        cache_read,
        cache_write,
    )
    cost: object = event.attributes.get("cost_usd")
    if cost is None and (micros := event.count("cost_usd_micros")) is not None:
        cost = micros / _MICROS
    request_id = event.text("request_id", "client_request_id")
    return call_span(
        key,
        event,
        "anthropic",
        usage,
        without=_TOKENS,
        identifier=request_id,
        failure=failure,
        more={"gen_ai.usage.cost": cost, "gen_ai.agent.name": event.text("agent.name")},
    )


def _tool(key: SpanKey, event: LogEvent) -> EventSpan:
    failed = event.flag("success") is False
    kind = event.text("error_type")
    return tool_span(
        key,
        event,
        event.text("tool_name", "name"),
        call_id=event.text("tool_use_id"),
        arguments=event.content("tool_input", "tool_parameters"),
        without=frozenset({"tool_input", "tool_parameters", "name"}),
        failure=EventFailure(event.content("error"), kind) if failed else None,
    )


def _decision(key: SpanKey, event: LogEvent) -> EventSpan:
    decision, tool_name = event.text("decision") or "", event.text("tool_name") or "tool"
    details = {"tool_decision.tool": tool_name, "tool_decision.call_id": event.text("tool_use_id")}
    return step_span(
        key, event, f"{tool_name}: {decision}", details, frozenset({"tool_input", "tool_parameters"})
    )


def _response(key: SpanKey, event: LogEvent) -> EventSpan:
    # What a request answered stands in a record of its own; its tokens are the request's.
    details = {"gen_ai.output.messages": message_text("assistant", event.content("response"))}
    return step_span(key, event, "assistant_response", details, frozenset({"response"}))


RULES: Final = Rules(
    "claude_code",
    _key,
    {
        "claude_code.user_prompt": user_prompt,
        "claude_code.api_request": _request,
        "claude_code.api_error": _error,
        "claude_code.assistant_response": _response,
        "claude_code.tool_result": _tool,
        "claude_code.tool_decision": _decision,
    },
)
