"""Laws of the reads of agent graphs: which traces of a call site are there, and how much of each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from svc.store.postgres.database import Database
from svc.store.reads.one_trace import trace_graph
from svc.store.reads.one_trace.trace_graph import SiteSpans, TraceGraphReads
from svc.store.spans.traces import PostgresTraceStore
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, PROJECT, Clock, one, rows, store_of

TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
LONG_AGO = NOW - timedelta(days=30)


async def write(store: Database, *traces: list[Any]) -> None:
    clock = Clock()
    for spans in traces:
        await store_of(store, clock).write(rows(*spans))
    await settle_at(clock.now + timedelta(seconds=11), PostgresTraceStore(store))


def trace(number: int, tools: int, *, name: str = "answer", minutes_ago: float = 10) -> list[Any]:
    where: dict[str, Any] = {"trace_id": number.to_bytes(16, "big")}
    start = NOW - timedelta(minutes=minutes_ago)
    root = one(
        1, name=name, start=start, took_s=9.0, attributes={"gen_ai.operation.name": "invoke_agent"}, **where
    )
    return [
        root,
        *(
            one(
                place,
                parent=1,
                name="execute_tool look",
                start=start + timedelta(seconds=1),
                attributes=TOOL,
                **where,
            )
            for place in range(2, tools + 2)
        ),
    ]


async def read(store: Database, site: str) -> SiteSpans:
    return await TraceGraphReads(store).of_site(PROJECT, site, LONG_AGO)


async def site_of(store: Database, number: int) -> str:
    found = await store.fetch(
        "select call_site_id from trace where trace_id = $1", number.to_bytes(16, "big")
    )
    return str(found[0]["call_site_id"])


async def test_the_traces_of_one_call_site_are_there_whole_the_oldest_first(store: Database) -> None:
    await write(store, trace(1, 2, minutes_ago=5), trace(2, 1, minutes_ago=9), trace(3, 4, name="other"))
    spans = await read(store, await site_of(store, 1))
    assert [len(each) for each in spans.traces] == [2, 3]
    assert not spans.cut
    first = spans.traces[0][0]
    assert (first.kind, first.start, first.end) == ("agent", 0, 9_000_000)
    assert (await read(store, "nobody")).traces == []


async def test_of_a_large_trace_the_first_spans_are_there_and_that_is_said(store: Database) -> None:
    await write(store, trace(1, trace_graph.MOST_SPANS_EACH), trace(2, 1, minutes_ago=20))
    spans = await read(store, await site_of(store, 1))
    assert [len(each) for each in spans.traces] == [2, trace_graph.MOST_SPANS_EACH]
    assert spans.cut


async def test_at_the_bound_of_spans_the_newest_traces_are_there_whole(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(store, *(trace(number, 2, minutes_ago=number) for number in range(1, 6)))
    monkeypatch.setattr(trace_graph, "MOST_SPANS", 8)
    monkeypatch.setattr(trace_graph, "_OF_SITE", trace_graph._OF_SITE.replace("limit 20000", "limit 8"))
    spans = await read(store, await site_of(store, 1))
    assert [len(each) for each in spans.traces] == [3, 3]
