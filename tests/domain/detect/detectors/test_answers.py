"""Laws of answers: as text or as values, plain or odd, the same answer says the same."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.otlp.reading import walk
from svc.domain.detect.detectors.answers import Answer
from svc.domain.detect.detectors.settled_trace import texts_of
from tests.wire import event, request, span

odd: st.SearchStrategy[Any] = st.sampled_from(
    [None, "", " ", "stop", "tool-call", 7, 1.5, True, [], {}, {"a": [1, None]}, '{"b": 2}', "[1", "\x00é"]
)
kinds = st.sampled_from(["text", "tool_call", "reasoning", "image", "tool_call_response", "", None])
a_part = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "content": st.text(max_size=8)}),
    st.fixed_dictionaries(
        {"type": st.just("tool_call"), "name": odd, "arguments": odd}, optional={"id": odd}
    ),
    st.fixed_dictionaries(
        {}, optional={"type": kinds, "content": odd, "text": odd, "name": odd, "args": odd}
    ),
)
messages = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["assistant", "assistant", "model", ""]),
            "parts": st.lists(a_part, max_size=3),
        },
        optional={"finish_reason": odd, "content": odd, "tool_calls": odd},
    ),
    min_size=1,
    max_size=2,
)


def told(sent: Any, *events: Any, **more: Any) -> dict[str, Any]:
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": sent} | more
    (one,) = walk(request(span(attributes=attributes, events=list(events))))
    found = texts_of(one, "llm")
    calls = [(call.name, call.arguments) for call in found.calls]
    said = None if found.said is None else found.said.strip()
    return {k: v for k, v in msgspec.structs.asdict(found).items() if k not in ("given", "tools_heard")} | {
        "calls": calls,
        "said": said,
    }


@given(messages, st.booleans())
def test_an_answer_says_the_same_as_text_and_as_values(answer: list[Any], compact: bool) -> None:
    text = json.dumps(answer, separators=(",", ":") if compact else (", ", ": "))
    # A blank before it is enough for it not to be taken as plain.
    assert told(text) == told(f" {text}")
    assert told(text) == told(answer)


DEEP = "[" * 2000 + "]" * 2000
PLAIN = '[{"role":"assistant","parts":[{"type":"text","content":"On its way."}],"finish_reason":"stop"}]'


@pytest.mark.parametrize(
    "text",
    [
        PLAIN[:-1],
        PLAIN + "x",
        PLAIN.replace('"stop"', "NaN"),
        PLAIN.replace("way", "\\ud800"),
        PLAIN.replace('"content"', '"content":"before","content"'),
        PLAIN[:-1] + ',{"role":"assistant","parts":[]}]',
        PLAIN[:-1] + ',{"role":"assistant","parts":[{"type":"tool_call","name":"look"}]}]',
        PLAIN[:-1] + ',"bare words"]',
        '[{"role":"assistant","parts":[{"type":"tool_call","name":"f","arguments":' + DEEP + "}]}]",
    ],
)
def test_what_only_begins_as_a_plain_answer_is_read_as_any_other(text: str) -> None:
    assert told(text) == told(f" {text}")


def test_events_and_other_dialects_are_heard_as_before() -> None:
    choice = event("gen_ai.choice", {"message": '{"content": "elsewhere"}'})
    assert told(PLAIN, choice) == told(f" {PLAIN}", choice)
    beside = {"openinference.span.kind": "LLM", "llm.output_messages.0.message.content": "by another"}
    assert told(PLAIN, **beside) == told(f" {PLAIN}", **beside)


def test_a_plain_answer_is_taken_as_such() -> None:
    (one,) = walk(
        request(span(attributes={"gen_ai.operation.name": "chat", "gen_ai.output.messages": PLAIN}))
    )

    class Alone:
        """Knows of nothing else."""

        def answer(self, _: Any) -> str:
            return PLAIN

    alone: Any = Alone()
    found = Answer(one, alone)
    assert (found.captured, found.said, found.reasons) == (True, "On its way.", ["stop"])
