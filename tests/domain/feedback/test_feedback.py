"""Entries of feedback: what is taken, what names them, and what events of spans say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.otlp.reading import read_clean, walk
from svc.domain.feedback import entries as feedback
from svc.domain.feedback.entries import Feedback, WrongFeedback, checked, from_span, guessed_better
from tests import wire

TRACE, SPAN = bytes(range(1, 17)), bytes(range(1, 9))

entries = st.fixed_dictionaries(
    {"name": st.text(max_size=120)},
    optional={
        "id": st.text(max_size=300),
        "trace_id": st.binary(min_size=16, max_size=16),
        "span_id": st.binary(min_size=8, max_size=8),
        "session_id": st.text(max_size=300),
        "number": st.floats(),
        "category": st.text(max_size=300),
        "text": st.text(max_size=50),
        "author": st.text(max_size=300),
    },
)


@given(entries)
@example({"name": "a\nb", "session_id": "s", "category": "c\nd"})
def test_what_is_taken_can_be_stored_and_whatever_cannot_is_refused(sent: Any) -> None:
    try:
        entry = checked(source="api", **sent)
    except WrongFeedback:
        return
    texts = (entry.id, entry.name, entry.session_id, entry.category, entry.text, entry.author)
    assert all("\x00" not in text and text.encode() for text in texts if text)
    assert entry.name.strip()
    assert entry.id
    assert entry.trace_id or entry.session_id
    assert (entry.number, entry.category, entry.text) != (None, None, None)
    assert "\n" not in entry.summary
    assert len(entry.summary) < 600


@given(entries)
def test_the_same_entry_sent_twice_is_one(sent: Any) -> None:
    try:
        first = checked(source="api", **sent)
    except WrongFeedback:
        return
    again = checked(source="api", **sent)
    assert (first.id, first.firing_id) == (again.id, again.firing_id)


def said(**fields: Any) -> Feedback:
    return checked(**({"source": "api", "name": "helpful", "trace_id": TRACE, "number": 1.0} | fields))


def test_somebodys_second_thumb_takes_the_place_of_the_first() -> None:
    assert said(author="ada").id == said(author="ada", number=0.0).id


def test_two_people_who_say_the_same_are_two() -> None:
    assert said(author="ada").id != said(author="grace").id


def test_what_nobody_signs_is_another_entry_when_it_says_something_else() -> None:
    assert said().id != said(number=0.0).id
    assert said().id == said().id


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"name": " "}, "1 to 100 printable"),
        ({"name": "x" * 101}, "1 to 100 printable"),
        ({"name": "a\nb"}, "1 to 100 printable"),
        ({"number": float("nan")}, r"between -1e12 and 1e12"),
        ({"number": 1e160}, r"between -1e12 and 1e12"),
        ({"number": -1.1e12}, r"between -1e12 and 1e12"),
        ({"judged_at": datetime(1, 1, 1, tzinfo=UTC)}, "between the years 1970 and 9900"),
        ({"judged_at": datetime.max.replace(tzinfo=UTC)}, "between the years 1970 and 9900"),
        ({"number": None}, "a number, a category or a text"),
        ({"category": "x" * 201}, "at most 200"),
        ({"text": "x" * 10_001}, "at most 10,000"),
        ({"trace_id": None}, "trace_id or a session_id"),
        ({"trace_id": None, "session_id": "s", "span_id": SPAN}, "names its trace_id"),
    ],
)
def test_what_cannot_be_kept_is_told_why(wrong: Any, reason: str) -> None:
    with pytest.raises(WrongFeedback, match=reason):
        said(**wrong)


def test_what_is_about_a_trace_has_its_session_whatever_is_said() -> None:
    assert said(session_id="s").session_id is None
    assert said(trace_id=None, session_id="s").subject_kind == "session"
    assert said(span_id=SPAN).subject_kind == "span"


def test_a_summary_says_all_there_is_in_a_line() -> None:
    full = said(number=0.75, category="fair", text="too\nshort")
    assert full.summary == "helpful: 0.75, fair “too short”"
    assert said(number=1e12).summary == "helpful: 1e+12"


@pytest.mark.parametrize(("name", "better"), [("helpful", "higher"), ("Toxicity", "lower"), ("x", "higher")])
def test_a_name_says_which_end_is_the_good_one(name: str, better: str) -> None:
    assert guessed_better(name) == better


def event(**attributes: Any) -> Any:
    return wire.event(feedback.EVALUATION_EVENT, attributes, time_ns=1_790_000_000_000_000_000)


def judged(*events: Any) -> tuple[Feedback, ...]:
    body = wire.request(wire.span(trace_id=TRACE, span_id=SPAN, events=events)).SerializeToString()
    (span,) = walk(read_clean(body))
    return from_span(span)


def test_the_result_of_an_evaluation_is_feedback_on_its_span() -> None:
    (entry,) = judged(
        event(**{
            "gen_ai.evaluation.name": "Relevance",
            "gen_ai.evaluation.score.value": 4,
            "gen_ai.evaluation.score.label": "pass",
            "gen_ai.evaluation.explanation": "It answers what was asked.",
        })
    )  # fmt: skip
    assert (entry.name, entry.number, entry.category) == ("Relevance", 4.0, "pass")
    assert (entry.text, entry.source) == ("It answers what was asked.", "span")
    assert (entry.trace_id, entry.span_id) == (TRACE, SPAN)
    assert entry.judged_at is not None
    assert entry.judged_at.year == 2026


def test_an_event_that_says_nothing_is_none_and_stops_no_other() -> None:
    (entry,) = judged(
        event(**{"gen_ai.evaluation.name": "empty"}),
        event(**{"gen_ai.evaluation.name": "wrong", "gen_ai.evaluation.score.value": float("inf")}),
        wire.event("another.event", {"gen_ai.evaluation.score.value": 1}),
        event(**{"gen_ai.evaluation.score.value": 0.5}),
    )
    assert (entry.name, entry.number) == ("evaluation", 0.5)


def test_a_span_gives_so_many_entries_and_no_more() -> None:
    named = [{"gen_ai.evaluation.name": f"n{number}"} for number in range(80)]
    many = [event(**name, **{"gen_ai.evaluation.score.value": 1}) for name in named]
    assert len(judged(*many)) == feedback.SPAN_ENTRIES


def test_what_is_about_a_session_is_one_entry_whichever_span_brings_it() -> None:
    attributes = {
        "gen_ai.evaluation.name": "visit",
        "gen_ai.evaluation.score.value": 1,
        feedback.SESSION_ATTRIBUTE: "s-1",
    }
    (entry,) = judged(event(**attributes))
    assert (entry.subject_kind, entry.session_id, entry.trace_id, entry.span_id) == (
        "session",
        "s-1",
        None,
        None,
    )
    body = wire.request(wire.span(trace_id=bytes(15) + b"\x05", span_id=SPAN, events=[event(**attributes)]))
    (span,) = walk(read_clean(body.SerializeToString()))
    assert from_span(span) == (entry,)
    (other,) = judged(event(**attributes | {feedback.SESSION_ATTRIBUTE: "s-2"}))
    assert other.id != entry.id


def test_a_point_in_time_of_its_own_is_read_as_its_parents_feedback() -> None:
    def said(parent: bytes) -> Any:
        attributes = {"gen_ai.evaluation.name": "relevance", "gen_ai.evaluation.score.value": 0.5}
        sent = wire.span("gen_ai.evaluation.result", attributes, trace_id=TRACE, span_id=SPAN, parent=parent)
        (span,) = walk(read_clean(wire.request(sent).SerializeToString()))
        return from_span(span)

    (entry,) = said(bytes(7) + b"\x09")
    assert (entry.trace_id, entry.span_id, entry.name, entry.number) == (
        TRACE, bytes(7) + b"\x09", "relevance", 0.5,
    )  # fmt: skip
    assert entry.judged_at is not None
    (of_trace,) = said(b"")
    assert (of_trace.subject_kind, of_trace.id) == ("trace", entry.id)
