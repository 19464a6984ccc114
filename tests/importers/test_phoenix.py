"""Phoenix: pages that a real server answered (20.26) are the spans that it had been sent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from protocol.importing import NotThere, PageTooLarge
from protocol.operator import OperatorError
from svc.importers.phoenix import NOT_A_SPAN, PhoenixProject
from svc.importers.source import ImportWindow
from tests.importers.replies import WINDOW, Replies, every_page, recorded, rows_of


def server(path: str, query: dict[str, str], _body: Any) -> bytes:
    if path.endswith("_annotations"):
        return b'{"data": [], "next_cursor": null}'
    return recorded("phoenix_2.json" if "cursor" in query else "phoenix_1.json")


async def test_its_pages_are_the_spans_that_it_was_sent() -> None:
    replies = Replies(server)
    pages = await every_page(PhoenixProject(replies, "a/b", "app"))
    assert [len(page.told) for page in pages] == [6, 4]
    assert replies.asked[0] == (
        "GET /v1/projects/a%2Fb/spans/otlpv1",
        {"limit": "1000", "end_time": "2026-12-01T00:00:00.000000Z"},
        None,
    )
    assert replies.asked[1][0] == "GET /v1/projects/a%2Fb/span_annotations"
    asked_pages = [asked[1] for asked in replies.asked if asked[0].endswith("/otlpv1")]
    assert [asked.get("cursor") for asked in asked_pages] == [None, pages[0].cursor]
    rows = rows_of(pages)
    assert rows.keys() == {one for page in pages for one in page.told}
    calls = sorted((one.row for one in rows.values() if one.row.kind == "llm"), key=lambda row: row.trace_id)
    assert [(row.input_tokens, row.output_tokens) for row in calls] == [(100 + n, 10) for n in range(5)]
    assert [row.model_id for row in calls] == ["gpt-4o"] * 5
    assert [row.status for row in calls] == ["error", *["ok"] * 4]
    assert (calls[0].error_message, calls[0].error_type) == ("it failed", "Odd")
    assert sum(tokens or 0 for page in pages for tokens in page.told.values()) == sum(
        110 + n for n in range(5)
    )
    assert {row.session_id for row in (one.row for one in rows.values()) if row.kind == "agent"} == {"s"}
    assert calls[0].parent_span_id == bytes([0] * 7 + [1])
    assert calls[0].input_preview == "question 0"


async def test_times_are_those_that_were_sent_to_the_microsecond() -> None:
    """Phoenix answers nanoseconds that went through a float."""
    (first, *_) = rows_of(await every_page(PhoenixProject(Replies(server), "p", "app"))).values()
    assert first.row.ended_at is not None
    assert {first.row.ended_at.microsecond, first.row.started_at.microsecond} <= {357474, 357931}


async def test_a_page_that_is_too_large_is_asked_for_in_parts() -> None:
    def large(path: str, query: dict[str, str], body: Any) -> bytes | Exception:
        is_large = path.endswith("/otlpv1") and int(query["limit"]) > 20
        return PageTooLarge() if is_large else server(path, query, body)

    replies = Replies(large)
    assert len(await every_page(PhoenixProject(replies, "p", "app"))) == 2
    limits = [asked[1]["limit"] for asked in replies.asked if asked[0].endswith("/otlpv1")]
    assert limits == ["1000", "250", "62", "15", "15"]
    with pytest.raises(OperatorError, match="one span of this Phoenix is larger"):
        await every_page(PhoenixProject(Replies(lambda *_: PageTooLarge()), "p", "app"))


async def test_what_is_not_there_or_is_not_phoenix_says_so() -> None:
    with pytest.raises(OperatorError, match="no project 'p'"):
        await every_page(PhoenixProject(Replies(lambda *_: NotThere()), "p", "app"))
    with pytest.raises(OperatorError, match="what answers there is not Phoenix"):
        await every_page(PhoenixProject(Replies(lambda *_: b"<html>"), "p", "app"))


async def test_what_is_no_span_is_counted_and_a_range_is_asked_for() -> None:
    replies = Replies(lambda *_: {"data": [{"span_id": None}, 7], "next_cursor": None})
    low = datetime(2026, 11, 1, tzinfo=UTC)
    (page,) = await every_page(PhoenixProject(replies, "p", "app"), ImportWindow(low, WINDOW.high))
    assert (page.bodies, page.unread) == ((), {NOT_A_SPAN: 2})
    assert replies.asked[0][1]["start_time"] == "2026-11-01T00:00:00.000000Z"


#: As the API's schema has one: `SpanAnnotation` in its openapi.json.
ANNOTATION: dict[str, Any] = {
    "id": "U3BhbkFubm90YXRpb246MQ==",
    "span_id": "",
    "name": "correctness",
    "annotator_kind": "LLM",
    "result": {"label": "correct", "score": 0.75, "explanation": "It is what was asked."},
    "metadata": {},
    "identifier": "",
    "source": "API",
    "user_id": None,
    "created_at": "2026-11-20T10:00:00+00:00",
    "updated_at": "2026-11-20T10:00:00+00:00",
}


async def test_annotations_come_along_as_feedback_on_their_spans() -> None:
    times = {
        "start_time_unix_nano": 1_795_168_800_000_000_000,
        "end_time_unix_nano": 1_795_168_801_000_000_000,
    }

    def span(trace: int, span_id: str) -> dict[str, Any]:
        return {"trace_id": f"{trace:032x}", "span_id": span_id, "name": "step", "attributes": [], **times}

    alone, twice = f"{7:016x}", f"{8:016x}"
    about = {**ANNOTATION, "span_id": alone}

    def annotated(path: str, query: dict[str, str], _body: Any) -> Any:
        if path.endswith(("/trace_annotations", "/session_annotations")):
            return {"data": [], "next_cursor": None}
        if not path.endswith("/span_annotations"):
            spans = [span(1, alone), span(1, twice), span(2, twice)]
            return {"data": spans, "next_cursor": None}
        if "cursor" in query:
            return {"data": [{**about, "name": "tone", "result": {"label": "calm"}}], "next_cursor": None}
        # One that says nothing, one that nobody can read, and one that may mean either of two spans.
        data = [about, {**about, "result": None}, 7, {**ANNOTATION, "span_id": twice}]
        return {"data": data, "next_cursor": "behind"}

    rows = rows_of(await every_page(PhoenixProject(Replies(annotated), "p", "app")))
    assert [
        (entry.name, entry.number, entry.category, entry.text, entry.author, entry.span_id.hex())
        for row in rows.values()
        for entry in row.feedback
        if entry.span_id is not None
    ] == [
        ("correctness", 0.75, "correct", "It is what was asked.", "LLM", alone),
        ("tone", None, "calm", None, "LLM", alone),
    ]


async def test_annotations_of_traces_and_sessions_are_about_the_whole() -> None:
    times = {
        "start_time_unix_nano": 1_795_168_800_000_000_000,
        "end_time_unix_nano": 1_795_168_801_000_000_000,
    }
    session = {"key": "session.id", "value": {"string_value": "s 1"}}

    def span(number: int, **fields: Any) -> dict[str, Any]:
        known = {
            "trace_id": f"{1:032x}",
            "span_id": f"{number:016x}",
            "name": "step",
            "attributes": [session],
        }
        return known | times | fields

    def annotated(path: str, query: dict[str, str], _body: Any) -> Any:
        kind = path.rpartition("/")[2]
        if kind == "trace_annotations":
            assert query["trace_ids"] == f"{1:032x}"
            return {"data": [{**ANNOTATION, "trace_id": f"{1:032x}"}], "next_cursor": None}
        if kind == "session_annotations":
            assert query["session_ids"] == "s 1"
            data = [{**ANNOTATION, "session_id": name, "name": "visit"} for name in ("s 1", "s 2")]
            return {"data": data, "next_cursor": None}
        spans = [span(2, parent_span_id=f"{1:016x}"), span(1)] if kind == "otlpv1" else []
        return {"data": spans, "next_cursor": None}

    rows = rows_of(await every_page(PhoenixProject(Replies(annotated), "p", "app")))
    entries = [entry for row in rows.values() for entry in row.feedback]
    assert {(entry.name, entry.span_id, entry.session_id, entry.number) for entry in entries} == {
        ("correctness", bytes(7) + b"\x01", None, 0.75),
        ("visit", None, "s 1", 0.75),
    }


async def test_a_phoenix_without_annotations_is_asked_once() -> None:
    def without(path: str, query: dict[str, str], body: Any) -> Any:
        return NotThere() if path.endswith("/span_annotations") else server(path, query, body)

    replies = Replies(without)
    assert len(await every_page(PhoenixProject(replies, "p", "app"))) == 2
    assert sum(asked[0].endswith("/span_annotations") for asked in replies.asked) == 1
