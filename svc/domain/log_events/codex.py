"""Codex's log events as spans: a trace for each conversation, or for each turn where the event names it.

Called by the table. Its events say to which conversation they belong and not to which prompt, and what cannot
be told from the event alone would not be the same when an export is sent again. The end of an answer
(`response.completed`) holds its usage, the request before it the HTTP status: a request that succeeded is a
step, one that failed is a failed call. The other pieces of a stream say nothing and are dropped.
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
    prompt_span,
    step_span,
    tool_span,
    user_prompt,
)
from svc.domain.log_events.rules import Rules

AGENT: Final = "codex"
_PROVIDER: Final = "openai"
_COMPLETED: Final = "response.completed"
_TOKENS: Final = frozenset(
    {
        "input_token_count",
        "output_token_count",
        "cached_token_count",
        "cache_write_token_count",
        "reasoning_token_count",
        "tool_token_count",
        "error.message",
    }
)


def _key(event: LogEvent) -> SpanKey | None:
    session = event.text("conversation.id")
    return None if session is None else SpanKey(AGENT, session, event.text("turn.id", "turn_id"))


def _conversation(key: SpanKey, event: LogEvent) -> EventSpan:
    return prompt_span(key, event, root=True, prompt=None)


def _request(key: SpanKey, event: LogEvent) -> EventSpan:
    code = event.text("http.response.status_code")
    message = event.content("error.message")
    if message is not None or (code is not None and not code.startswith("2")):
        failure = EventFailure(message, code, code)
        return call_span(key, event, _PROVIDER, TokenUsage(), without=_TOKENS, failure=failure)
    return step_span(key, event, "api_request", {}, frozenset())


def _answer(key: SpanKey, event: LogEvent) -> EventSpan | None:
    message = event.content("error.message")
    if message is None and event.text("event.kind") != _COMPLETED:
        return None
    usage = TokenUsage(
        event.count("input_token_count"),
        event.count("output_token_count"),
        event.count("cached_token_count"),
        event.count("cache_write_token_count"),
        event.count("reasoning_token_count"),
    )
    if message is None and usage == TokenUsage():
        # Version 0.171 reports each end twice: how long the piece took, then what the answer used.
        return None
    failure = None if message is None else EventFailure(message)
    return call_span(key, event, _PROVIDER, usage, without=_TOKENS, failure=failure)


def _tool(key: SpanKey, event: LogEvent) -> EventSpan:
    output = event.content("output")
    return tool_span(
        key,
        event,
        event.text("tool_name"),
        call_id=event.text("call_id"),
        arguments=event.content("arguments"),
        result=output,
        failure=EventFailure(output) if event.flag("success") is False else None,
    )


def _decision(key: SpanKey, event: LogEvent) -> EventSpan:
    decision, tool_name = event.text("decision") or "", event.text("tool_name") or "tool"
    details = {"tool_decision.tool": tool_name, "tool_decision.call_id": event.text("call_id")}
    return step_span(key, event, f"{tool_name}: {decision}", details, frozenset())


RULES: Final = Rules(
    "codex",
    _key,
    {
        "codex.conversation_starts": _conversation,
        "codex.user_prompt": user_prompt,
        "codex.api_request": _request,
        "codex.sse_event": _answer,
        "codex.tool_result": _tool,
        "codex.tool_decision": _decision,
    },
)
