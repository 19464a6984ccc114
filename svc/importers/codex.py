"""Codex: the rollout of a thread, line by line, as spans.

Owns: what the lines of `~/.codex/sessions/**/rollout-*.jsonl` mean (releases 0.40 to 0.169). Called by
`svc.importers.transcripts`. Never reads files.

What a model wrote stands before its usage (`token_count`, in newer releases `token_usage_record`), what its
tools returned behind it. Usage is told again when nothing was used, with the same totals. A thread that was
forked begins with copies of the turns before, which are those of another file and left out. A sub-agent is a
thread of its own, which names its parent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import msgspec

from svc.importers.source import instant_of, json_text
from svc.importers.turns import (
    AgentTurn,
    CallFailure,
    Calls,
    Message,
    TranscribedCall,
    TurnSpan,
    Usage,
    count_of,
    home_of,
    repository_of,
    text_of,
)

AGENT: Final = "codex"
_SUB_AGENT: Final = "subagent"

NO_LINE: Final = "a line without a payload or a time"

#: What a model's answer is made of; everything else among the items is given to it.
_ANSWERS: Final = frozenset({"reasoning", "function_call", "custom_tool_call", "local_shell_call"})
_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
#: A command that failed says so in what it returns.
_EXIT: Final = re.compile(r"^(?:Process exited with code|Exit code:) *(-?[0-9]+)", re.MULTILINE)
_HEAD_CHARS: Final = 500
#: Copies of a fork are written at once, when it begins.
_COPYING: Final = timedelta(seconds=2)
_UUID7_CHARS: Final = 36
#: Outcomes that wait for their results.
_MOST_OUTCOMES: Final = 1_000


@attrs.define(eq=False)
class CodexRollout:
    """One file. `calls` learns what it starts; `parents` are those of the thread above, for a sub-agent's."""

    user: str | None = None
    parents: Calls | None = None
    calls: Calls = attrs.field(factory=Calls)
    _thread: str | None = None
    _began_at: datetime | None = None
    _is_fork: bool = False
    _common: dict[str, Any] = attrs.field(factory=dict)
    _provider: str | None = None
    _model: str | None = None
    _turn: AgentTurn | None = None
    #: What is told behind this is of a turn without an id of its own, by its number.
    _number: int = 0
    _turn_id: str | None = None
    _calls_made: int = 0
    #: What the present answer was given, once it began, and what it is made of.
    _given: list[Message] | None = None
    _asked_at: datetime | None = None
    _answer: list[Message] = attrs.field(factory=list)
    _total: int | None = None
    _outcomes: dict[str, CallFailure | None] = attrs.field(factory=dict)
    _copying: bool = False

    def feed(self, line: Mapping[str, Any]) -> Iterator[TurnSpan] | None:
        """The spans that a line completes; None for a line that is damaged."""
        payload, moment = line.get("payload"), instant_of(line.get("timestamp"))
        if type(payload) is not dict or moment is None:
            return None
        match line.get("type"):
            case "session_meta":
                return self._meta(payload, moment)
            case "turn_context":
                return self._context(payload, moment)
            case "response_item" if not self._copying:
                return self._item(payload, moment)
            case "event_msg":
                return self._event(payload, moment)
            case "token_usage_record" if not self._copying:
                total = payload.get("thread_token_usage")
                return self._used(payload.get("usage"), total, moment, text_of(payload.get("response_id")))
            case _:
                return iter(())

    def finish(self) -> Iterator[TurnSpan]:
        """What was still open when the file ended."""
        turn, self._turn = self._turn, None
        self._given, self._answer = None, []
        if turn is not None and (root := turn.close()) is not None:
            yield root

    def _meta(self, payload: Mapping[str, Any], moment: datetime) -> Iterator[TurnSpan]:
        thread = text_of(payload.get("id"))
        if self._thread is not None:
            # Only a fork holds the beginning of another thread.
            self._is_fork = self._copying = self._is_fork or thread != self._thread
            return iter(())
        self._thread, self._began_at = thread, moment
        self._is_fork = self._copying = text_of(payload.get("forked_from_id")) is not None
        self._provider = text_of(payload.get("model_provider"))
        git = payload.get("git")
        git_info: Mapping[str, Any] = git if type(git) is dict else {}
        url = text_of(git_info.get("repository_url"))
        folder = text_of(payload.get("cwd"))
        session = text_of(payload.get("session_id")) or parent_thread(payload) or thread
        self._common = {
            "gen_ai.conversation.id": session,
            "user.id": self.user or home_of(folder),
            "vcs.repository.name": _repository(url) or repository_of(folder),
            "vcs.repository.url.full": url,
            "vcs.ref.head.name": text_of(git_info.get("branch")),
            "vcs.ref.head.revision": text_of(git_info.get("commit_hash")),
            "process.working_directory": folder,
            "gen_ai.agent.version": text_of(payload.get("cli_version")),
        }
        return iter(())

    def _is_copied(self, turn_id: str | None, moment: datetime) -> bool:
        """Whether a turn is one of those before the fork: it began before the thread did."""
        if not self._is_fork:
            return False
        if turn_id is not None and len(turn_id) == _UUID7_CHARS and self._thread is not None:
            # The ids of both begin with their time.
            return turn_id < self._thread
        return self._began_at is not None and moment - self._began_at < _COPYING

    def _begin(self, turn_id: str | None, moment: datetime) -> Iterator[TurnSpan]:
        if turn_id is not None and turn_id == self._turn_id:
            return
        # Older releases write the prompt before they say that a turn begins.
        early = self._turn.take_inputs() if turn_id is None and self._turn is not None else []
        yield from self.finish()
        self._turn_id, self._calls_made = turn_id, 0
        self._number += 1
        self._copying = self._is_copied(turn_id, moment)
        if self._copying:
            return
        identifier = f"{self._thread} {turn_id or self._number}"
        parent = None if self.parents is None else self.parents.parent_of("", moment)
        self._turn = AgentTurn(identifier, AGENT, moment, "", self._common, parent, inputs=early)
        self.calls.add_turn(moment, self._turn.root)

    def _context(self, payload: Mapping[str, Any], moment: datetime) -> Iterator[TurnSpan]:
        self._model = text_of(payload.get("model")) or self._model
        if (turn_id := text_of(payload.get("turn_id"))) is not None:
            yield from self._begin(turn_id, moment)

    def _item(self, item: Mapping[str, Any], moment: datetime) -> Iterator[TurnSpan]:
        if self._turn is None:
            yield from self._begin(None, moment)
        turn = self._turn
        if turn is None:
            return
        kind = item.get("type")
        if kind in _RESULTS:
            yield from self._result(turn, item, moment)
            turn.say(_message(item), moment)
        elif kind == "message" and item.get("role") != "assistant":
            turn.say(_message(item), moment)
        elif kind in _ANSWERS or kind in ("message", "web_search_call"):
            if self._given is None:
                self._given, self._asked_at = turn.take_inputs(), turn.asked_at
            self._answer.append(_message(item))
            turn.reach(moment)
            yield from self._called(turn, item, moment)

    def _called(self, turn: AgentTurn, item: Mapping[str, Any], moment: datetime) -> Iterator[TurnSpan]:
        """What an item of an answer says to the turn: its text, or the call of a tool."""
        kind, call_id = item.get("type"), text_of(item.get("call_id")) or text_of(item.get("id"))
        if kind == "message":
            turn.answer = _text(item.get("content")) or turn.answer
        elif kind == "web_search_call":
            # The provider searched: there is no result to wait for.
            call_id = call_id or f"{turn.identifier} {self._calls_made} {len(self._answer)}"
            turn.start_tool(call_id, "web_search", item.get("action"), moment)
            if (span := turn.end_tool(call_id, None, moment, None)) is not None:
                yield span
        elif call_id is not None and kind != "reasoning":
            name = "local_shell" if kind == "local_shell_call" else _tool_name(item)
            arguments = item.get("arguments", item.get("input", item.get("action")))
            call = turn.start_tool(call_id, name, arguments, moment)
            if (prompt := _asked_of_agent(arguments)) is not None:
                self.calls.add_call(moment, prompt, call)

    def _result(self, turn: AgentTurn, item: Mapping[str, Any], moment: datetime) -> Iterator[TurnSpan]:
        call_id, output = str(item.get("call_id")), item.get("output")
        result = output
        if type(output) is dict and "content" in output:
            result = output["content"]
        if type(result) is list:
            result = _text(result) or result
        failure = self._outcomes.pop(call_id, None) or _failure_in(output, result)
        if (span := turn.end_tool(call_id, result, moment, failure)) is not None:
            yield span

    def _event(self, event: Mapping[str, Any], moment: datetime) -> Iterator[TurnSpan]:
        kind = event.get("type")
        if kind in ("task_started", "turn_started"):
            yield from self._begin(text_of(event.get("turn_id")), moment)
        elif (
            # Older releases do not say where a turn begins.
            kind == "user_message"
            and self._turn_id is None
            and (self._turn is None or self._calls_made or self._answer)
        ):
            yield from self._begin(None, moment)
        if self._copying or self._turn is None:
            return
        turn = self._turn
        match kind:
            case "user_message":
                self._prompted(turn, text_of(event.get("message")) or "")
            case "token_count":
                info = event.get("info")
                if type(info) is dict:
                    total = info.get("total_token_usage")
                    yield from self._used(info.get("last_token_usage"), total, moment, None)
            case "exec_command_end" | "patch_apply_end" | "mcp_tool_call_end":
                if len(self._outcomes) < _MOST_OUTCOMES:
                    self._outcomes[str(event.get("call_id"))] = _outcome(event)
            case "error":
                words = text_of(event.get("message")) or "the turn failed"
                turn.failure = CallFailure(words, text_of(event.get("codex_error_info")))
                turn.reach(moment)
            case "task_complete" | "turn_complete" | "turn_aborted":
                turn.answer = text_of(event.get("last_agent_message")) or turn.answer
                turn.reach(moment)
            case _:
                pass

    def _prompted(self, turn: AgentTurn, prompt: str) -> None:
        if turn.prompt:
            return
        turn.prompt = prompt
        if self.parents is not None:
            turn.parent = self.parents.parent_of(prompt, turn.started_at)
            turn.agent = _SUB_AGENT
            self.calls.add_turn(turn.started_at, turn.root)

    def _used(self, usage: Any, total: Any, moment: datetime, response_id: str | None) -> Iterator[TurnSpan]:
        """A model's answer is whole: this is what it used."""
        turn = self._turn
        used_in_all = count_of(total, "total_tokens") if type(total) is dict else None
        if turn is None or type(usage) is not dict:
            return
        if used_in_all is not None and used_in_all == self._total:
            return
        self._total = used_in_all
        self._calls_made += 1
        inputs = turn.take_inputs() if self._given is None else self._given
        asked_at = turn.asked_at if self._asked_at is None else self._asked_at
        call = TranscribedCall(
            f"{turn.identifier} {self._calls_made}",
            self._model,
            self._provider,
            min(asked_at, moment),
            moment,
            inputs,
            self._answer,
            Usage(
                count_of(usage, "input_tokens") or 0,
                count_of(usage, "output_tokens") or 0,
                count_of(usage, "cached_input_tokens"),
                count_of(usage, "cache_write_input_tokens"),
                count_of(usage, "reasoning_output_tokens"),
            ),
            response_id,
        )
        self._given, self._asked_at, self._answer = None, None, []
        yield turn.model_call(call)


def parent_thread(meta: Mapping[str, Any]) -> str | None:
    """The thread that started this one as a sub-agent."""
    if (thread := text_of(meta.get("parent_thread_id"))) is not None:
        return thread
    source = meta.get("source")
    started = source.get("subagent") if type(source) is dict else None
    spawn = started.get("thread_spawn") if type(started) is dict else None
    return text_of(spawn.get("parent_thread_id")) if type(spawn) is dict else None


def _repository(url: str | None) -> str | None:
    return None if url is None else url.rstrip("/").removesuffix(".git").replace(":", "/").rpartition("/")[2]


def _tool_name(item: Mapping[str, Any]) -> str:
    name, space = str(item.get("name")), text_of(item.get("namespace"))
    return name if space is None else f"{space}{name}" if space.endswith("__") else f"{space}__{name}"


def _asked_of_agent(arguments: Any) -> str | None:
    """What a call asks of a sub-agent."""
    if type(arguments) is not str or '"message"' not in arguments:
        return None
    try:
        fields = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return text_of(fields.get("message")) if type(fields) is dict else None


def _text(content: Any) -> str:
    parts = content if type(content) is list else ()
    texts = (part.get("text") for part in parts if type(part) is dict)
    return "\n".join(text for text in texts if type(text) is str and text)


def _message(item: Mapping[str, Any]) -> Message:
    """An item as the Responses API has it, without what is encrypted and pictures in it."""
    match item.get("type"):
        case "message":
            content = item.get("content")
            parts = [_without_bytes(part) for part in content] if type(content) is list else content
            return {"type": "message", "role": item.get("role"), "content": parts}
        case "custom_tool_call" | "local_shell_call" | "web_search_call" as kind:
            name = _tool_name(item) if kind == "custom_tool_call" else kind.removesuffix("_call")
            arguments = item.get("input", item.get("action"))
            return {
                "type": "function_call",
                "call_id": item.get("call_id", item.get("id")),
                "name": name,
                "arguments": json_text(arguments),
            }
        case "custom_tool_call_output":
            return {**item, "type": "function_call_output"}
        case _:
            return {key: value for key, value in item.items() if key != "encrypted_content"}


def _without_bytes(part: Any) -> Any:
    url = part.get("image_url") if type(part) is dict else None
    if type(url) is str and url.startswith("data:"):
        return {"type": "blob", "modality": "image", "mime_type": url[5:].partition(";")[0]}
    return part


def _outcome(event: Mapping[str, Any]) -> CallFailure | None:
    """Whether what a tool did went wrong, as its own event says."""
    match event.get("type"):
        case "exec_command_end":
            code = event.get("exit_code")
            words = text_of(event.get("aggregated_output")) or text_of(event.get("stderr"))
            return CallFailure(words or f"exit code {code}") if type(code) is int and code else None
        case "patch_apply_end":
            words = text_of(event.get("stderr")) or text_of(event.get("stdout"))
            return (
                CallFailure(words or "the patch was not applied") if event.get("success") is False else None
            )
        case _:
            result = event.get("result")
            if type(result) is not dict:
                return None
            if "Err" in result:
                return CallFailure(text_of(result["Err"]) or json_text(result["Err"]))
            answer = result.get("Ok")
            if type(answer) is dict and (answer.get("isError") or answer.get("is_error")) is True:
                return CallFailure(_text(answer.get("content")) or "the tool failed")
            return None


def _failure_in(output: Any, result: Any) -> CallFailure | None:
    """Whether a result says that the tool failed."""
    words = result if type(result) is str else json_text(result)
    if type(output) is dict and output.get("success") is False:
        return CallFailure(words)
    if type(result) is not str:
        return None
    if result.startswith("{"):
        try:
            fields = msgspec.json.decode(result)
        except (msgspec.DecodeError, UnicodeDecodeError):
            fields = None
        metadata = fields.get("metadata") if type(fields) is dict else None
        code = metadata.get("exit_code") if type(metadata) is dict else None
        return CallFailure(text_of(fields.get("output")) or words) if type(code) is int and code else None
    exit_line = _EXIT.search(result[:_HEAD_CHARS])
    return CallFailure(words) if exit_line is not None and int(exit_line[1]) else None
