"""Laws of marks in lists of traces and on the page of one: they name the same traces everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from svc.store.aggregates.cubes import CubeStore
from svc.store.postgres.database import Database
from svc.store.reads.one_trace.skeleton import SkeletonReads
from svc.store.reads.one_trace.trace_marks import TraceMarkReads
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.trace_counts import TraceCounts
from svc.store.reads.traces.trace_filter import TraceFilter
from svc.store.reads.traces.traces import TraceReads
from tests.store.detection.counting.test_mark_rows import asks, says, tool
from tests.store.detection.counting.test_tallying import begin, settle, tally_all, write
from tests.store.spans.test_writing import NOW, PROJECT

HOUR = timedelta(hours=1)


async def filled(store: Database, *, built: bool) -> None:
    """Six traces: a broken call in the even ones, an HTTP error in 3 and 6, nothing in 1 and 5."""
    await begin(store)
    for number in range(1, 7):
        arguments = {"limit": 1} if number % 2 == 0 else {"query": "a"}
        result = "404 Not Found" if number % 3 == 0 else "a row"
        await write(
            store,
            asks(1, arguments, trace=number, at_s=60 * number),
            tool(2, trace=number, at_s=60 * number + 2, result=result),
            says(3, f"It is parcel {number}.", trace=number, at_s=60 * number + 5),
        )
    await settle(store, NOW + HOUR)
    await tally_all(store)
    if built:
        while (await CubeStore(store).build(NOW + 4 * HOUR, 100)).more:
            pass


FILTERS: list[tuple[dict[str, Any], Sequence[int]]] = [
    ({"marks": ("args_break_schema",)}, (6, 4, 2)),
    ({"marks": ("http_error_in_ok_result",)}, (6, 3)),
    ({"marks": ("args_break_schema", "http_error_in_ok_result")}, (6,)),
    ({"marks": ("same_call_again",)}, ()),
    ({"without_marks": ("args_break_schema",)}, (5, 3, 1)),
    ({"marks": ("http_error_in_ok_result",), "without_marks": ("args_break_schema",)}, (3,)),
    ({"marks": ("args_break_schema",), "model": "gpt-4o"}, (6, 4, 2)),
    ({"marks": ("args_break_schema",), "without": (("model", "gpt-4o"),)}, ()),
    ({"marks": ("args_break_schema",), "session_id": "talk"}, (6, 4, 2)),
    ({"marks": ("args_break_schema",), "q": f"{4:032x}"}, (4,)),
    ({"marks": ("args_break_schema",), "q": "talk", "kind": "tool"}, (6, 4, 2)),
    ({"marks": ("args_break_schema",), "slower_than": timedelta(seconds=9)}, ()),
    ({"marks": ("args_break_schema",), "status": "ok", "high": NOW + timedelta(minutes=5)}, (4, 2)),
]


@pytest.mark.parametrize("built", [False, True])
async def test_pages_drawings_and_facets_agree_on_which_traces_have_a_mark(
    store: Database, built: bool
) -> None:
    await filled(store, built=built)
    reads, counts = TraceReads(store, SpanReads(store)), TraceCounts(store)
    for asked, expected in FILTERS:
        trace_filter = TraceFilter(**asked)
        page = await reads.page(PROJECT, trace_filter, limit=50, cursor=None)
        assert [int(trace["trace_id"], 16) for trace in page["traces"]] == list(expected), asked
        first = await reads.page(PROJECT, trace_filter, limit=1, cursor=None)
        if len(expected) > 1:
            rest = await reads.page(PROJECT, trace_filter, limit=50, cursor=first["next_cursor"])
            assert [int(trace["trace_id"], 16) for trace in rest["traces"]] == list(expected[1:]), asked
        drawn = await counts.histogram(PROJECT, trace_filter, HOUR, timeout_s=9, budget_s=9)
        assert drawn.count == len(expected), asked
        facets = await counts.facets(PROJECT, trace_filter, timeout_s=9)
        assert facets.over == len(expected), asked
        largest = await reads.largest(PROJECT, trace_filter, "latency", limit=50)
        assert len(largest["traces"]) == len(expected), asked


async def test_marks_are_a_facet_counted_by_trace(store: Database) -> None:
    await filled(store, built=False)
    counts = TraceCounts(store)
    facets = await counts.facets(PROJECT, TraceFilter(), timeout_s=9)
    assert facets.fields["mark"] == [("args_break_schema", 3), ("http_error_in_ok_result", 2)]
    facets = await counts.facets(PROJECT, TraceFilter(marks=("http_error_in_ok_result",)), timeout_s=9)
    assert facets.fields["mark"] == [("http_error_in_ok_result", 2), ("args_break_schema", 1)]


async def test_the_page_of_a_trace_reads_its_marks_with_the_names_of_their_spans(store: Database) -> None:
    await filled(store, built=False)
    trace_id = (6).to_bytes(16, "big")
    head = await SkeletonReads(store).head(PROJECT, trace_id)
    assert head is not None
    marks = await TraceMarkReads(store).of(PROJECT, trace_id, head)
    assert [mark.kind.name for mark in marks] == ["args_break_schema", "http_error_in_ok_result"]
    for mark in marks:
        assert (mark.effect.span_id, mark.effect.name) == (f"{2:016x}", "execute_tool search")
        assert mark.cause is not None
        assert (mark.cause.span_id, mark.cause.name) == (f"{1:016x}", "chat")
        assert mark.told_of == {f"{1:016x}", f"{2:016x}"}
    other = (1).to_bytes(16, "big")
    head = await SkeletonReads(store).head(PROJECT, other)
    assert head is not None
    assert await TraceMarkReads(store).of(PROJECT, other, head) == []
