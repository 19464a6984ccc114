"""Laws of lean spans: detectors see without what others said again in a history what they see with it."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.otlp.reading import WireSpan, walk
from svc.domain.detect.detectors.settled_trace import SpanTexts, texts_of
from svc.domain.intake.packing import Frame, Packer, frames, pack_message, unpack_messages
from svc.domain.spans.conversation_history import said_by_others
from svc.domain.spans.span import Kind
from tests.wire import request, span

DAY = date(2026, 11, 20)
WORDS = "the parcel has left the warehouse and arrives on Friday " * 5


def text_part(words: str) -> dict[str, Any]:
    return {"type": "text", "content": words}


MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "parts": [text_part("You help. " + WORDS)]},
    {"role": "system", "content": "Be kind. " + WORDS},
    {"role": "user", "parts": [text_part("Where is it? " + WORDS)]},
    {"role": "user", "content": "And now? " + WORDS},
    {"role": "user", "content": "Nothing. " + WORDS, "parts": []},
    {"role": "assistant", "parts": [text_part('{"sum": 1} ' + WORDS)]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": {"rows": [WORDS]}}]},
    {"role": "assistant", "content": [{"type": "text", "text": WORDS}]},
    {"content": "who? " + WORDS, "role": "system"},
    {"role": "user", "content": "short"},
    {"role": "", "type": "system", "content": "Odd. " + WORDS},
]
histories = st.lists(st.sampled_from(MESSAGES), max_size=6)


def packed(packer: Packer, *sent: WireSpan) -> tuple[Frame, dict[bytes, bytes]]:
    """Their frame, and the messages by hash."""
    parts = [packer.take_apart(1, DAY, one) for one in sent]
    ((_, body),) = frames((one.span_id, of_one) for one, of_one in zip(sent, parts, strict=True))
    return Frame(body), {digest: text for of_one in parts for digest, text in of_one.messages.items()}


def wires(attributes: list[dict[str, Any]]) -> list[WireSpan]:
    chat = {"gen_ai.operation.name": "chat"}
    spans = [span(span_id=n.to_bytes(8, "big"), attributes=chat | a) for n, a in enumerate(attributes, 1)]
    return list(walk(request(*spans, resource={"service.name": "shop"})))


def told(texts: SpanTexts) -> dict[str, Any]:
    return {
        k: v for k, v in msgspec.structs.asdict(texts).items() if k not in ("given", "sure", "tools_heard")
    }


def lean_texts(
    frame: Frame, one: WireSpan, messages: dict[bytes, bytes], kind: Kind = "llm"
) -> tuple[SpanTexts, int]:
    """What the span says, read without the messages that it can do without."""
    needed = frame.needed([one.span_id], lean=True)
    read, spared = frame.lean(one.span_id, {digest: messages[digest] for digest in needed})
    return texts_of(read, kind, spared), spared


@given(
    st.lists(
        st.tuples(histories, st.lists(st.sampled_from(MESSAGES), max_size=1), st.booleans(), st.booleans()),
        max_size=5,
    ),
    st.sampled_from(["llm", "tool"]),
)
def test_a_lean_span_says_the_same_or_that_it_is_not_sure(
    calls: list[tuple[list[Any], list[Any], bool, bool]], kind: Kind
) -> None:
    attributes = []
    for history, answer, answer_first, compact in calls:
        separators = (",", ":") if compact else (", ", ": ")
        given_said = {"gen_ai.input.messages": json.dumps(history, separators=separators)}
        answered = {"gen_ai.output.messages": json.dumps(answer, separators=separators)}
        attributes.append(answered | given_said if answer_first else given_said | answered)
    if not attributes:
        return
    sent = wires(attributes)
    frame, messages = packed(Packer(), *sent)
    for one in sent:
        lean, _ = lean_texts(frame, one, messages, kind)
        assert not lean.sure or told(lean) == told(texts_of(one, kind))


def test_of_a_history_that_comes_again_only_the_system_is_fetched() -> None:
    history = [MESSAGES[0], MESSAGES[2]]
    turns = []
    for n in range(5):
        turns.append({"gen_ai.input.messages": json.dumps(history)})
        history += [
            {"role": "assistant", "parts": [text_part(f"{n} {WORDS}")]},
            {"role": "user", "parts": [text_part(f"{n}? {WORDS}")]},
        ]
    sent = wires(turns)
    frame, messages = packed(Packer(), *sent)
    assert len(frame.needed()) == 10
    [system] = frame.needed(lean=True)
    assert msgspec.json.decode(messages[system])["role"] == "system"
    for place, one in enumerate(sent):
        lean, spared = lean_texts(frame, one, messages)
        assert lean.sure
        assert told(lean) == told(texts_of(one, "llm"))
        assert spared == (2 * place + 1 if place else 0)


def test_a_message_that_is_found_elsewhere_first_makes_nobody_sure() -> None:
    answer = [MESSAGES[5]]
    history = [MESSAGES[5], MESSAGES[0], MESSAGES[2]]
    first = {"gen_ai.input.messages": json.dumps(history[1:])}
    # Packed, the message of the history is the answer's: the first place in the span where it stands.
    second = {"gen_ai.output.messages": json.dumps(answer), "gen_ai.input.messages": json.dumps(history)}
    sent = wires([first, second])
    frame, messages = packed(Packer(), *sent)
    lean, spared = lean_texts(frame, sent[1], messages)
    assert spared > 0
    assert not lean.sure


@pytest.mark.parametrize(
    ("message", "others"),
    [
        ('{"role":"user","content":"x"}', True),
        ('{"role": "tool", "parts": [{"type": "text"}]}', True),
        ('{"role":"assistant","content":[{"text":"x"}]}', True),
        ('{"role":"system","content":"x"}', False),
        ('{"role":"User","content":"x"}', False),
        ('{"content":"x","role":"user"}', False),
        ('{"role":"user","parts":[]}', False),
        ('{"role":"user","content":"x","parts":[]}', False),
        ('{"role":"user","content":null}', False),
        ('["role","user"]', False),
    ],
)
def test_who_said_a_message_is_known_where_it_begins_as_exporters_write_it(
    message: str, others: bool
) -> None:
    assert said_by_others(message.encode()) is others


def test_a_frame_whose_lengths_do_not_fit_its_spans_is_read_whole() -> None:
    sent = wires([{"gen_ai.input.messages": json.dumps([MESSAGES[0], MESSAGES[2]])}] * 2)
    packer = Packer()
    parts = [packer.take_apart(1, DAY, one) for one in sent]
    entries = [(one.span_id, p.hashes, p.literals) for one, p in zip(sent, parts, strict=True)]
    messages = unpack_messages({d: pack_message(m) for p in parts for d, m in p.messages.items()})
    # As the release before wrote it; of other spans; and with lengths that no message has.
    for third in ([], [[[500]]], [[[], [0, 7]]]):
        frame = Frame(pack_message(msgspec.msgpack.encode([2, entries, *third])))
        for one in sent:
            read, spared = frame.lean(one.span_id, messages)
            assert (read.raw, spared) == (one.raw, 0)
