"""Gemini CLI's log events as spans: a trace for each prompt.

Called by the table. Thoughts are counted beside the output, and what tools gave to the prompt beside the
input: both belong to them by the conventions. A request says what was asked, its response all the rest.
"""

from __future__ import annotations

from typing import Final

import msgspec

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

AGENT: Final = "gemini-cli"
_PROVIDER: Final = "gcp.gemini"
_TOKENS: Final = frozenset(
    {
        "input_token_count",
        "output_token_count",
        "cached_content_token_count",
        "thoughts_token_count",
        "tool_token_count",
        "total_token_count",
        "response_text",
    }
)


def _key(event: LogEvent) -> SpanKey | None:
    session, prompt = event.text("session.id"), event.text("prompt_id")
    return None if session is None else SpanKey(AGENT, session, prompt, rooted=prompt is not None)


def _request(key: SpanKey, event: LogEvent) -> EventSpan:
    details = {"input.value": event.content("request_text"), "api_request.model": event.text("model")}
    return step_span(key, event, "api_request", details, frozenset({"request_text"}))


def _sum(*counts: int | None) -> int | None:
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if numbers else None


class _Part(msgspec.Struct):
    text: str = ""
    thought: bool = False


class _Content(msgspec.Struct):
    parts: list[_Part] = []


class _Candidate(msgspec.Struct):
    content: _Content = msgspec.field(default_factory=_Content)


class _Piece(msgspec.Struct):
    candidates: list[_Candidate] = []


_pieces: Final = msgspec.json.Decoder(list[_Piece])


def _answer_text(text: str | None) -> str | None:
    """What the model said. Version 0.61 gives the pieces of the answer as JSON, earlier ones their text."""
    if text is None or not text.startswith("["):
        return text
    try:
        pieces = _pieces.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text
    parts = [
        part for piece in pieces for candidate in piece.candidates[:1] for part in candidate.content.parts
    ]
    return "".join(part.text for part in parts if not part.thought)


def _response(key: SpanKey, event: LogEvent) -> EventSpan:
    thoughts = event.count("thoughts_token_count")
    usage = TokenUsage(
        _sum(event.count("input_token_count"), event.count("tool_token_count")),
        _sum(event.count("output_token_count"), thoughts),
        event.count("cached_content_token_count"),
        None,
        thoughts,
    )
    response = {
        "gen_ai.output.messages": message_text("assistant", _answer_text(event.content("response_text"))),
        "gen_ai.response.finish_reasons": event.attributes.get("finish_reasons"),
    }
    message = event.content("error")
    failure = None if message is None else EventFailure(message, event.text("error_type"))
    return call_span(key, event, _PROVIDER, usage, without=_TOKENS, failure=failure, more=response)


def _error(key: SpanKey, event: LogEvent) -> EventSpan:
    failure = EventFailure(
        event.content("error", "error.message"),
        event.text("error_type", "error.type"),
        event.text("status_code"),
    )
    return call_span(key, event, _PROVIDER, TokenUsage(), without=_TOKENS, failure=failure)


def _tool(key: SpanKey, event: LogEvent) -> EventSpan:
    failed = event.flag("success") is False
    return tool_span(
        key,
        event,
        event.text("function_name"),
        call_id=event.text("call_id", "tool_call_id"),
        arguments=event.content("function_args"),
        without=frozenset({"function_args"}),
        failure=EventFailure(event.content("error"), event.text("error_type")) if failed else None,
    )


RULES: Final = Rules(
    "gemini_cli",
    _key,
    {
        "gemini_cli.user_prompt": user_prompt,
        "gemini_cli.api_request": _request,
        "gemini_cli.api_response": _response,
        "gemini_cli.api_error": _error,
        "gemini_cli.tool_call": _tool,
    },
)
