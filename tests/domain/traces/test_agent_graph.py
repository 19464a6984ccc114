"""The agent graph of a trace: no overlap, the same drawing of the same spans, shares that add up."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.traces.agent_graph import (
    BOX_HEIGHT,
    BOX_WIDTH,
    MOST_BOXES,
    START,
    AgentGraph,
    GraphSpan,
    agent_graph,
)


def span(
    number: int, kind: str, name: str, parent: int = 0, start: int = 0, end: int = 100, **more: Any
) -> GraphSpan:
    fields = {"failed": False, "tokens": 0, "cost": None, **more}
    above = bytes([parent]) if parent else None
    return GraphSpan(bytes([number]), above, kind, name, start, end, **fields)


KINDS = ("agent", "tool", "llm", "handoff", "step", "retrieval", "guardrail")


@st.composite
def traces(draw: st.DrawFn) -> list[GraphSpan]:
    """Any spans: with circles, lost parents, open ends, and more names than are drawn."""
    spans = []
    for number in range(1, draw(st.integers(1, 60)) + 1):
        start = draw(st.integers(0, 200))
        end = draw(st.none() | st.integers(start, 300))
        name = f"n{draw(st.integers(0, 40))}"
        parent = draw(st.integers(0, 70))
        kind = draw(st.sampled_from(KINDS))
        spans.append(span(number, kind, name, parent, start, failed=draw(st.booleans())))
        spans[-1] = GraphSpan(
            *(bytes([number]), spans[-1].parent_span_id, kind, name, start, end), False, 1, None
        )
    return spans


@given(traces(), st.randoms())
def test_no_box_overlaps_and_the_same_spans_draw_the_same(spans: list[GraphSpan], dice: Any) -> None:
    graph = agent_graph(spans)
    assert len(graph.boxes) <= MOST_BOXES
    for number, box in enumerate(graph.boxes):
        assert 0 <= box.x <= graph.width - BOX_WIDTH
        assert 0 <= box.y <= graph.height - BOX_HEIGHT
        for other in graph.boxes[:number]:
            assert abs(box.x - other.x) >= BOX_WIDTH or abs(box.y - other.y) >= BOX_HEIGHT
    shuffled = list(spans)
    dice.shuffle(shuffled)
    assert agent_graph(shuffled) == graph
    keys = {box.key for box in graph.boxes}
    assert all({line.caller, line.callee} <= keys for line in graph.lines)


@given(traces())
def test_tokens_and_calls_add_up_to_the_whole(spans: list[GraphSpan]) -> None:
    graph = agent_graph(spans)
    assert sum(box.tokens for box in graph.boxes) == sum(each.tokens for each in spans)
    called = sum(each.kind in ("agent", "tool", "retrieval", "guardrail") for each in spans)
    assert sum(line.calls for line in graph.lines) == sum(box.calls for box in graph.boxes) == called


@given(st.lists(traces(), min_size=1, max_size=4))
def test_the_graph_of_several_traces_is_the_sum_of_theirs(several: list[list[GraphSpan]]) -> None:
    together, apart = agent_graph(*several), [agent_graph(spans) for spans in several]
    for measure in ("calls", "failed", "model_calls", "tokens"):
        whole = sum(getattr(box, measure) for box in together.boxes)
        assert whole == sum(getattr(box, measure) for graph in apart for box in graph.boxes)
    assert together.time == pytest.approx(sum(graph.time for graph in apart))
    assert sum(line.calls for line in together.lines) == sum(
        line.calls for graph in apart for line in graph.lines
    )


@given(traces())
def test_no_time_is_counted_twice(spans: list[GraphSpan]) -> None:
    covered = {moment for each in spans if each.end is not None for moment in range(each.start, each.end)}
    assert agent_graph(spans).time <= len(covered) + 1e-6


def lines(graph: AgentGraph) -> dict[tuple[str, str], tuple[int, bool, bool]]:
    return {
        (line.caller[1], line.callee[1]): (line.calls, line.handoff, line.parallel) for line in graph.lines
    }


def test_time_is_a_steps_own_and_parallel_steps_share_it() -> None:
    graph = agent_graph(
        [
            span(1, "agent", "support", end=100),
            span(2, "tool", "search", 1, 20, 60),
            span(3, "tool", "fetch", 1, 40, 80),
            span(4, "llm", "chat", 1, 80, 100, tokens=7, cost=Decimal("0.01")),
        ]
    )
    times = {box.name: box.time for box in graph.boxes}
    assert times == {"": 0.0, "support": 40.0, "search": 30.0, "fetch": 30.0}
    support = next(box for box in graph.boxes if box.name == "support")
    assert (support.tokens, support.cost, support.model_calls) == (7, Decimal("0.01"), 1)
    assert lines(graph) == {
        ("", "support"): (1, False, False),
        ("support", "search"): (1, False, False),
        ("support", "fetch"): (1, False, True),
    }


@pytest.mark.parametrize("step_us", [0, 10])
def test_a_graph_costs_what_its_spans_cost(step_us: int) -> None:
    # Side by side, or one after the other; each beside each other one would be minutes of processor time.
    calls = [
        GraphSpan(number.to_bytes(4, "big"), b"r", "tool", "t", start, start + 5, False, 0, None)
        for number in range(20_000)
        for start in [number * step_us]
    ]
    began_s = time.thread_time()
    graph = agent_graph([GraphSpan(b"r", None, "agent", "a", 0, 200_000, False, 0, None), *calls])
    assert time.thread_time() - began_s < 5
    assert sum(box.calls for box in graph.boxes) == 20_001
    assert graph.time == pytest.approx(200_000)


def test_a_handover_leads_from_the_giving_agent_to_the_next_one() -> None:
    graph = agent_graph(
        [
            span(1, "workflow", "run", end=300),
            span(2, "agent", "triage", 1, 0, 100),
            span(3, "handoff", "to refunds", 2, 90, 95),
            span(4, "agent", "refunds", 1, 100, 300),
            span(5, "tool", "pay", 4, 120, 180, failed=True),
        ]
    )
    assert lines(graph) == {
        ("", "triage"): (1, False, False),
        ("triage", "refunds"): (1, True, False),
        ("refunds", "pay"): (1, False, False),
    }
    columns = {box.name: box.column for box in graph.boxes}
    assert columns == {"": 0, "triage": 1, "refunds": 2, "pay": 3}
    assert {box.key for box in graph.boxes if box.failed} == {("tool", "pay")}
    assert START in {box.key for box in graph.boxes}
