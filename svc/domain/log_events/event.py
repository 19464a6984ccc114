"""A log event as it was read, and the span that it is made into: what every agent's rules share.

Owns `LogEvent`, `SpanKey` and the spans of the four kinds of event. The rules of the agents call
it, the table calls them. Never reads OTLP.

Ids are derived from what the event says of itself, never from when or in which batch it came: an export that
is sent again gives the same spans, and spans are known by their ids. Spans speak the GenAI conventions: input
holds what was cached, output what was reasoned.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from protocol.otlp.event_spans import EventSpan
from svc.domain.spans.values import count, milliseconds, present, text

#: What agents write in the place of a text that they were told to keep.
_REDACTED: Final = frozenset({"<REDACTED>", "[REDACTED]"})
#: The longest words of a failure.
_MESSAGE_CHARS: Final = 2_000
_NS_IN_MS: Final = 1_000_000
_TRUE: Final = "true"
#: Keys that more than one dialect reads off a span; on the span of an event the conventions say it.
_AMBIGUOUS: Final = frozenset(
    {"model", "tool_name", "call_id", "tool_use_id", "success", "error", "span.type", "arguments", "output"}
)


@attrs.frozen
class LogEvent:
    """One record: its name, when it was written, what it says, and the span around it if there is one."""

    name: str
    time_ns: int
    attributes: Mapping[str, Any] = attrs.field(repr=False)
    trace_id: bytes = b""
    span_id: bytes = b""
    body: Any = attrs.field(default=None, repr=False)

    def text(self, *keys: str) -> str | None:
        """The first of these keys that holds a name or an identifier."""
        return next((value for key in keys if (value := text(self.attributes.get(key))) is not None), None)

    def content(self, *keys: str) -> str | None:
        """The first of these keys that holds a text which was not redacted."""
        for key in keys:
            value = present(self.attributes.get(key))
            if value is not None and not (type(value) is str and value in _REDACTED):
                return value if type(value) is str else json.dumps(value, default=str)
        return None

    def count(self, key: str) -> int | None:
        """A number of tokens."""
        return count(self.attributes.get(key))

    def flag(self, key: str) -> bool | None:
        """Whether it is true; None when the event does not say."""
        value = text(self.attributes.get(key))
        if value is None:
            flag = self.attributes.get(key)
            return flag if type(flag) is bool else None
        return value.lower() == _TRUE

    @property
    def duration_ns(self) -> int:
        """How long what it tells of took, up to when it was written."""
        duration_ms = milliseconds(self.attributes.get("duration_ms"), 1)
        return 0 if duration_ms is None else min(self.time_ns - 1, int(duration_ms * _NS_IN_MS))


@attrs.frozen
class SpanKey:
    """Where the spans of an agent's prompt belong: one trace for each.

    An agent that does not say to which prompt an event belongs has one trace for each session.
    """

    agent: str
    session: str
    prompt: str | None = None
    #: Whether some event of the trace is made into its root.
    rooted: bool = True

    @property
    def trace_id(self) -> bytes:
        """The trace."""
        return _digest(16, "trace", self.agent, self.session, self.prompt or "")

    @property
    def root_id(self) -> bytes:
        """The span of the prompt itself, or of the session."""
        return _digest(8, "root", self.agent, self.session, self.prompt or "") if self.rooted else b""

    def span_id(self, event: LogEvent, *said: str | None) -> bytes:
        """The span of an event, by what tells it from others of its name; else by all that it says."""
        parts = [part for part in said if part is not None] or [_written(event.attributes)]
        prompt = self.prompt or ""
        return _digest(8, event.name, self.agent, self.session, prompt, str(event.time_ns), *parts)


@attrs.frozen
class TokenUsage:
    """Tokens of one call, as the GenAI conventions count them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None

    def attributes(self) -> dict[str, Any]:
        """Under the names of the conventions."""
        return {
            "gen_ai.usage.input_tokens": self.input_tokens,
            "gen_ai.usage.output_tokens": self.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": self.cache_read,
            "gen_ai.usage.cache_creation.input_tokens": self.cache_write,
            "gen_ai.usage.reasoning.output_tokens": self.reasoning,
        }


@attrs.frozen
class EventFailure:
    """Why something failed."""

    message: str | None = None
    kind: str | None = None
    status_code: str | None = None


def prompt_span(key: SpanKey, event: LogEvent, *, root: bool, prompt: str | None) -> EventSpan:
    """What somebody asked of the agent: the root of its trace, or a part of the session's."""
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": key.agent,
        "gen_ai.input.messages": _message("user", prompt),
    }
    return EventSpan(
        key.trace_id,
        key.root_id if root else key.span_id(event, event.text("event.sequence")),
        b"" if root else key.root_id,
        f"invoke_agent {key.agent}",
        event.time_ns,
        event.time_ns,
        _said(key, attributes),
        _AMBIGUOUS | {"prompt"},
    )


def user_prompt(key: SpanKey, event: LogEvent) -> EventSpan:
    """A prompt whose text stands in `prompt`, the root where its key names the prompt."""
    return prompt_span(key, event, root=key.prompt is not None, prompt=event.content("prompt"))


def call_span(
    key: SpanKey,
    event: LogEvent,
    provider: str,
    usage: TokenUsage,
    *,
    without: frozenset[str],
    identifier: str | None = None,
    failure: EventFailure | None = None,
    more: Mapping[str, Any] | None = None,
) -> EventSpan:
    """A call of a model that ended when the event was written."""
    model = event.text("model", "slug")
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        **usage.attributes(),
        **(more or {}),
    }
    name = f"chat {model}" if model else "chat"
    return _ended(key, event, name, attributes, without, identifier, failure, calls_out=True)


def tool_span(
    key: SpanKey,
    event: LogEvent,
    tool_name: str | None,
    *,
    call_id: str | None = None,
    arguments: str | None = None,
    result: str | None = None,
    without: frozenset[str] = frozenset(),
    failure: EventFailure | None = None,
) -> EventSpan:
    """A tool's call that ended when the event was written."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool_name,
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.call.arguments": arguments,
        "gen_ai.tool.call.result": result,
    }
    name = f"execute_tool {tool_name}" if tool_name else "execute_tool"
    return _ended(key, event, name, attributes, without, call_id, failure)


def step_span(
    key: SpanKey, event: LogEvent, name: str, attributes: Mapping[str, Any], without: frozenset[str]
) -> EventSpan:
    """Anything else that is worth a line in the trace."""
    spoken = {"gen_ai.operation.name": "run_step", **attributes}
    return _ended(key, event, name, spoken, without, None, None)


def _ended(
    key: SpanKey,
    event: LogEvent,
    name: str,
    attributes: Mapping[str, Any],
    without: frozenset[str],
    identifier: str | None,
    failure: EventFailure | None,
    *,
    calls_out: bool = False,
) -> EventSpan:
    spoken = dict(attributes)
    if failure is not None:
        spoken |= {"error.type": failure.kind, "http.response.status_code": failure.status_code}
    return EventSpan(
        key.trace_id,
        key.span_id(event, event.text("event.sequence"), identifier)
        if event.text("event.sequence") or identifier
        else key.span_id(event),
        key.root_id,
        name,
        event.time_ns - event.duration_ns,
        event.time_ns,
        _said(key, spoken),
        _AMBIGUOUS | without,
        None if failure is None else (failure.message or failure.kind or "")[:_MESSAGE_CHARS],
        calls_out,
    )


def message_text(role: str, content: str | None) -> str | None:
    """One message as the GenAI conventions write it."""
    return _message(role, content)


def _message(role: str, content: str | None) -> str | None:
    if content is None:
        return None
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": content}]}])


def _said(key: SpanKey, attributes: Mapping[str, Any]) -> dict[str, Any]:
    spoken = {name: value for name, value in attributes.items() if value is not None}
    return spoken | {"session.id": key.session}


def content_span_id(event: LogEvent) -> bytes:
    """The step under the span that an event names."""
    place = (event.trace_id.hex(), event.span_id.hex(), str(event.time_ns))
    return _digest(8, event.name, *place, _written(event.attributes), json.dumps(event.body, default=str))


def _digest(size: int, *parts: str) -> bytes:
    # Lengths stand before parts, so that no two lists of parts read alike.
    joined = "".join(f"{len(part)}:{part}" for part in parts)
    digest = hashlib.sha256(joined.encode("utf-8", "surrogatepass")).digest()[:size]
    return digest if any(digest) else b"\x01" * size


def _written(attributes: Mapping[str, Any]) -> str:
    return json.dumps(attributes, sort_keys=True, default=str)
