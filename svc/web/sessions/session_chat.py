"""A session as a chat: what the user said in each trace, what was answered, and the work between the two.

Pure. Called by the page of a session with the spans that speak; what a trace repeats of earlier traces (its
history) is not shown again, since only the last thing that the user said is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from svc.domain.spans.span import TOOL_KINDS
from svc.store.reads.usage.session_talk import TraceTalk
from svc.web.messages.message_parts import Room, Said, Step, steps
from svc.web.shell import words

#: A pause between two traces that is worth a line.
GAP_S: Final = 60.0
_MODELS: Final = frozenset({"llm", "reasoning"})
#: Parts that are no request to a tool and no result of one.
_SHOWN: Final = frozenset({"text", "json", "media", "unknown"})


@attrs.frozen
class Message:
    """What was said, and the span that said it."""

    said: Said
    span_id: str


@attrs.frozen
class ChatTurn:
    """One trace of the conversation, and how long nothing happened before it."""

    trace: dict[str, Any]
    gap_s: float | None
    asked: Sequence[Message] = ()
    answered: Sequence[Message] = ()
    work: Sequence[Step] = ()
    more: bool = False

    @property
    def work_text(self) -> str:
        """What the folded work holds, in a line."""
        told = {"tool call": 0, "model call": 0, "other step": 0}
        failed = 0
        for step in self.work:
            kind = step.span["kind"]
            name = "tool call" if kind in TOOL_KINDS else "model call" if kind in _MODELS else "other step"
            told[name] += step.times
            if step.span["status"] == "error" and name != "model call":
                failed += step.times
        counts = [words.counted(number, name) for name, number in told.items() if number]
        text = " and ".join(filter(None, (", ".join(counts[:-1]), counts[-1])))
        least = "at least " if self.more else ""
        return f"{least}{text}, {words.count(failed)} failed" if failed else least + text


def chat(
    traces: Sequence[dict[str, Any]], talks: Mapping[str, TraceTalk], before: dict[str, Any] | None = None
) -> list[ChatTurn]:
    """The turns of one page; `before` is the trace that the page follows."""
    room, turns = Room(), []
    until = None if before is None else _end(before)
    for trace in traces:
        started_at = words.parsed(trace["started_at"])
        pause_s = None if until is None else (started_at - until).total_seconds()
        gap_s = pause_s if pause_s is not None and pause_s >= GAP_S else None
        talk = talks.get(trace["trace_id"])
        turns.append(ChatTurn(trace, gap_s) if talk is None else _turn(trace, gap_s, talk, room))
        until = _end(trace) if until is None else max(until, _end(trace))
    return turns


def _end(trace: Mapping[str, Any]) -> datetime:
    return words.parsed(trace["ended_at"] or trace["started_at"])


def _turn(trace: dict[str, Any], gap_s: float | None, talk: TraceTalk, room: Room) -> ChatTurn:
    trace_steps = steps(talk.spans, None, room)
    question = _question(trace_steps)
    answer = _answer(trace_steps)
    answers: list[Message] = []
    if answer is not None:
        answers = [_message(message, answer) for message in answer.answered if _is_text(message)]
    work = [
        attrs.evolve(step, asked=[] if step.span["kind"] in _MODELS else step.asked)
        for step in trace_steps
        if step is not answer and step.span["kind"] != "agent"
    ]
    return ChatTurn(trace, gap_s, question, answers, work, talk.more)


def _question(trace_steps: Sequence[Step]) -> list[Message]:
    """What the user said last before the first answer: earlier words are of earlier traces."""
    for step in trace_steps:
        users = [message for message in step.asked if message.role in ("user", "") and _is_text(message)]
        if users and (step.span["kind"] in _MODELS or step.span["kind"] == "agent"):
            return [_message(users[-1], step)]
    return []


def _answer(trace_steps: Sequence[Step]) -> Step | None:
    """The last step that answered in words: of a model where there is one, else of an agent."""
    for kinds in (_MODELS, frozenset({"agent"})):
        for step in reversed(trace_steps):
            if step.span["kind"] in kinds and any(map(_is_text, step.answered)):
                return step
    return None


def _is_text(said: Said) -> bool:
    return any(part.form in _SHOWN for part in said.parts)


def _message(said: Said, step: Step) -> Message:
    parts = [part for part in said.parts if part.form in _SHOWN]
    return Message(attrs.evolve(said, parts=parts), step.span["span_id"])
