"""Ordinary questions, asked through the tools over a history that arrived today and happened last week.

Each is answered right in at most two calls of at most 5 KB. What changed at a call site, and whether a secret
was leaked, are the detectors' to answer (tests/detecting).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pytest

from protocol.rest.query import timestamp
from svc.front.mcp.given import ToolError
from svc.front.mcp.reads import Reads
from svc.front.mcp.tools import BadArguments, catalogue
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.traces.traces import TraceFilter, TraceRank
from svc.store.spans.traces import PostgresTraceStore
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, PROJECT, Clock, fetch, one, rows, store_of

DAY = timedelta(days=1)
#: A Monday, and the week that it begins.
MONDAY = datetime(2026, 11, 9, tzinfo=NOW.tzinfo)
LAST_WEEK = {"from": timestamp(MONDAY), "to": timestamp(MONDAY + 7 * DAY)}
WEDNESDAY = {"from": timestamp(MONDAY + 2 * DAY), "to": timestamp(MONDAY + 3 * DAY)}
OF_LAST_WEEK = TraceFilter(low=MONDAY, high=MONDAY + 7 * DAY)
ANSWER_BYTES = 5 * 1024


@attrs.define
class Agent:
    """An agent with two calls a question."""

    reads: Reads
    calls: int = 0

    async def call(self, tool: str, **arguments: Any) -> Any:
        self.calls += 1
        assert self.calls <= 2
        chosen = catalogue(extensions=True).tools[tool]
        answer = await chosen.handler(self.reads, PROJECT, chosen.read(arguments))
        assert len(msgspec.json.encode(answer)) <= ANSWER_BYTES
        return msgspec.json.decode(msgspec.json.encode(answer))


@pytest.fixture
async def agent(store: Database) -> Agent:
    """Seven days of ten traces: a chat and a tool each; bookings time out on Wednesday, all of one user."""
    assert (await ProjectStore(store).make_default()).id == PROJECT
    clock = Clock()
    spans = store_of(store, clock)
    number = 0
    for day in range(7):
        for turn in range(10):
            number += 1
            failed = day == 2 and turn < 4
            start = MONDAY + day * DAY + timedelta(hours=turn)
            who = {"session.id": f"s{turn}", "user.id": "ann" if failed else f"u{turn}"}
            trace_id = number.to_bytes(16, "big")
            topic = "Refund of order 7" if turn % 2 else "Where is my parcel"
            chat = who | {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "gpt-4o" if turn % 2 else "gpt-4o-mini",
                "gen_ai.usage.input_tokens": 1000 + day,
                "gen_ai.usage.output_tokens": 100,
                "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": topic}]}],
                "svc.call_site.id": "desk.answer",
            }
            tool = who | {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "book" if turn % 2 or failed else "search",
                "svc.call_site.id": "desk.tools",
            }
            error = {"error.type": "TimeoutError"} if failed else {}
            shared: dict[str, Any] = {"trace_id": trace_id, "start": start}
            await spans.write(
                rows(
                    one(number * 10, name="turn", took_s=10 + turn, status_code=2 if failed else 0,
                        attributes=who, **shared),
                    one(number * 10 + 1, name="chat", parent=number * 10, took_s=2,
                        attributes=chat, **shared),
                    one(number * 10 + 2, name="tool", parent=number * 10, took_s=8 if failed else 1,
                        status_code=2 if failed else 0, attributes=tool | error, **shared),
                )
            )  # fmt: skip
    traces = PostgresTraceStore(store)
    await settle_at(clock.now + timedelta(minutes=1), traces)
    return Agent(Reads.of(store, QueryStore(store), lambda: NOW))


async def test_why_did_a_tool_fail_on_a_day(agent: Agent) -> None:
    kinds = await agent.call(
        "query_facets", dataset="tool_calls", field="error_type", by="started_at", range=WEDNESDAY,
        filters={"name": "book", "status": "error"},
    )  # fmt: skip
    assert kinds["facets"] == [{"value": "TimeoutError", "count": 4}]
    spans = await agent.call(
        "list_spans", by="started_at", range=WEDNESDAY, status="error", kind="tool", limit=1
    )
    assert spans["spans"][0]["error_type"] == "TimeoutError"


async def test_errors_a_day_last_week(agent: Agent) -> None:
    answer = await agent.call(
        "query_timeseries",
        dataset="spans",
        interval="day",
        range=LAST_WEEK,
        by="started_at",
        measure="errors",
    )
    assert [bucket["errors"] for bucket in answer["buckets"]] == [0, 0, 8, 0, 0, 0, 0]


async def test_who_asks_by_arrival_is_told_of_event_time(agent: Agent) -> None:
    """The question as it was asked before: silently wrong, 0 for 8."""
    answer = await agent.call("query_count", dataset="spans", range=LAST_WEEK, filters={"status": "error"})
    assert answer == {"count": 0, "notes": ["0 by arrival; 8 started in this range: by=started_at"]}


async def test_what_was_spent_on_each_model_last_week(agent: Agent) -> None:
    answer = await agent.call(
        "query_facets", dataset="spans", field="model_id", measure="cost", by="started_at", range=LAST_WEEK
    )
    assert answer["unit"] == "USD"
    dear, cheap, other = answer["facets"]
    # In USD a million tokens, in and out; five calls of each a day.
    prices = ((dear, "gpt-4o", "2.5", "10"), (cheap, "gpt-4o-mini", "0.15", "0.6"))
    for facet, model, price_in, price_out in prices:
        tokens_in, tokens_out = 5 * sum(1000 + day for day in range(7)), 35 * 100
        spent = tokens_in * Decimal(price_in) + tokens_out * Decimal(price_out)
        assert (facet["value"], Decimal(facet["cost"])) == (model, spent / 1_000_000)
    assert (other["value"], other["cost"]) == (None, None)


async def test_which_tool_fails_most_and_how(agent: Agent) -> None:
    tools = await agent.call(
        "query_facets", dataset="tool_calls", field="name", measure="errors", by="started_at", range=LAST_WEEK
    )
    worst = tools["facets"][0]
    assert (worst["value"], worst["errors"]) == ("book", 4)
    how = await agent.call(
        "query_facets", dataset="tool_calls", field="error_type", by="started_at", range=LAST_WEEK,
        filters={"name": worst["value"], "status": "error"},
    )  # fmt: skip
    assert how["facets"] == [{"value": "TimeoutError", "count": 4}]


async def test_which_user_is_hit_most(agent: Agent) -> None:
    answer = await agent.call(
        "query_facets", dataset="spans", field="user_id", measure="errors", by="started_at", range=LAST_WEEK
    )
    assert (answer["facets"][0]["value"], answer["facets"][0]["errors"]) == ("ann", 8)


async def test_how_slow_each_call_site_is(agent: Agent) -> None:
    answer = await agent.call(
        "query_facets", dataset="spans", field="call_site_id", measure="duration_p95", by="started_at",
        range=WEDNESDAY,
    )  # fmt: skip
    slowness = {facet["value"]: facet["duration_p95"] for facet in answer["facets"]}
    assert (slowness["desk.tools"], slowness["desk.answer"]) == (8_000.0, 2_000.0)
    assert answer["unit"] == "ms"


async def test_the_slowest_trace_of_a_day(agent: Agent) -> None:
    answer = await agent.call("list_traces", range=WEDNESDAY, sort="latency", limit=1)
    (slowest,) = answer["traces"]
    assert (slowest["trace_id"], slowest["latency_ms"]) == ((2 * 10 + 10).to_bytes(16, "big").hex(), 19_000.0)
    assert answer["next_cursor"] is None


@pytest.mark.parametrize(
    ("sort", "key"),
    [
        ("latency", "latency_ms"),
        ("cost", "total_cost"),
        ("tokens", "total_tokens"),
        ("errors", "error_count"),
    ],
)
async def test_traces_of_a_range_are_ranked(agent: Agent, sort: TraceRank, key: str) -> None:
    page = (await agent.reads.traces.largest(PROJECT, OF_LAST_WEEK, sort, limit=100))["traces"]
    values = [trace[key] for trace in page]
    assert len(page) == 70
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]


async def test_a_ranking_of_everything_is_refused_with_the_way_out(agent: Agent) -> None:
    with pytest.raises(ToolError, match="needs a range"):
        await agent.call("list_traces", sort="cost")


async def test_failed_conversations_about_a_topic(agent: Agent) -> None:
    answer = await agent.call("list_traces", range=LAST_WEEK, status="error", q="refund", limit=10)
    assert len(answer["traces"]) == 2
    assert {trace["user_id"] for trace in answer["traces"]} == {"ann"}


async def test_traces_with_a_mark(agent: Agent, store: Database) -> None:
    listed = await agent.call("list_traces", range=LAST_WEEK, limit=3)
    marked = listed["traces"][1]["trace_id"]
    await fetch(
        store,
        "insert into classifier_event (project_id, id, classifier_id, severity, subject_kind,"
        " subject_trace_id, summary)"
        " values ($1, gen_random_uuid(), 'same_call_again', 'low', 'span', $2, 'The tool…')",
        PROJECT,
        bytes.fromhex(marked),
    )
    agent.calls = 0
    for more in ({}, {"sort": "cost"}):
        answer = await agent.call("list_traces", range=LAST_WEEK, mark="same_call_again", **more)
        assert [trace["trace_id"] for trace in answer["traces"]] == [marked]
    with pytest.raises(BadArguments, match="mark"):
        catalogue(extensions=True).tools["list_traces"].read({"mark": "unheard_of"})


async def test_traces_that_went_on_after_a_failed_span(agent: Agent) -> None:
    answer = await agent.call("list_traces", range=LAST_WEEK, failed_spans=True, limit=4)
    assert len(answer["traces"]) == 4
    assert all(trace["error_count"] == 2 for trace in answer["traces"])
