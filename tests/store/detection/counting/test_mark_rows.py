"""Laws of stored marks: written with the count of their trace, once, and gone with it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from svc.domain.marks import detector
from svc.domain.retention.terms import Cutoffs
from svc.store.detection.counting.tallying import PostgresTallyQueue
from svc.store.postgres.database import Database
from svc.store.retention.projects import sweep_project
from tests.store.as_json import JsonQueries
from tests.store.detection.counting.test_tallying import CHAT, begin, settle, tally_all, write
from tests.store.reads.test_query import question
from tests.store.spans.test_writing import NOW, PROJECT, fetch, one

SEARCH = [{"name": "search", "parameters": {"type": "object", "required": ["query"]}}]
LONG = "the parcel has left the warehouse and arrives on Friday " * 5


def model(number: int, parts: list[Any], *, trace: int = 1, at_s: float = 0, history: Any = None) -> Any:
    attributes = CHAT | {
        "gen_ai.tool.definitions": json.dumps(SEARCH),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}]),
        "gen_ai.conversation.id": "talk",
    }
    if history is not None:
        attributes["gen_ai.input.messages"] = json.dumps(history)
    return one(
        number,
        trace_id=trace.to_bytes(16, "big"),
        start=NOW + timedelta(seconds=at_s),
        name="chat",
        attributes=attributes,
    )


def tool(number: int, *, trace: int = 1, at_s: float = 0, result: str = "a row", took_s: float = 1) -> Any:
    return one(
        number,
        trace_id=trace.to_bytes(16, "big"),
        start=NOW + timedelta(seconds=at_s),
        took_s=took_s,
        name="execute_tool search",
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search",
            "gen_ai.tool.call.id": "a",
            "gen_ai.tool.call.arguments": "{}",
            "gen_ai.tool.call.result": result,
        },
    )


def asks(number: int, arguments: Any, **fields: Any) -> Any:
    part = {"type": "tool_call", "id": "a", "name": "search", "arguments": arguments}
    return model(number, [part], **fields)


def says(number: int, words: str, **fields: Any) -> Any:
    return model(number, [{"type": "text", "content": words}], **fields)


async def marks(store: Database) -> list[Any]:
    return await fetch(
        store,
        "select classifier_id, version, severity, confidence, subject_kind, subject_session_id,"
        " subject_trace_id, subject_span_id, cause_span_id, call_site_id, summary, created_at"
        " from classifier_event order by classifier_id, subject_trace_id, subject_span_id",
    )


async def test_a_mark_is_an_event_of_the_span_and_names_the_model_call_that_asked(store: Database) -> None:
    await begin(store)
    await write(store, asks(1, {}), tool(2, at_s=2))
    await settle(store)
    await tally_all(store)
    [row] = await marks(store)
    assert {key: value for key, value in row.items() if key != "created_at"} == {
        "classifier_id": "args_break_schema",
        "version": 1,
        "severity": "low",
        "confidence": "0.62",
        "subject_kind": "span",
        "subject_session_id": "talk",
        "subject_trace_id": (1).to_bytes(16, "big"),
        "subject_span_id": (2).to_bytes(8, "big"),
        "cause_span_id": (1).to_bytes(8, "big"),
        "call_site_id": "writer",
        "summary": "The arguments of this call break the schema that the model was offered with the tool: "
        "`query` is required and missing.",
    }
    queries = JsonQueries(store)
    assert (await queries.facets(question("classifier_events"), "classifier_id", 5))["facets"] == [
        {"value": "args_break_schema", "count": 1}
    ]
    search = await queries.search(question("classifier_events"), "required and missing", None, 5, None)
    assert [row["fields"]["cause_span_id"] for row in search["rows"]] == ["0000000000000001"]


async def test_a_trace_that_is_tallied_again_keeps_its_marks_and_their_time(store: Database) -> None:
    await begin(store)
    await write(store, asks(1, {}), tool(2, at_s=2), asks(1, {}, trace=2), tool(2, at_s=2, trace=2))
    await settle(store)
    await tally_all(store)
    before = await marks(store)
    assert len(before) == 2
    await write(store, says(3, "Done.", at_s=5))
    await settle(store)
    assert (await tally_all(store)).again == 1
    assert await marks(store) == before


async def test_a_mark_that_no_longer_holds_goes_and_a_new_one_comes(store: Database) -> None:
    await begin(store)
    await write(store, asks(1, {"query": "a"}), tool(2, at_s=2, result="404 Not Found"))
    await settle(store)
    await tally_all(store)
    assert [row["classifier_id"] for row in await marks(store)] == ["http_error_in_ok_result"]
    await write(store, tool(2, at_s=2, took_s=2))
    await settle(store)
    await tally_all(store)
    assert await marks(store) == []
    await write(store, asks(1, {"limit": 1}), tool(2, at_s=2, took_s=3))
    await settle(store)
    await tally_all(store)
    assert [row["classifier_id"] for row in await marks(store)] == ["args_break_schema"]


async def test_a_firing_of_a_detector_about_the_same_trace_is_left_alone(store: Database) -> None:
    await begin(store)
    await write(store, asks(1, {}), tool(2, at_s=2))
    await settle(store)
    await tally_all(store)
    await fetch(
        store,
        "insert into classifier_event (project_id, classifier_id, severity, subject_kind, subject_trace_id,"
        " summary) values ($1, 'secret_leak', 'high', 'trace', $2, 'a key') returning id",
        PROJECT,
        (1).to_bytes(16, "big"),
    )
    await write(store, says(3, "Done.", at_s=5))
    await settle(store)
    await tally_all(store)
    names = [row["classifier_id"] for row in await marks(store)]
    assert names == ["args_break_schema", "secret_leak"]


async def test_marks_go_with_their_trace_and_those_of_others_stay(store: Database) -> None:
    await begin(store)
    for trace in (1, 2):
        await write(store, asks(1, {}, trace=trace), tool(2, at_s=2, trace=trace))
    await settle(store)
    await tally_all(store)
    gone = (1).to_bytes(16, "big")
    await fetch(store, "delete from span where trace_id = $1 returning span_id", gone)
    await sweep_project(store, PROJECT, Cutoffs(NOW + timedelta(days=1), None, None), NOW, lambda _: None)
    assert [row["subject_trace_id"] for row in await marks(store)] == [(2).to_bytes(16, "big")]


@pytest.mark.parametrize("heard", [True, False])
async def test_a_claim_is_stated_only_after_the_whole_conversation_was_read(
    store: Database, heard: bool
) -> None:
    await begin(store)
    result = {"type": "tool_call_response", "id": "z", "response": LONG}
    history: list[Any] = [{"role": "user", "parts": [{"type": "text", "content": f"Where is it? {LONG}"}]}]
    if heard:
        history.append({"role": "tool", "parts": [result]})
    # The same history twice, so that the second time nobody needs to fetch it.
    for trace in (1, 2):
        await write(store, says(1, "I verified it.", trace=trace, history=history))
    await settle(store)
    await tally_all(store)
    names = [row["classifier_id"] for row in await marks(store)]
    assert names == ([] if heard else ["answer_without_evidence"] * 2 + ["claim_without_call"] * 2)


async def test_a_rule_that_raises_costs_no_detector_its_sight(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise LookupError

    await begin(store)
    await write(store, asks(1, {}), tool(2, at_s=2))
    await settle(store)
    monkeypatch.setattr(detector, "marks_of", broken)
    tally = await PostgresTallyQueue(store).tally(PROJECT)
    assert (tally.traces, tally.failures) == (1, {"marks": 1})
    assert await marks(store) == []
