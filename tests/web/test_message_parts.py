"""Payloads as parts: pairs of calls and results, cuts and slots, what is said once; and words that differ."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from svc.domain.traces.comparison import Outlined, compared, first_difference, largest_differences
from svc.web.messages.message_parts import (
    INLINE_CHARS,
    PART_CHARS,
    PICTURE_CHARS,
    Room,
    messages,
    part_at,
    steps,
)
from svc.web.traces.word_diff import MOST_WORDS, word_diff


def said(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "text": p} if type(p) is str else p for p in parts]}


CALL = {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": 1}}
RESULT = {"type": "tool_result", "id": "c1", "name": None, "result": "found", "is_error": True}


PNG = "iVBORw0KGgo="


def media(room: Room | None = None, **part: str) -> Any:
    (message,) = messages([said("user", {"type": "media", **part})], "input", room or Room())
    return message.parts[0]


@pytest.mark.parametrize(
    "part",
    [
        {"media": "image", "mime_type": "image/png", "data": PNG},
        {"media": "image", "uri": f"data:image/png;base64,{PNG}"},
    ],
)
def test_a_small_picture_is_drawn_and_named_with_its_size(part: dict[str, str]) -> None:
    shown = media(**part)
    assert shown.picture == f"data:image/png;base64,{PNG}"
    assert (shown.title, shown.size) == ("image/png", 8)


@pytest.mark.parametrize(
    "part",
    [
        {"mime_type": "image/svg+xml", "data": PNG},
        {"mime_type": "text/html", "data": PNG},
        {"mime_type": "image/png", "data": '" onerror="alert(1)'},
        {"mime_type": "image/png,<svg>", "data": PNG},
        {"mime_type": 'image/png" onload="alert(1)', "data": PNG},
        {"mime_type": "image/png", "data": "A" * PICTURE_CHARS},
        {"uri": f"data:image/svg+xml;base64,{PNG}"},
        {"uri": "data:image/png,raw"},
        {"mime_type": "image/png", "uri": "https://elsewhere.example/a.png"},
        {"mime_type": "image/png", "data": ""},
    ],
)
def test_nothing_else_is_drawn(part: dict[str, str]) -> None:
    assert media(media="image", **part).picture == ""


def test_pictures_take_from_the_room_of_their_page() -> None:
    room = Room(100)
    part = {"media": "image", "mime_type": "image/png", "data": PNG}
    assert [bool(media(room, **part).picture) for _ in range(4)] == [True, True, False, False]


def test_a_result_stands_below_its_call() -> None:
    (asked, called) = messages(
        [said("user", "go"), said("assistant", CALL), said("tool", RESULT)], "input", Room()
    )
    assert asked.parts[0].text == "go"
    (part,) = called.parts
    assert (part.form, part.title, part.at) == ("call", "search", "input.1.0")
    assert part.answer is not None
    assert (part.answer.text, part.answer.failed, part.answer.at) == ("found", True, "input.2.0")


def test_a_result_without_its_call_stands_alone() -> None:
    (alone,) = messages([said("tool", RESULT)], "input", Room())
    assert alone.parts[0].form == "result"


def test_a_long_part_is_cut_and_can_be_had_whole() -> None:
    value = [said("user", "é" * (PART_CHARS + 1))]
    ((part,),) = [one.parts for one in messages(value, "input", Room())]
    assert (len(part.text), part.cut, part.size) == (PART_CHARS, True, 2 * (PART_CHARS + 1))
    assert part_at({"input": value}, part.at) == "é" * (PART_CHARS + 1)


def test_beyond_the_room_of_a_page_parts_are_slots() -> None:
    room = Room()
    many = messages([said("user", "x" * PART_CHARS) for _ in range(50)], "input", room)
    lengths = [one.parts[0].text for one in many]
    assert sum(map(len, lengths)) < INLINE_CHARS + PART_CHARS + 50 * 160
    assert len(lengths[-1]) == 160
    assert many[-1].parts[0].cut


@pytest.mark.parametrize("at", ["input.5.0", "input.0.7", "nothing", "input.0", "output.0.0", "input.0.0.0"])
def test_a_part_that_is_none_is_said_to_be_none(at: str) -> None:
    with pytest.raises(LookupError):
        part_at({"input": [said("user", "x")], "output": "text"}, at)


@pytest.mark.parametrize(
    "value", [{}, [], "", [1, {"role": "user"}], {"a": [None]}, 5, [said("user", {"type": "odd"})]]
)
def test_whatever_was_said_becomes_parts(value: Any) -> None:
    assert all(part.text is not None for one in messages(value, "output", Room()) for part in one.parts)


def span(kind: str, name: str, given: Any, answered: Any, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "status": "ok", "input": given, "output": answered, **more}


def test_a_conversation_does_not_say_again_what_was_said() -> None:
    question, answer, next_ = said("user", "one?"), said("assistant", "one."), said("user", "two?")
    first = span("llm", "chat", [question], [answer])
    second = span("llm", "chat", [question, answer, next_], [said("assistant", "two.")])
    told = steps([first, second], None, Room())
    assert [step.earlier for step in told] == [0, 2]
    assert [one.parts[0].text for one in told[1].asked] == ["two?"]
    (later,) = steps([second], first, Room())
    assert later.earlier == 2


def test_what_a_tool_tells_itself_its_caller_only_names() -> None:
    call = {**CALL, "id": "c9"}
    model = span("llm", "chat", [said("user", "go")], [said("assistant", call)])
    tool = span("tool", "search", {"q": 1}, "found", tool={"call_id": "c9"})
    after = span("llm", "chat", [said("user", "go"), said("tool", {**RESULT, "id": "c9"})], None)
    told = steps([model, tool, after], None, Room())
    assert told[0].answered[0].parts[0].text == ""
    assert told[1].answered[0].parts[0].text == "found"
    assert told[2].asked == []


def test_silent_spans_of_one_name_are_one_line() -> None:
    told = steps([span("retrieval", "fetch", None, None) for _ in range(5)], None, Room())
    assert [(step.span["name"], step.times) for step in told] == [("fetch", 5)]


def test_words_that_differ_are_told_with_their_side() -> None:
    diff = word_diff("the order is late", "the order is on time")
    assert [(run.side, run.text) for run in diff.runs] == [
        ("both", "the order is "),
        ("there", "on time"),
        ("here", "late"),
    ]
    assert word_diff("same", "same").same
    assert word_diff("a " * MOST_WORDS, "b").cut


def outlined(number: int, name: str, parent: int = 0, **more: Any) -> Outlined:
    fields: dict[str, Any] = {"status": "ok", "error_type": None, "took_ms": 10.0, "tokens": 0, "cost": None}
    fields |= {"input_preview": None, "output_preview": None, **more}
    above = bytes([parent]) if parent else None
    return Outlined(span_id=bytes([number]), parent_span_id=above, kind="step", name=name, **fields)


def test_spans_are_paired_by_path_and_order() -> None:
    names = [(1, "root", 0), (2, "a", 1), (3, "b", 1), (4, "a", 1), (5, "x", 3)]
    here = [outlined(number, name, above) for number, name, above in names]
    names = [(11, "root", 0), (12, "a", 11), (13, "b", 11), (14, "c", 11)]
    there = [outlined(number, name, above) for number, name, above in names]
    found = [
        (*(side.span_id[0] if side else None for side in (pair.here, pair.there)), pair.depth)
        for pair in compared(here, there)
    ]
    assert found == [(1, 11, 0), (2, 12, 1), (3, 13, 1), (5, None, 2), (4, None, 1), (None, 14, 1)]


def test_a_failure_parts_two_traces_sooner_than_other_words() -> None:
    here = [outlined(1, "root", output_preview="x"), outlined(2, "tool", 1, status="error", took_ms=900.0)]
    there = [outlined(1, "root", output_preview="y"), outlined(2, "tool", 1)]
    first = first_difference(compared(here, there))
    assert first is not None
    assert (first.either.name, first.differs) == ("tool", ("failed here", "slower"))
    assert first_difference(compared(there, there)) is None


def test_time_differs_where_it_was_spent_and_not_in_who_waited() -> None:
    def trace(tool_ms: float, tokens: int) -> list[Outlined]:
        return [
            outlined(1, "root", took_ms=100.0 + tool_ms),
            outlined(2, "agent", 1, took_ms=50.0 + tool_ms),
            outlined(3, "tool", 2, took_ms=tool_ms),
            outlined(4, "chat", 2, took_ms=20.0, tokens=tokens),
        ]

    pairs = compared(trace(900.0, 70), trace(300.0, 100))
    time = largest_differences(pairs, "time")
    assert [(each.pair.either.name, each.difference) for each in time] == [("tool", 600.0)]
    tokens = largest_differences(pairs, "tokens")
    assert [(each.pair.either.name, each.difference) for each in tokens] == [("chat", -30.0)]
    assert largest_differences(pairs, "cost") == []
    only_here = compared(trace(900.0, 70), trace(300.0, 100)[:2])
    # Without its tool the other agent did all of its 350 ms itself.
    differences = {each.pair.either.name: each.difference for each in largest_differences(only_here, "time")}
    assert differences == {"tool": 900.0, "agent": -320.0}


def test_a_long_unchanged_middle_is_folded_and_nothing_of_it_is_lost() -> None:
    middle = "word " * 400
    diff = word_diff(f"new {middle}end", f"old {middle}end")
    run = next(run for run in diff.runs if run.side == "both")
    assert run.hidden
    assert run.before + run.hidden + run.after == run.text
    assert all(not short.hidden for short in word_diff("a b c", "a b d").runs)


def test_circles_and_depths_end() -> None:
    circle = [outlined(1, "a", 2), outlined(2, "b", 1), outlined(3, "c", 3)]
    assert [pair.either.name for pair in compared(circle, circle)] == ["c", "a", "b"]
    one = outlined(1, "s")
    deep = [
        attrs.evolve(one, span_id=n.to_bytes(4, "big"), parent_span_id=(n - 1).to_bytes(4, "big"))
        for n in range(1, 3000)
    ]
    assert len(compared(deep, deep)) == 2999
