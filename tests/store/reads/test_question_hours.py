"""Laws of pages of spans that have several things at once, and of traces with one: as the rows say."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from trio.testing import MockClock

from protocol.storage import Slow
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import READ_TIMEOUT_S, Database
from svc.store.reads.questions import question_hours, question_pages
from svc.store.reads.questions.columns import answers as column_answers
from svc.store.reads.questions.grouped import QUERY_TIMEOUT_S
from svc.store.reads.traces import trace_hours, trace_search
from svc.store.reads.traces.filtered_spans import FilteredSpans
from svc.store.reads.traces.spans import SpanFilter, SpanReads
from svc.store.reads.traces.trace_filter import TraceFilter, of_one_span
from svc.store.reads.traces.traces import TraceReads
from tests.store.reads.test_column_answers import build, send
from tests.store.reads.test_column_answers import built as built
from tests.store.reads.test_column_answers import (
    every_answer_tries_columns as every_answer_tries_columns,
)
from tests.store.spans.test_writing import NOW, Clock, one, rows, store_of

#: What one span must have; two of them no span of these has at once.
CONJUNCTIONS: Sequence[Mapping[str, str]] = [
    {"kind": "tool", "status": "error"},
    {"kind": "tool", "provided_model_name": "gpt-4o"},
    {"name": "n1", "environment": "production"},
    {"name": "n2", "tag": "b", "environment": "staging"},
    {"kind": "llm", "model_id": "gpt-4o", "status": "ok"},
    {"user_id": "u3", "kind": "tool"},
    {"tag": "nobody's", "kind": "tool"},
]


#: That a trace `t` begins as early as all of its spans do; it is to be rolled up if one came late.
ROLLED_UP = "not exists (select from span s where s.trace_id = t.trace_id and s.started_at < t.started_at)"


@pytest.fixture(autouse=True)
def nothing_but_hours_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nowhere(*_: object) -> None:
        """No index, group or value leads to the page."""

    monkeypatch.setattr(trace_search, "NEAR", 0)
    monkeypatch.setattr(trace_search, "_lead_of_groups", nowhere)
    monkeypatch.setattr(trace_search, "_lead_of_values", nowhere)


@pytest.fixture
def nobody_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def walked(*_: object) -> Any:
        raise AssertionError("all traces were walked over")

    monkeypatch.setattr(trace_hours, "walked", walked)


def having(filters: Mapping[str, str], values: list[Any]) -> str:
    """That a span `s` has all of these, whose values are added."""
    conditions = []
    for field, value in filters.items():
        values.append(value)
        conditions.append(
            f"s.{field} = ${len(values)}"
            if field not in ("environment", "tag")
            else "strpos(s.facets, (select code from attribute_value where project_id = 1"
            f" and field = '{field}' and value = ${len(values)})) > 0"
        )
    return " and ".join(conditions)


async def holding(store: Database, asked: TraceFilter, filters: Mapping[str, str]) -> list[str]:
    """The traces with such a span, newest first, from their rows; without those to be rolled up."""
    values: list[Any] = []
    condition = having(filters, values)
    values += [asked.low, asked.high]
    found = await store.fetch(
        "select encode(t.trace_id, 'hex') as id from trace t where exists (select from span s"
        f" where s.project_id = 1 and s.trace_id = t.trace_id and {condition})"
        f" and {ROLLED_UP}"
        f" and (${len(values) - 1}::timestamptz is null or started_at >= ${len(values) - 1})"
        f" and (${len(values)}::timestamptz is null or started_at <= ${len(values)})"
        " order by started_at desc, trace_id desc",
        *values,
    )
    return [row["id"] for row in found]


async def pages(store: Database, asked: TraceFilter, limit: int) -> list[str]:
    """All pages, one after the other, without traces that are to be rolled up."""
    reads, found, cursor = TraceReads(store, SpanReads(store)), [], None
    while True:
        page = await reads.page(1, asked, limit=limit, cursor=cursor)
        found += [trace["trace_id"] for trace in page["traces"]]
        cursor = page["next_cursor"]
        if cursor is None:
            rolled = await store.fetch(f"select encode(trace_id, 'hex') as id from trace t where {ROLLED_UP}")
            rolled_up = {row["id"] for row in rolled}
            return [trace_id for trace_id in found if trace_id in rolled_up]


@pytest.mark.parametrize("filters", CONJUNCTIONS, ids=str)
@pytest.mark.parametrize("hours", [None, 30, 3])
@pytest.mark.usefixtures("nobody_walks")
async def test_pages_by_hours_are_those_of_the_rows(
    built: Database, filters: Mapping[str, str], hours: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    low = None if hours is None else NOW - timedelta(hours=hours, minutes=20)
    high = None if hours is None else NOW - timedelta(minutes=40)
    asked = TraceFilter(low=low, high=high, **of_one_span(filters))
    assert asked.conjoined
    expected = await holding(built, asked, filters)
    for limit, told_apart in ((50, question_hours.MOST_HOURS), (3, question_hours.MOST_HOURS), (3, 24)):
        monkeypatch.setattr(question_hours, "MOST_HOURS", told_apart)
        assert await pages(built, asked, limit) == expected


@pytest.mark.usefixtures("nobody_walks")
async def test_some_of_these_are_found_and_some_are_nowhere(built: Database) -> None:
    found = [bool(await pages(built, TraceFilter(**of_one_span(filters)), 50)) for filters in CONJUNCTIONS]
    assert found == [True, False, True, True, True, True, False]


@pytest.mark.parametrize("most", [0, 1])
async def test_where_hours_are_unknown_or_too_many_traces_are_walked_over(
    built: Database, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters = {"kind": "tool", "status": "error"}
    asked = TraceFilter(**of_one_span(filters))
    if most:
        monkeypatch.setattr(trace_search, "RARE", most)
    else:
        monkeypatch.setattr(column_answers, "MOST_CELLS", -1)
    assert await pages(built, asked, 3) == await holding(built, asked, filters)


@pytest.mark.usefixtures("nobody_walks")
async def test_what_comes_after_its_hour_was_built_is_found(store: Database) -> None:
    assert (await ProjectStore(store).make_default()).id == 1
    await send(store, random.Random(3), 60, 2)
    await build(store, NOW - timedelta(hours=3))
    filters = {"kind": "tool", "status": "error"}
    asked = TraceFilter(**of_one_span(filters))
    before = await pages(store, asked, 50)
    clock = Clock()
    clock.now = NOW + timedelta(hours=1)
    late = one(
        900,
        start=NOW - timedelta(hours=30),
        trace_id=bytes([255]) * 16,
        attributes={"gen_ai.operation.name": "execute_tool"},
        status_code=2,
    )
    await store_of(store, clock).write(rows(late))
    await send(store, random.Random(5), 60, 1, NOW + timedelta(hours=26))
    after = await pages(store, asked, 50)
    assert after == await holding(store, asked, filters)
    assert set(after) > {*before, "ff" * 16}


@pytest.mark.parametrize("filters", CONJUNCTIONS, ids=str)
@pytest.mark.parametrize("hours", [None, 30])
@pytest.mark.parametrize("ahead", [0, 2])
async def test_pages_of_spans_are_those_of_the_rows(
    built: Database,
    filters: Mapping[str, str],
    hours: int | None,
    ahead: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(question_pages, "AHEAD", ahead)
    asked = [0]

    async def counted(*arguments: Any) -> Any:
        asked[0] += 1
        return await question_hours.hours_of(*arguments)

    monkeypatch.setattr(question_pages, "hours_of", counted)
    low = None if hours is None else NOW - timedelta(hours=hours, minutes=20)
    values: list[Any] = []
    condition = having(filters, values)
    expected = await built.fetch(
        f"select encode(span_id, 'hex') as id from span s where {condition}"
        f" and (${len(values) + 1}::timestamptz is null or created_at >= ${len(values) + 1})"
        " order by created_at desc, trace_id desc, span_id desc",
        *(*values, low),
    )
    for limit in (500, 3):
        reads, found, cursor = FilteredSpans(built, filters), [], None
        while True:
            page = await reads.page(1, SpanFilter(low=low), payload=False, limit=limit, cursor=cursor)
            found += [span["span_id"] for span in page["spans"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert found == [row["id"] for row in expected]
    # A filter on users leads down an index of its own.
    assert asked[0] or "user_id" in filters or "kind" not in filters


def each_unit_takes(wait_s: float, clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each unit of work may take, in order; on a clock that stands still but for them."""
    bounds_s: list[float] = []
    run = Database.run

    async def slow(database: Database, work: Any, *, timeout_s: float, **how: Any) -> Any:
        bounds_s.append(timeout_s)
        try:
            return await run(database, work, timeout_s=timeout_s, **how)
        finally:
            clock.jump(wait_s)

    monkeypatch.setattr(Database, "run", slow)
    return bounds_s


@pytest.mark.usefixtures("nobody_walks")
async def test_all_that_a_page_takes_shares_one_bound(
    built: Database, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question_pages, "AHEAD", 0)
    bounds_s = each_unit_takes(10.0, mock_clock, monkeypatch)
    asked = TraceFilter(**of_one_span({"kind": "tool", "status": "error"}))
    with pytest.raises(Slow):
        await TraceReads(built, SpanReads(built)).page(1, asked, limit=3, cursor=None)
    assert bounds_s == [READ_TIMEOUT_S, READ_TIMEOUT_S - 10, READ_TIMEOUT_S - 20, 0]
    bounds_s.clear()
    spans = FilteredSpans(built, {"kind": "tool", "status": "ok"})
    with pytest.raises(Slow):
        await spans.page(1, SpanFilter(), payload=False, limit=3, cursor=None)
    assert bounds_s[-4:] == [QUERY_TIMEOUT_S, QUERY_TIMEOUT_S - 10, QUERY_TIMEOUT_S - 20, 0]
