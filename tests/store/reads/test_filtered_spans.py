"""Lists of spans by any field: attributes that are no field list what a field of the same values would."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from protocol.refusals import Refused
from svc.store.postgres.database import Database
from svc.store.reads.questions import spans_by_payload
from svc.store.reads.traces.filtered_spans import FilteredSpans
from svc.store.reads.traces.spans import SpanFilter, SpanReads
from tests.front.mcp.asking import Door
from tests.store.reads.outages import through_outages
from tests.store.reads.test_spans_by_payload import FIELD, NO_FIELD, STAGES, history
from tests.store.spans.test_writing import NOW, PROJECT

STAGING = {NO_FIELD: "staging"}


async def listed(
    store: Database, filters: dict[str, Any], limit: int = 100, asked: SpanFilter | None = None
) -> list[dict[str, Any]]:
    """All pages."""
    spans: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = await FilteredSpans(store, filters).page(
            PROJECT, asked or SpanFilter(), payload=False, limit=limit, cursor=cursor
        )
        assert len(page["spans"]) <= limit
        spans += page["spans"]
        cursor = page["next_cursor"]
        if cursor is None:
            return spans


async def plain(store: Database, asked: SpanFilter) -> list[dict[str, Any]]:
    page = await SpanReads(store).page(PROJECT, asked, payload=False, limit=1_000, cursor=None)
    spans: list[dict[str, Any]] = page["spans"]
    return spans


def number(span: dict[str, Any]) -> int:
    return int(span["trace_id"], 16) - 1


def stage_of(n: int) -> str | None:
    return STAGES[n % 3] if n % 7 else None


@pytest.mark.parametrize("by_event_time", [False, True])
@pytest.mark.parametrize("limit", [1, 4, 100])
async def test_spans_are_listed_by_a_field_and_by_what_only_payloads_tell(
    store: Database, by_event_time: bool, limit: int
) -> None:
    await history(store)
    asked = SpanFilter(by_event_time=by_event_time)
    everything = await plain(store, asked)
    for stage in (*STAGES, None):
        wanted = [span for span in everything if stage_of(number(span)) == stage]
        assert len(wanted) > 3
        for field in (FIELD, NO_FIELD):
            assert await listed(store, {field: stage}, limit, asked) == wanted


@pytest.mark.parametrize(
    "asked",
    [
        SpanFilter(status="error"),
        SpanFilter(status="ok", name="step 1"),
        SpanFilter(kind="llm", model_id="gpt-4o"),
        SpanFilter(q="STEP 0"),
        SpanFilter(trace_id=(5).to_bytes(16, "big")),
        SpanFilter(session_id="nobody"),
        # Both ends of a list's range are in it.
        SpanFilter(low=NOW - timedelta(minutes=10), high=NOW - timedelta(minutes=4), by_event_time=True),
    ],
)
async def test_whatever_else_a_list_is_narrowed_to_holds_beside_it(
    store: Database, asked: SpanFilter
) -> None:
    await history(store)
    others = await plain(store, asked)
    for stage in STAGES:
        wanted = [span for span in others if stage_of(number(span)) == stage]
        for field in (FIELD, NO_FIELD):
            assert await listed(store, {field: stage}, 100, asked) == wanted


async def test_a_field_that_is_asked_for_twice_has_both_values(store: Database) -> None:
    await history(store)
    assert await listed(store, {"name": "step 1"}, 100, SpanFilter(name="step 0")) == []
    assert await listed(store, {"name": "step 1", NO_FIELD: "staging"})


async def test_a_list_says_how_far_it_looked_and_its_cursor_goes_on_from_there(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(store)
    wanted = await listed(store, STAGING)
    monkeypatch.setattr(spans_by_payload, "MOST_SPANS", 10)
    asked = SpanFilter(by_event_time=True)
    page = await FilteredSpans(store, STAGING).page(PROJECT, asked, payload=False, limit=100, cursor=None)
    assert page["notes"] == [
        "attr.shop.stage is not a field: searched the payloads of 10 spans, back to"
        " 2026-11-20T11:51:00.000000Z; the next page goes on from there"
    ]
    assert {number(span) for span in await listed(store, STAGING, 100, asked)} == set(map(number, wanted))


async def test_a_value_that_no_span_can_have_is_said(store: Database) -> None:
    await history(store)
    page = await FilteredSpans(store, {"kind": "tools"}).page(
        PROJECT, SpanFilter(), payload=False, limit=100, cursor=None
    )
    assert page["spans"] == []
    assert page["notes"][0].startswith("kind is never 'tools', only llm, ")


async def test_payloads_are_shown_where_they_are_asked_for(store: Database) -> None:
    await history(store)
    page = await FilteredSpans(store, STAGING).page(
        PROJECT, SpanFilter(), payload=True, limit=100, cursor=None
    )
    assert page["spans"]
    for span in page["spans"]:
        assert span["attributes"]["shop.stage"] == "staging"
        assert span["payload_available"]


async def test_a_list_whose_database_goes_away_midway_is_an_outage_and_not_a_shorter_list(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(store)
    wanted = await listed(store, STAGING)
    monkeypatch.setattr(spans_by_payload, "_FIRST_ROWS", 8)
    spans, ended = await through_outages(store, monkeypatch, lambda: listed(store, STAGING))
    assert spans == wanted
    # Fields, two batches of rows with their frames and messages, and what is still there.
    assert ended > 7


async def test_a_name_that_is_no_field_is_refused(store: Database) -> None:
    with pytest.raises(Refused, match="unknown field 'stage' for dataset 'spans'"):
        await listed(store, {"stage": "staging"})


async def test_the_tool_takes_filters_where_it_may_take_more_than_is_specified(store: Database) -> None:
    await history(store)
    asked = {"name": "list_spans", "arguments": {"filters": STAGING, "status": "error"}}
    answer = (await Door.of(store).ask("tools/call", asked)).result["structuredContent"]
    assert {span["status"] for span in answer["spans"]} == {"error"}
    assert {stage_of(number(span)) for span in answer["spans"]} == {"staging"}
    assert answer["notes"] == ["attr.shop.stage is not a field: searched the payloads of 8 spans"]
    refused = await Door.of(store, extensions=False).ask("tools/call", asked)
    assert "unknown field `filters`" in refused.message
    unknown = {"name": "list_spans", "arguments": {"filters": {"stage": "x"}}}
    result = (await Door.of(store).ask("tools/call", unknown)).result
    assert result["isError"]
    assert "unknown field 'stage'" in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("query_count", {}),
        ("query_facets", {"field": "name"}),
        ("query_timeseries", {"interval": "day", "range": {"from": "2026-11-20", "to": "2026-11-21"}}),
    ],
)
async def test_where_no_note_may_say_how_far_it_looked_no_payload_is_looked_into(
    store: Database, tool: str, arguments: dict[str, Any]
) -> None:
    await history(store, 3)
    call = {"name": tool, "arguments": {"dataset": "spans", "filters": STAGING, **arguments}}
    told = (await Door.of(store).ask("tools/call", call)).result
    assert told["structuredContent"]["notes"]
    refused = (await Door.of(store, extensions=False).ask("tools/call", call)).result
    assert refused["isError"]
    assert (
        "'attr.shop.stage' is not a field of this project; describe_dataset" in refused["content"][0]["text"]
    )
