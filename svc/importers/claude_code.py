"""Claude Code: the transcript of a session or of a sub-agent, line by line, as spans.

Owns: what the lines of `~/.claude/projects/**/*.jsonl` mean (releases 1 to 2.1). Called by
`svc.importers.transcripts`. Never reads files.

An answer is written block by block, each line with its id and the usage so far: lines of one id are one model
call, and the largest count is the final one. What a sub-agent does stands in a file of its own, named by
`agentId`, or in older releases between the lines of the session (`isSidechain`). A session that was continued
elsewhere begins with copies of its lines, which keep their ids.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import attrs

from svc.importers.source import instant_of, json_text
from svc.importers.turns import (
    AgentTurn,
    CallFailure,
    Calls,
    Message,
    ParentCall,
    TranscribedCall,
    TurnSpan,
    Usage,
    count_of,
    home_of,
    repository_of,
    text_of,
)

AGENT: Final = "claude-code"
_SUB_AGENT: Final = "subagent"
#: The model of what Claude Code wrote itself.
_AN_HOUR: Final = "ephemeral_1h_input_tokens"
_SYNTHETIC: Final = "<synthetic>"
_MAIN: Final = ""
#: Lines of sub-agents whose successors are recognised.
_MOST_LINES: Final = 10_000

NO_LINE: Final = "a line without a message or a time"

#: By how an answer's id begins: who serves the model, where that is not its maker.
_PROVIDERS: Final = (("msg_bdrk_", "aws.bedrock"), ("msg_vrtx_", "gcp.vertex_ai"))


@attrs.define(eq=False)
class _Answer:
    """A model call whose lines are still coming."""

    message_id: str
    identifier: str
    model: str | None
    started_at: datetime
    ended_at: datetime
    inputs: list[Message]
    blocks: list[Any] = attrs.field(factory=list)
    usage: dict[str, Any] = attrs.field(factory=dict)
    stop_reason: str | None = None


@attrs.define(eq=False)
class _Conversation:
    """The session's own, or that of a sub-agent."""

    turn: AgentTurn | None = None
    answer: _Answer | None = None
    model: str | None = None


@attrs.define(eq=False)
class ClaudeCodeTranscript:
    """One file. `calls` learns what it starts; `parents` are those of the session, for a sub-agent's file."""

    user: str | None = None
    parents: Calls | None = None
    calls: Calls = attrs.field(factory=Calls)
    _conversations: dict[str, _Conversation] = attrs.field(factory=dict)
    #: To which conversation a line of a sub-agent between those of the session belongs.
    _sidechains: OrderedDict[str, str] = attrs.field(factory=OrderedDict)

    def feed(self, line: Mapping[str, Any]) -> Iterator[TurnSpan] | None:
        """The spans that a line completes; None for a line that is damaged."""
        kind = line.get("type")
        if kind not in ("user", "assistant"):
            return iter(())
        message, moment = line.get("message"), instant_of(line.get("timestamp"))
        if type(message) is not dict or moment is None:
            return None
        name = self._name_of(line)
        conversation = self._conversations.setdefault(name, _Conversation())
        if kind == "assistant":
            return self._answered(name, conversation, line, message, moment)
        return self._spoken(name, conversation, line, message, moment)

    def finish(self) -> Iterator[TurnSpan]:
        """What was still open when the file ended."""
        for conversation in self._conversations.values():
            yield from _close(conversation)
        self._conversations.clear()

    def _name_of(self, line: Mapping[str, Any]) -> str:
        """Which conversation of the file a line belongs to."""
        if line.get("isSidechain") is not True or self.parents is not None:
            return _MAIN
        key, parent = str(line.get("uuid")), line.get("parentUuid")
        name = text_of(line.get("agentId")) or self._sidechains.get(str(parent)) or key
        self._sidechains[key] = name
        if len(self._sidechains) > _MOST_LINES:
            self._sidechains.popitem(last=False)
        return name

    def _spoken(
        self,
        name: str,
        conversation: _Conversation,
        line: Mapping[str, Any],
        message: Mapping[str, Any],
        moment: datetime,
    ) -> Iterator[TurnSpan]:
        """A prompt, a tool's results, or what Claude Code adds by itself."""
        content = message.get("content")
        blocks = content if type(content) is list else [{"type": "text", "text": content}]
        blocks = [block for block in blocks if type(block) is dict]
        results = [block for block in blocks if block.get("type") == "tool_result"]
        added = line.get("isMeta") is True or line.get("isCompactSummary") is True
        is_prompt = not results and not added
        if conversation.turn is None or (is_prompt and name == _MAIN and self.parents is None):
            if name == _MAIN:
                yield from self.finish()
                self._conversations[_MAIN] = conversation
            conversation.turn = self._begin(name, line, _text(blocks), moment)
        turn = conversation.turn
        for block in results:
            if (span := _result(turn, block, line.get("toolUseResult"), moment)) is not None:
                yield span
        turn.say({"role": "user", "content": [_without_bytes(block) for block in blocks]}, moment)

    def _begin(self, name: str, line: Mapping[str, Any], prompt: str, moment: datetime) -> AgentTurn:
        source = line.get("forkedFrom")
        copied: Mapping[str, Any] = source if type(source) is dict else {}
        identifier = str(copied.get("messageUuid") or line.get("uuid"))
        parents = self.calls if name != _MAIN else self.parents
        parent, agent = None, AGENT
        if parents is not None:
            parent = parents.parent_of(prompt, moment)
            identifier = f"{line.get('sessionId')} {text_of(line.get('agentId')) or identifier}"
            # A turn's own span names the session's agent, not this one.
            agent = _SUB_AGENT if parent is None or parent.agent in (None, AGENT) else str(parent.agent)
        turn = AgentTurn(identifier, agent, moment, prompt, self._common(line, copied), parent)
        if name == _MAIN:
            self.calls.add_turn(moment, turn.root)
        return turn

    def _common(self, line: Mapping[str, Any], copied: Mapping[str, Any]) -> dict[str, Any]:
        folder = text_of(line.get("cwd"))
        return {
            "gen_ai.conversation.id": text_of(copied.get("sessionId")) or text_of(line.get("sessionId")),
            "user.id": self.user or home_of(folder),
            "vcs.repository.name": repository_of(folder),
            "vcs.ref.head.name": text_of(line.get("gitBranch")),
            "process.working_directory": folder,
            "gen_ai.agent.version": text_of(line.get("version")),
        }

    def _answered(
        self,
        name: str,
        conversation: _Conversation,
        line: Mapping[str, Any],
        message: Mapping[str, Any],
        moment: datetime,
    ) -> Iterator[TurnSpan]:
        turn = conversation.turn
        if turn is None:
            # The file begins within a turn.
            turn = conversation.turn = self._begin(name, line, "", moment)
        if message.get("model") == _SYNTHETIC:
            yield from _finish_answer(conversation)
            if line.get("isApiErrorMessage") is True:
                yield _failed_call(conversation, turn, line, message, moment)
            return
        message_id = str(message.get("id") or line.get("uuid"))
        answer = conversation.answer
        if answer is None or answer.message_id != message_id:
            yield from _finish_answer(conversation)
            identifier = f"{message_id} {line.get('requestId') or ''}"
            model = text_of(message.get("model"))
            answer = _Answer(message_id, identifier, model, turn.asked_at, moment, turn.take_inputs())
            conversation.answer, conversation.model = answer, model or conversation.model
        answer.ended_at = max(answer.ended_at, moment)
        answer.stop_reason = text_of(message.get("stop_reason")) or answer.stop_reason
        _add_usage(answer.usage, message.get("usage"))
        content = message.get("content")
        for block in content if type(content) is list else [{"type": "text", "text": content}]:
            if type(block) is dict:
                answer.blocks.append(_without_bytes(block))
                self._note(turn, block, moment)

    def _note(self, turn: AgentTurn, block: Mapping[str, Any], moment: datetime) -> None:
        """What an answer's block says to the turn: its text, or the call of a tool."""
        if block.get("type") == "text":
            turn.answer = text_of(block.get("text")) or turn.answer
        elif block.get("type") == "tool_use" and (call_id := text_of(block.get("id"))) is not None:
            arguments = block.get("input")
            call = turn.start_tool(call_id, str(block.get("name")), arguments, moment)
            if type(arguments) is dict and (prompt := text_of(arguments.get("prompt"))) is not None:
                agent = text_of(arguments.get("subagent_type"))
                self.calls.add_call(moment, prompt, ParentCall(call.trace_id, call.span_id, agent))


def _close(conversation: _Conversation) -> Iterator[TurnSpan]:
    yield from _finish_answer(conversation)
    if conversation.turn is not None and (root := conversation.turn.close()) is not None:
        yield root
    conversation.turn = None


def _finish_answer(conversation: _Conversation) -> Iterator[TurnSpan]:
    answer, turn = conversation.answer, conversation.turn
    if answer is None or turn is None:
        return
    conversation.answer = None
    provider = next(
        (provider for start, provider in _PROVIDERS if answer.message_id.startswith(start)),
        # Others answer through the same interface, too.
        "anthropic" if "claude" in (answer.model or "").lower() else None,
    )
    yield turn.model_call(
        TranscribedCall(
            answer.identifier,
            answer.model,
            provider,
            answer.started_at,
            answer.ended_at,
            answer.inputs,
            [{"role": "assistant", "content": answer.blocks}],
            _usage(answer.usage),
            answer.message_id,
            answer.stop_reason,
        )
    )


def _failed_call(
    conversation: _Conversation,
    turn: AgentTurn,
    line: Mapping[str, Any],
    message: Mapping[str, Any],
    moment: datetime,
) -> TurnSpan:
    content = message.get("content")
    words = _text(content if type(content) is list else []) or "the model could not be reached"
    model = conversation.model
    provider = "anthropic" if "claude" in (model or "") else None
    call = TranscribedCall(
        str(line.get("uuid")), model, provider, turn.asked_at, moment, turn.take_inputs(), (), None
    )
    return turn.model_call(call, CallFailure(words, text_of(line.get("error"))))


def _result(turn: AgentTurn, block: Mapping[str, Any], detail: Any, moment: datetime) -> TurnSpan | None:
    content = block.get("content")
    blocks = [part for part in content if type(part) is dict] if type(content) is list else None
    result = content if blocks is None else [_without_bytes(part) for part in blocks]
    if blocks is not None and all(part.get("type") == "text" for part in blocks):
        result = _text(blocks)
    failure = None
    if block.get("is_error") is True:
        words = result if type(result) is str else json_text(result)
        failure = CallFailure(words or text_of(detail) or "the tool failed")
    return turn.end_tool(str(block.get("tool_use_id")), result, moment, failure)


def _add_usage(usage: dict[str, Any], more: Any) -> None:
    """Counts are of the answer so far: the largest is the final one."""
    if type(more) is not dict:
        return
    for key in (
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    ):
        if (number := count_of(more, key)) is not None:
            usage[key] = max(number, usage.get(key, 0))
    if type(creation := more.get("cache_creation")) is dict:
        hour_tokens = count_of(creation, _AN_HOUR)
        if hour_tokens is not None:
            usage[_AN_HOUR] = max(hour_tokens, usage.get(_AN_HOUR, 0))
    if (tier := text_of(more.get("service_tier"))) is not None:
        usage["service_tier"] = tier


def _usage(usage: Mapping[str, Any]) -> Usage | None:
    if "input_tokens" not in usage and "output_tokens" not in usage:
        return None
    read, write = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    return Usage(
        usage.get("input_tokens", 0) + (read or 0) + (write or 0),
        usage.get("output_tokens", 0),
        read,
        write,
        cache_write_1h=usage.get(_AN_HOUR),
        service_tier=usage.get("service_tier"),
    )


def _text(blocks: list[Any]) -> str:
    texts = (block.get("text") for block in blocks if type(block) is dict and type(block.get("text")) is str)
    return "\n".join(text for text in texts if text)


def _without_bytes(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block without pictures, files and signatures: what they show is not read here."""
    source = block.get("source")
    if block.get("type") in ("image", "document") and type(source) is dict and "data" in source:
        return {"type": "blob", "modality": block["type"], "mime_type": source.get("media_type")}
    content = block.get("content")
    if type(content) is list:
        return {**block, "content": [_without_bytes(part) for part in content if type(part) is dict]}
    return {key: value for key, value in block.items() if key != "signature"}
