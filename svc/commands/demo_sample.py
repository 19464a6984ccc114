"""The small set of traces that `trace-svc demo` sends: two applications within the last hour.

Owns: `traces`, which speak OTel GenAI and OpenInference, and hold a tool that fails, cached tokens, sessions
and one model that has no price: in each demo, whatever the dice say. Called by `demo`. Shares no service,
agent, tool or user with the story of `demo --weeks`. Pure: the clock and the dice are handed in.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from svc.commands.demo_recorder import Attributes, as_json, pairs

TRACES: Final = 24
#: The services that its spans come from.
SERVICES: Final = ("parcel-desk", "doc-search")

_QUESTIONS: Final = (
    "Which of my orders is late?",
    "Cancel the blue jacket, please.",
    "Where can I pick up my parcel?",
    "Why was I charged twice in October?",
)
_ANSWERS: Final = (
    "Order 7731 left the warehouse two days late and arrives on Friday.",
    "Done: the blue jacket is cancelled and refunded to your card.",
    "Your parcel waits at the corner shop until Saturday, 18:00.",
    "The second charge was a deposit; it went back on the 28th.",
)
#: Which provider and model answers, one for each trace of the agent: the dice deal them out.
_MODELS: Final = (
    *[("openai", "gpt-4o")] * 5,
    *[("openai", "gpt-4o-mini")] * 5,
    *[("anthropic", "claude-sonnet-4-5")] * 4,
    *[("in-house", "house-llm-13b")] * 2,
)
#: How many of the agent's tool calls fail.
_FAILING: Final = 3


class _Story:
    """One trace in the making: spans one after the other under a root."""

    def __init__(self, dice: random.Random, started_at: datetime) -> None:
        self.trace_id = dice.randbytes(16)
        self._dice, self._at = dice, started_at
        self.spans: list[Span] = []

    def span(
        self, name: str, attributes: Attributes, *, parent: Span | None = None, error: str | None = None
    ) -> Span:
        took = timedelta(milliseconds=self._dice.randint(80, 2500))
        start = int(self._at.timestamp() * 1e9)
        span = Span(
            trace_id=self.trace_id,
            span_id=self._dice.randbytes(8),
            parent_span_id=parent.span_id if parent is not None else b"",
            name=name,
            kind=Span.SPAN_KIND_CLIENT,
            start_time_unix_nano=start,
            end_time_unix_nano=start + int(took.total_seconds() * 1e9),
            attributes=pairs(attributes),
        )
        if error is not None:
            span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=error))
        self.spans.append(span)
        if parent is not None:
            self._at += took
            parent.end_time_unix_nano = max(parent.end_time_unix_nano, span.end_time_unix_nano)
        return span


def _parcel_agent(story: _Story, session: str, turn: int, answering: tuple[str, str], failed: bool) -> _Story:
    """An agent that asks a model, calls a tool and answers; told in OTel GenAI conventions."""
    provider, model = answering
    question, answer = _QUESTIONS[turn % 4], _ANSWERS[turn % 4]
    identity: Attributes = {"gen_ai.conversation.id": session, "user.id": f"visitor-{turn % 5}"}
    root = story.span(
        "invoke_agent parcel-desk",
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "parcel-desk", **identity},
    )
    conversation = [{"role": "user", "parts": [{"type": "text", "content": question}]}]
    call = {"type": "tool_call", "id": f"call-{turn}", "name": "find_parcel", "arguments": {"order": 7731}}
    chat: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        **identity,
    }
    story.span(
        f"chat {model}",
        {
            **chat,
            "gen_ai.input.messages": as_json(conversation),
            "gen_ai.output.messages": as_json([{"role": "assistant", "parts": [call]}]),
            "gen_ai.usage.input_tokens": 420 + 13 * turn,
            "gen_ai.usage.cache_read.input_tokens": 256,
            "gen_ai.usage.output_tokens": 31,
        },
        parent=root,
    )
    story.span(
        "execute_tool find_parcel",
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "find_parcel",
            "gen_ai.tool.call.id": f"call-{turn}",
            "gen_ai.tool.call.arguments": as_json(call["arguments"]),
            **({"error.type": "TimeoutError"} if failed else {"gen_ai.tool.call.result": '{"late": true}'}),
            **identity,
        },
        parent=root,
        error="the order service did not answer" if failed else None,
    )
    story.span(
        f"chat {model}",
        {
            **chat,
            "gen_ai.input.messages": as_json([*conversation, {"role": "assistant", "parts": [call]}]),
            "gen_ai.output.messages": as_json(
                [
                    {
                        "role": "assistant",
                        "parts": [{"type": "text", "content": answer}],
                        "finish_reason": "stop",
                    }
                ]
            ),
            "gen_ai.usage.input_tokens": 510 + 13 * turn,
            "gen_ai.usage.cache_read.input_tokens": 420,
            "gen_ai.usage.output_tokens": 64,
        },
        parent=root,
    )
    return story


def _document_search(story: _Story, session: str, turn: int) -> _Story:
    """Retrieval and an answer, told in OpenInference."""
    question, answer = _QUESTIONS[turn % 4], _ANSWERS[turn % 4]
    identity: Attributes = {"session.id": session, "user.id": f"visitor-{turn % 5}"}
    root = story.span(
        "answer_from_docs",
        {"openinference.span.kind": "CHAIN", "input.value": question, "output.value": answer, **identity},
    )
    story.span(
        "retrieve",
        {
            "openinference.span.kind": "RETRIEVER",
            "input.value": question,
            "retrieval.documents.0.document.id": "faq-12",
            "retrieval.documents.0.document.score": 0.82,
            **identity,
        },
        parent=root,
    )
    story.span(
        "ChatCompletion",
        {
            "openinference.span.kind": "LLM",
            "llm.provider": "openai",
            "llm.model_name": "gpt-4o-mini",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": question,
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": answer,
            "llm.token_count.prompt": 900 + turn,
            "llm.token_count.completion": 48,
            **identity,
        },
        parent=root,
    )
    return story


def traces(dice: random.Random, now: datetime) -> Iterator[tuple[str, list[Span]]]:
    """The sample traces: a service name and its spans."""
    calls = [(model, number < _FAILING) for number, model in enumerate(dice.sample(_MODELS, len(_MODELS)))]
    dice.shuffle(calls)
    for number in range(TRACES):
        session = f"demo-{now:%H%M%S}-{number // 4}"
        story = _Story(dice, now - timedelta(minutes=55) + timedelta(minutes=2 * number))
        if number % 3:
            yield "parcel-desk", _parcel_agent(story, session, number, *calls.pop()).spans
        else:
            yield "doc-search", _document_search(story, session, number).spans
