"""Langfuse, from its documented shapes: both APIs and the files of an export become the same kind of span."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.importing import NotThere, PageTooLarge
from protocol.operator import OperatorError
from svc.importers.langfuse import NO_ROW, LangfuseProject
from svc.importers.langfuse_files import NO_LINE, LangfuseFiles
from svc.importers.source import hex_id
from tests.importers.replies import WINDOW, Replies, every_page, rows_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
ROOT: dict[str, Any] = {
    "id": "b7ad6b7169203331",
    "traceId": TRACE,
    "projectId": "p",
    "type": "AGENT",
    "name": "answer",
    "startTime": "2026-11-20T12:00:00.000Z",
    "endTime": "2026-11-20T12:00:02.500Z",
    "parentObservationId": None,
    "level": "DEFAULT",
    "userId": "u1",
    "sessionId": "s1",
    "environment": "production",
    "input": {"question": "late?"},
    "output": "yes",
    "metadata": {"team": "support"},
    "usageDetails": {},
    "costDetails": {},
}
CALL: dict[str, Any] = {
    "id": "00f067aa0ba902b7",
    "traceId": TRACE,
    "projectId": "p",
    "type": "GENERATION",
    "name": "chat",
    "startTime": "2026-11-20T12:00:01.000Z",
    "endTime": "2026-11-20T12:00:02.000Z",
    "completionStartTime": "2026-11-20T12:00:01.250Z",
    "parentObservationId": "b7ad6b7169203331",
    "level": "ERROR",
    "statusMessage": "rate limited",
    "providedModelName": "gpt-4o",
    "modelParameters": {"temperature": 0.5},
    "usageDetails": {"input": 100, "output": 20, "cache_read_input_tokens": 50, "total": 170},
    "costDetails": {"input": 0.00025, "output": 0.0002, "total": 0.00045},
    "input": [{"role": "user", "content": "late?"}],
    "output": {"role": "assistant", "content": "yes"},
    "metadata": {},
    "userId": "u1",
    "sessionId": "s1",
}


def newer(path: str, query: dict[str, str], _body: Any) -> Any:
    if path.endswith("/scores"):
        return NotThere()
    if query.get("cursor") == "behind":
        return {"data": [ROOT], "meta": {}}
    return {"data": [CALL, {"id": "no trace"}], "meta": {"cursor": "behind"}}


def as_expected(rows: dict[bytes, Any]) -> None:
    """Both observations, as the newer API tells them."""
    root, call = (rows[bytes.fromhex(TRACE + one["id"])].row for one in (ROOT, CALL))
    assert (root.kind, root.name, root.session_id, root.user_id) == ("agent", "answer", "s1", "u1")
    assert (call.kind, call.model_id, call.status, call.error_message) == (
        "llm", "gpt-4o", "error", "rate limited",
    )  # fmt: skip
    assert (call.input_tokens, call.output_tokens, call.cache_read_tokens) == (100, 20, 50)
    assert (float(call.total_cost), call.cost_source) == (0.00045, "provided")
    assert (call.input_preview, call.output_preview) == ("late?", "yes")
    assert call.parent_span_id == root.span_id
    assert (root.started_at, root.ended_at) == (
        datetime(2026, 11, 20, 12, tzinfo=UTC),
        datetime(2026, 11, 20, 12, 0, 2, 500_000, tzinfo=UTC),
    )


async def test_the_newer_api_is_read_by_its_cursor() -> None:
    replies = Replies(newer)
    pages = await every_page(LangfuseProject(replies, "app"))
    assert [asked[0] for asked in replies.asked if "scores" not in asked[0]] == [
        "GET /api/public/v2/observations"
    ] * 2
    asked_for = replies.asked[0][1]["fields"].split(",")
    assert {"core", "basic", "time", "io", "trace_context"} <= {*asked_for}
    as_expected(rows_of(pages))
    assert pages[0].unread == {NO_ROW: 1}
    assert {tokens for page in pages for tokens in page.told.values()} == {170, None}


async def test_metadata_that_was_cut_is_asked_for_by_its_keys() -> None:
    def cutting(path: str, query: dict[str, str], _body: Any) -> Any:
        if path.endswith("/scores"):
            return NotThere()
        whole = "x" * 300 if "notes" in query.get("expandMetadata", "") else "x" * 200
        return {"data": [{**CALL, "metadata": {"notes": whole, "short": "y"}}], "meta": {}}

    replies = Replies(cutting)
    (page,) = await every_page(LangfuseProject(replies, "app"))
    asked_keys = [asked[1].get("expandMetadata") for asked in replies.asked if "scores" not in asked[0]]
    assert asked_keys == [None, "notes"]
    assert b"x" * 300 in page.bodies[0][1]


#: What the older API says of the same: what is known of the trace stands on the trace.
OLD_CALL = {
    **{key: value for key, value in CALL.items() if key not in ("userId", "sessionId", "providedModelName")},
    "model": "gpt-4o",
}
OLD_ROOT = {key: value for key, value in ROOT.items() if key not in ("userId", "sessionId")}
OLD_TRACE = {
    "id": TRACE,
    "timestamp": "2026-11-20T12:00:00.000Z",
    "name": "support",
    "userId": "u1",
    "sessionId": "s1",
    "tags": ["beta"],
    "input": {"question": "late?"},
    "output": "yes",
}


def older(path: str, query: dict[str, str], _body: Any) -> Any:
    if "v2" in path:
        return NotThere()
    if path == f"/api/public/traces/{TRACE}":
        return {**OLD_TRACE, "observations": [OLD_CALL, OLD_ROOT]}
    if path == "/api/public/traces/a%2Fb":
        generations = [
            {**OLD_CALL, "id": f"uuid-{n}", "traceId": "a/b", "parentObservationId": None,
             "usageDetails": None, "usage": {"input": 10, "output": 5, "total": 15, "unit": "TOKENS"}}
            for n in range(2)
        ]  # fmt: skip
        return {**OLD_TRACE, "id": "a/b", "observations": generations}
    if path == "/api/public/traces":
        listed = {"1": [{"id": TRACE}], "2": [{"id": "a/b"}, {"id": "gone"}]}[query["page"]]
        return {"data": listed, "meta": {"page": int(query["page"]), "totalPages": 2}}
    return NotThere()


async def test_the_older_api_is_read_page_by_page_and_each_trace_whole() -> None:
    replies = Replies(older)
    pages = await every_page(LangfuseProject(replies, "app"))
    assert replies.asked[1][1]["orderBy"] == "timestamp.asc"
    rows = rows_of(pages)
    as_expected(rows)
    trace = hex_id("a/b", 16)
    others = [one.row for key, one in rows.items() if key[:16].hex() == trace]
    # Two outermost observations stand below a root that stands for the trace.
    (root,) = (row for row in others if row.parent_span_id is None)
    assert (root.name, root.session_id, len(others)) == ("support", "s1", 3)
    assert {row.parent_span_id for row in others if row is not root} == {root.span_id}
    assert sorted(row.input_tokens or 0 for row in others) == [0, 10, 10]
    assert sum(tokens or 0 for tokens in pages[1].told.values()) == 30


async def test_ids_that_are_no_hexadecimal_become_the_same_each_time() -> None:
    first, second = [rows_of(await every_page(LangfuseProject(Replies(older), "app"))) for _ in range(2)]
    assert first.keys() == second.keys()


@pytest.mark.parametrize("packed", [False, True])
async def test_files_of_an_export_are_read_in_either_spelling(tmp_path: Path, packed: bool) -> None:
    snake = {
        "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key): value
        for key, value in CALL.items()
    }
    lines = [msgspec.json.encode(ROOT), msgspec.json.encode(snake), b"no json"]
    folder = tmp_path / "observations_v2"
    folder.mkdir()
    for n, line in enumerate(lines):
        data = line + b"\n"
        file = folder / (f"{n}.jsonl.gz" if packed else f"{n}.jsonl")
        file.write_bytes(gzip.compress(data) if packed else data)
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / "0.jsonl").write_bytes(b'{"id": "score"}\n')
    pages = await every_page(LangfuseFiles(tmp_path, "app"))
    as_expected(rows_of(pages))
    assert [page.unread for page in pages if page.unread] == [{NO_LINE: 1}]
    # From the middle on, as a run that goes on.
    rest = await LangfuseFiles(tmp_path, "app").page(WINDOW, pages[1].cursor)
    assert len(rest.told) == 1


async def test_what_is_too_large_or_not_langfuse_says_so(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="one observation of this Langfuse is larger"):
        await every_page(LangfuseProject(Replies(lambda *_: PageTooLarge()), "app"))
    with pytest.raises(OperatorError, match="is not Langfuse"):
        await every_page(LangfuseProject(Replies(lambda *_: NotThere()), "app"))
    with pytest.raises(OperatorError, match="no file of observations"):
        LangfuseFiles(tmp_path, "app")


#: Scores as the API's reference has them: typed values, and what each is about.
SCORES_V3: list[dict[str, Any]] = [
    {"id": "s-1", "name": "helpful", "dataType": "BOOLEAN", "value": True, "source": "ANNOTATION",
     "timestamp": "2026-11-20T13:00:00.000Z", "comment": "Just right", "authorUserId": "ann",
     "subject": {"kind": "trace", "id": TRACE}},
    {"id": "s-2", "name": "tone", "dataType": "CATEGORICAL", "value": "calm", "source": "EVAL",
     "timestamp": "2026-11-20T13:00:00.000Z", "comment": None,
     "subject": {"kind": "observation", "id": CALL["id"], "traceId": TRACE}},
    {"id": "s-3", "name": "quality", "dataType": "NUMERIC", "value": 0.25, "source": "API",
     "timestamp": "2026-11-20T13:00:00.000Z", "subject": {"kind": "trace", "id": TRACE}},
    {"id": "s-4", "name": "resolved", "dataType": "BOOLEAN", "value": False, "source": "API",
     "timestamp": "2026-11-20T13:00:00.000Z",
     "subject": {"kind": "observation", "id": CALL["id"], "traceId": TRACE}},
    {"id": "s-5", "name": "run", "dataType": "NUMERIC", "value": 1, "source": "EVAL",
     "timestamp": "2026-11-20T13:00:00.000Z", "subject": {"kind": "experiment", "id": "e1"}},
]  # fmt: skip
SCORES_OF_SESSION: list[dict[str, Any]] = [
    {"id": "s-6", "name": "visit", "dataType": "NUMERIC", "value": 1, "source": "API",
     "timestamp": "2026-11-20T13:00:00.000Z", "subject": {"kind": "session", "id": "s1"}},
    {"id": "s-7", "name": "ended", "dataType": "CATEGORICAL", "value": "solved", "source": "ANNOTATION",
     "timestamp": "2026-11-20T13:00:00.000Z", "subject": {"kind": "session", "id": "s1"}},
    {"id": "s-8", "name": "again", "dataType": "BOOLEAN", "value": True, "source": "API",
     "timestamp": "2026-11-20T13:00:00.000Z", "subject": {"kind": "session", "id": "s1"}},
    {"id": "s-9", "name": "again", "dataType": "BOOLEAN", "value": True, "source": "API",
     "timestamp": "2026-11-20T13:00:00.000Z", "subject": {"kind": "session", "id": "another"}},
]  # fmt: skip


def told(rows: dict[bytes, Any]) -> list[tuple[Any, ...]]:
    # What is about a session may come with several pages, as one entry.
    entries = {entry.id: entry for row in rows.values() for entry in row.feedback}
    return sorted(
        (
            *(entry.name, entry.number, entry.category, entry.text, entry.author),
            entry.session_id or entry.span_id.hex(),
        )
        for entry in entries.values()
    )


async def test_scores_come_along_on_what_they_are_about() -> None:
    def scored(path: str, query: dict[str, str], body: Any) -> Any:
        if not path.endswith("/v3/scores"):
            return newer(path, query, body)
        assert ("traceId" in query) != ("sessionId" in query)
        if "sessionId" in query:
            assert query["sessionId"] == "s1"
            return {"data": SCORES_OF_SESSION, "meta": {}}
        assert query["traceId"] == TRACE
        if "cursor" in query:
            return {"data": SCORES_V3[1:], "meta": {}}
        return {"data": SCORES_V3[:1], "meta": {"cursor": "more"}}

    rows = rows_of(await every_page(LangfuseProject(Replies(scored), "app")))
    assert told(rows) == [
        ("again", 1.0, None, None, None, "s1"),
        ("ended", None, "solved", None, None, "s1"),
        ("helpful", 1.0, None, "Just right", "ann", ROOT["id"]),
        ("quality", 0.25, None, None, None, ROOT["id"]),
        ("resolved", 0.0, None, None, None, CALL["id"]),
        ("tone", None, "calm", None, None, CALL["id"]),
        ("visit", 1.0, None, None, None, "s1"),
    ]


async def test_scores_of_the_older_api_stand_in_the_trace() -> None:
    scores = [
        {"id": "s-1", "traceId": TRACE, "observationId": None, "name": "quality", "dataType": "NUMERIC",
         "value": 0.5, "timestamp": "2026-11-20T13:00:00.000Z", "comment": None, "source": "API"},
        {"id": "s-2", "traceId": TRACE, "observationId": CALL["id"], "name": "tone", "value": 2,
         "dataType": "CATEGORICAL", "stringValue": "calm", "timestamp": "2026-11-20T13:00:00.000Z"},
    ]  # fmt: skip

    def scored(path: str, query: dict[str, str], body: Any) -> Any:
        answer = older(path, query, body)
        return {**answer, "scores": scores} if path.endswith(TRACE) else answer

    rows = rows_of(await every_page(LangfuseProject(Replies(scored), "app")))
    assert told(rows) == [
        ("quality", 0.5, None, None, None, ROOT["id"]),
        ("tone", None, "calm", None, None, CALL["id"]),
    ]
