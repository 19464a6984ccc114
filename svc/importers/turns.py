"""Turns of coding agents as spans: what the readers of their transcripts share.

Owns: `AgentTurn` (a prompt and all that an agent did about it), the spans made of it, and `Calls`, by which a
sub-agent's transcript finds the call that started it. Called by `svc.importers.claude_code` and
`svc.importers.codex`. Never reads files.

Ids are derived from those of the transcript, so that a transcript read again gives the same spans, and one
that grew gives the same and more. Spans speak the GenAI conventions: input holds what was cached, output what
was reasoned. A model call holds the messages that are new since the call before: transcripts grow by them,
and the whole conversation with each call would grow with its square.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from svc.importers.source import Identity, hex_id, identity, json_text, nanoseconds, pairs_of

_INTERNAL: Final = 1
_CLIENT: Final = 3
_ERROR: Final = 2
#: The longest words of a failure; its whole text is the tool's result.
_MESSAGE_CHARS: Final = 2_000
#: Messages of one call, and calls that wait for their results: far above what agents do.
_MOST_MESSAGES: Final = 2_000
_MOST_WAITING: Final = 1_000

Message = Mapping[str, Any]


@attrs.frozen
class Usage:
    """Tokens of a model call: input with what was cached, output with what was reasoned."""

    input_tokens: int
    output_tokens: int
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    service_tier: str | None = None
    cache_write_1h: int | None = None

    @property
    def total(self) -> int:
        """All of them."""
        return self.input_tokens + self.output_tokens

    def attributes(self) -> dict[str, Any]:
        """As the GenAI conventions name them."""
        return {
            "gen_ai.usage.input_tokens": self.input_tokens,
            "gen_ai.usage.output_tokens": self.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": self.cache_read,
            "gen_ai.usage.cache_creation.input_tokens": self.cache_write,
            "gen_ai.usage.cache_creation.ephemeral_1h_input_tokens": self.cache_write_1h,
            "gen_ai.usage.reasoning.output_tokens": self.reasoning,
            "gen_ai.response.service_tier": self.service_tier,
        }


@attrs.frozen
class TranscribedCall:
    """One answer of a model. `identifier` is its own in the transcript."""

    identifier: str
    model: str | None
    provider: str | None
    started_at: datetime
    ended_at: datetime
    inputs: Sequence[Message]
    outputs: Sequence[Message]
    usage: Usage | None
    response_id: str | None = None
    finish_reason: str | None = None


@attrs.frozen
class CallFailure:
    """Why something failed; `kind` where the transcript names one."""

    message: str
    kind: str | None = None


@attrs.frozen
class TurnSpan:
    """A span in OTLP JSON, with the tokens that the transcript says it used."""

    fields: dict[str, Any] = attrs.field(repr=False)
    tokens: int | None = None

    @property
    def identity(self) -> Identity:
        """Its trace and its span id."""
        return identity(self.fields["traceId"], self.fields["spanId"])


@attrs.frozen
class ParentCall:
    """The span under which a sub-agent works, and what that calls it."""

    trace_id: str
    span_id: str
    agent: str | None = None


@attrs.define(eq=False)
class Calls:
    """The turns of a session and the calls in it that start sub-agents, by what they were asked.

    A sub-agent is under the last call before it began that asked this of it, else under the turn in which it
    began: both stay so, however the transcripts grow.
    """

    _turns: list[tuple[datetime, ParentCall]] = attrs.field(factory=list)
    _by_prompt: dict[bytes, list[tuple[datetime, ParentCall]]] = attrs.field(factory=dict)

    def add_turn(self, started_at: datetime, root: ParentCall) -> None:
        """A turn began."""
        self._turns.append((started_at, root))

    def add_call(self, started_at: datetime, prompt: str, call: ParentCall) -> None:
        """A call asked this of a sub-agent."""
        self._by_prompt.setdefault(_digest(prompt), []).append((started_at, call))

    def parent_of(self, prompt: str, started_at: datetime) -> ParentCall | None:
        """Under which span a sub-agent works that was asked this; None when the session began later."""
        for candidates in (self._by_prompt.get(_digest(prompt), ()), self._turns):
            earlier = [parent for moment, parent in candidates if moment <= started_at]
            if earlier:
                return earlier[-1]
        return None


def _digest(prompt: str) -> bytes:
    return hashlib.sha256(prompt.strip().encode("utf-8", "surrogatepass")).digest()[:16]


@attrs.frozen
class _WaitingTool:
    name: str
    arguments: Any
    started_at: datetime


@attrs.define(eq=False)
class AgentTurn:
    """What was asked of an agent and all that it did about it: one trace, or a part of its parent's."""

    identifier: str
    agent: str
    started_at: datetime
    prompt: str
    #: What every span of it says: session, user, repository, branch.
    common: Mapping[str, Any]
    parent: ParentCall | None = None
    ended_at: datetime = attrs.field(default=attrs.Factory(lambda self: self.started_at, takes_self=True))
    answer: str | None = None
    failure: CallFailure | None = None
    #: New since the last model call.
    inputs: list[Message] = attrs.field(factory=list)
    #: When the last of them came: the next model call begins then.
    asked_at: datetime = attrs.field(default=attrs.Factory(lambda self: self.started_at, takes_self=True))
    _has_spans: bool = False
    _waiting: dict[str, _WaitingTool] = attrs.field(factory=dict)

    @property
    def trace_id(self) -> str:
        """Its trace."""
        return self.parent.trace_id if self.parent is not None else hex_id(f"turn {self.identifier}", 16)

    @property
    def root(self) -> ParentCall:
        """Its own span."""
        return ParentCall(self.trace_id, hex_id(f"agent {self.identifier}", 8), self.agent)

    def say(self, message: Message, moment: datetime) -> None:
        """Something that the next model call is given."""
        if len(self.inputs) < _MOST_MESSAGES:
            self.inputs.append(message)
        self.asked_at = moment
        self.reach(moment)

    def take_inputs(self) -> list[Message]:
        """What is new since the last model call, which begins with them."""
        inputs, self.inputs = self.inputs, []
        return inputs

    def reach(self, moment: datetime) -> None:
        """The turn lasted at least until then."""
        self.ended_at = max(self.ended_at, moment)

    def model_call(self, call: TranscribedCall, failure: CallFailure | None = None) -> TurnSpan:
        """The span of a model call."""
        self.reach(call.ended_at)
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": call.provider,
            "gen_ai.request.model": call.model,
            "gen_ai.response.id": call.response_id,
            "gen_ai.response.finish_reasons": [call.finish_reason] if call.finish_reason else None,
            "gen_ai.input.messages": json_text(list(call.inputs)) if call.inputs else None,
            "gen_ai.output.messages": json_text(list(call.outputs)) if call.outputs else None,
            **(call.usage.attributes() if call.usage is not None else {}),
        }
        fields = self._span(
            hex_id(f"call {call.identifier}", 8),
            f"chat {call.model}" if call.model else "chat",
            (call.started_at, call.ended_at),
            attributes,
            failure,
            kind=_CLIENT,
        )
        return TurnSpan(fields, None if call.usage is None else call.usage.total)

    def start_tool(self, call_id: str, name: str, arguments: Any, moment: datetime) -> ParentCall:
        """A tool is called; its span is made when its result comes."""
        if len(self._waiting) >= _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[call_id] = _WaitingTool(name, arguments, moment)
        return ParentCall(self.trace_id, hex_id(f"tool {call_id}", 8))

    def end_tool(
        self, call_id: str, result: Any, moment: datetime, failure: CallFailure | None
    ) -> TurnSpan | None:
        """The span of a tool's call; None when nothing called it."""
        waiting = self._waiting.pop(call_id, None)
        if waiting is None:
            return None
        self.reach(moment)
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": waiting.name,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.type": "mcp" if waiting.name.startswith("mcp__") else "function",
            "gen_ai.tool.call.arguments": None if waiting.arguments is None else json_text(waiting.arguments),
            "gen_ai.tool.call.result": None if result is None else json_text(result),
        }
        return TurnSpan(
            self._span(
                hex_id(f"tool {call_id}", 8),
                f"execute_tool {waiting.name}",
                (waiting.started_at, moment),
                attributes,
                failure,
            )
        )

    def close(self) -> TurnSpan | None:
        """The turn's own span; None for one in which nothing was done."""
        if not self._has_spans:
            return None
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": self.agent,
            "gen_ai.input.messages": json_text([{"role": "user", "content": self.prompt}])
            if self.prompt
            else None,
            "gen_ai.output.messages": json_text([{"role": "assistant", "content": self.answer}])
            if self.answer
            else None,
        }
        root = self.root
        fields = self._span(
            root.span_id,
            f"invoke_agent {self.agent}",
            (self.started_at, self.ended_at),
            attributes,
            self.failure,
        )
        fields["parentSpanId"] = self.parent.span_id if self.parent is not None else ""
        return TurnSpan(fields)

    def _span(
        self,
        span_id: str,
        name: str,
        times: tuple[datetime, datetime],
        attributes: Mapping[str, Any],
        failure: CallFailure | None,
        kind: int = _INTERNAL,
    ) -> dict[str, Any]:
        self._has_spans = True
        started_at, ended_at = times
        spoken = {**self.common, **attributes}
        if failure is not None and failure.kind is not None:
            spoken["error.type"] = failure.kind
        status = {"code": _ERROR, "message": failure.message[:_MESSAGE_CHARS]} if failure is not None else {}
        return {
            "traceId": self.trace_id,
            "spanId": span_id,
            "parentSpanId": self.root.span_id,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": nanoseconds(started_at),
            "endTimeUnixNano": nanoseconds(max(started_at, ended_at)),
            "attributes": pairs_of({key: value for key, value in spoken.items() if value is not None}),
            "status": status,
        }


def count_of(fields: Mapping[str, Any], key: str) -> int | None:
    """A number of tokens; None for anything that is none."""
    value = fields.get(key)
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def text_of(value: Any) -> str | None:
    """A text with something in it."""
    return value if type(value) is str and value.strip() else None


def home_of(folder: str | None) -> str | None:
    """Whose home a working directory is in."""
    parts = [part for part in (folder or "").replace("\\", "/").split("/") if part]
    if parts and parts[0].endswith(":"):
        parts = parts[1:]
    if folder in ("/root",) or (folder or "").startswith("/root/"):
        return "root"
    return parts[1] if len(parts) > 1 and parts[0].lower() in ("home", "users") else None


def repository_of(folder: str | None) -> str | None:
    """The name of the repository that a working directory is of: its last part, or that before a worktree."""
    parts = [part for part in (folder or "").replace("\\", "/").split("/") if part]
    if ".claude" in parts[1:]:
        parts = parts[: parts.index(".claude", 1)]
    return parts[-1] if parts else None
