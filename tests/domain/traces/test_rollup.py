"""Laws of the roll-up of a trace: what counts, what repeats, and that no shape of links can stop it."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc.domain.spans.span import SpanRow, ToolCall
from svc.domain.traces.duplicate_calls import mark_duplicate_calls
from svc.domain.traces.rollup import roll_up
from svc.domain.traces.tool_calls import dedupe_tool_calls
from tests.domain import buckets, mapped
from tests.domain.dialects.speaking import CHAT, USAGES, WRAPPERS, shared
from tests.examples import examples

BASE = mapped({}, name="span")
ZERO_HOUR = BASE.started_at


def at(seconds: float) -> datetime:
    return ZERO_HOUR + timedelta(seconds=seconds)


def sid(number: int) -> bytes:
    return number.to_bytes(8, "big")


def row(number: int, parent: int | None = None, **fields: Any) -> SpanRow:
    start, end = fields.pop("runs", (number, number + 1))
    return msgspec.structs.replace(
        BASE,
        span_id=sid(number),
        parent_span_id=None if parent is None else sid(parent),
        name=f"span {number}",
        started_at=at(start),
        ended_at=None if end is None else at(end),
        **fields,
    )


def llm(
    number: int, parent: int | None = None, given_: int = 120, answered: int = 30, **fields: Any
) -> SpanRow:
    return row(number, parent, **{"kind": "llm", "input_tokens": given_, "output_tokens": answered, **fields})


def agent(
    number: int, parent: int | None = None, given_: int = 240, answered: int = 60, **fields: Any
) -> SpanRow:
    return llm(number, parent, given_, answered, **{"kind": "agent", **fields})


# --- the row ---------------------------------------------------------------------------------------------


def test_a_trace_without_spans_has_no_rollup() -> None:
    with pytest.raises(ValueError, match="without spans"):
        roll_up([])


def test_the_root_names_the_trace_whenever_it_arrives() -> None:
    child = row(1, 9, session_id="s", input_preview="child")
    rolled = roll_up([child])
    assert (rolled.root_seen, rolled.name, rolled.input_preview) == (False, "span 1", "child")
    rolled = roll_up([child, row(9, session_id=None, user_id="u", input_preview="root", runs=(5, 6))])
    assert (rolled.root_seen, rolled.name, rolled.input_preview) == (True, "span 9", "root")
    assert (rolled.session_id, rolled.user_id) == ("s", "u")
    assert (rolled.started_at, rolled.ended_at) == (at(1), at(6))


def test_of_several_roots_the_earliest_counts() -> None:
    assert roll_up([row(3), row(2), row(1, 3)]).name == "span 2"


def test_without_a_root_the_earliest_span_with_an_absent_parent_stands_for_it() -> None:
    assert roll_up([row(1, 3), row(3, 77, runs=(2, 4)), row(4, 78)]).name == "span 3"
    assert roll_up([row(2, 1), row(1, 2)]).name == "span 1"


def test_a_trace_has_failed_when_its_root_has_or_when_any_span_has_before_a_root() -> None:
    assert roll_up([row(1), row(2, 1, status="error")]).status == "ok"
    assert roll_up([row(1, status="error"), row(2, 1)]).status == "error"
    rolled = roll_up([row(2, 1, status="error"), row(3, 1)])
    assert (rolled.status, rolled.error_count, rolled.span_count) == ("error", 1, 2)


def test_a_tagged_call_site_is_taken_before_an_inferred_one() -> None:
    inferred = row(1, call_site_id="app/root")
    tagged = row(2, 1, call_site_id="checkout", tagged=True)
    assert roll_up([inferred]).call_site_id == "app/root"
    assert roll_up([inferred, tagged]).call_site_id == "checkout"
    assert roll_up([row(1, call_site_id="mine", tagged=True), tagged]).call_site_id == "mine"


def test_previews_fall_back_to_the_first_question_and_the_last_answer_of_the_models() -> None:
    rolled = roll_up(
        [
            row(1),
            row(2, 1, input_preview="tool in", output_preview="tool out"),
            llm(3, 1, input_preview="q1", output_preview="a1"),
            llm(4, 1, input_preview="q2", output_preview="a2"),
            row(5, 1, kind="tool", output_preview="late"),
        ]
    )
    assert (rolled.input_preview, rolled.output_preview) == ("q1", "a2")


def test_a_sum_is_null_when_nobody_reported() -> None:
    rolled = roll_up([row(1), row(2, 1)])
    assert buckets(rolled) == (None,) * 5
    assert (rolled.total_tokens, rolled.total_cost, rolled.input_cost, rolled.unpriced_spans) == (
        None,
        None,
        None,
        0,
    )
    rolled = roll_up([row(1), row(2, 1, input_tokens=0)])
    assert (rolled.input_tokens, rolled.output_tokens, rolled.total_tokens) == (0, None, 0)


def test_costs_add_up_by_direction_and_unpriced_calls_are_counted() -> None:
    priced = llm(
        2,
        1,
        input_cost=Decimal(1),
        cache_read_cost=Decimal(2),
        cache_write_cost=Decimal(4),
        output_cost=Decimal(8),
        total_cost=Decimal(15),
        cost_source="inferred",
    )
    rolled = roll_up(
        [
            row(1),
            priced,
            llm(3, 1, cost_source="unpriced"),
            llm(4, 1, total_cost=Decimal("0.5"), cost_source="provided"),
        ]
    )
    assert (rolled.input_cost, rolled.output_cost, rolled.total_cost) == (
        Decimal(7),
        Decimal(8),
        Decimal("15.5"),
    )
    assert rolled.unpriced_spans == 1


# --- usage that is not counted twice ---------------------------------------------------------------------


def test_an_agent_that_repeats_its_calls_is_not_summed() -> None:
    rolled = roll_up([agent(1), row(2, 1), llm(3, 2), llm(4, 2)])
    assert rolled.repeats == {sid(1): "descendant"}
    assert (rolled.input_tokens, rolled.output_tokens, rolled.total_tokens) == (240, 60, 300)


def test_an_agent_counts_when_nothing_below_it_reports() -> None:
    rolled = roll_up([agent(1), row(2, 1), row(3, 2, kind="llm")])
    assert (rolled.repeats, rolled.total_tokens) == ({}, 300)


def test_of_nested_agents_without_calls_the_innermost_counts() -> None:
    assert roll_up([agent(1), agent(2, 1), row(3, 2)]).repeats == {sid(1): "descendant"}


def test_a_call_and_another_call_below_it_both_count() -> None:
    rolled = roll_up([llm(1, given_=100), row(2, 1, kind="tool"), llm(3, 2, given_=50)])
    assert (rolled.repeats, rolled.input_tokens) == ({}, 150)


def test_a_call_that_is_the_sum_of_those_below_it_repeats_them() -> None:
    whole = llm(1, given_=240, answered=60)
    rolled = roll_up(
        [whole, llm(2, 1), llm(3, 1, given_=20, cache_read_tokens=100, answered=18, reasoning_tokens=12)]
    )
    assert rolled.repeats == {sid(1): "descendant"}
    assert (rolled.input_tokens, rolled.cache_read_tokens) == (140, 100)


def test_a_call_under_a_wrapper_of_the_same_response_counts_once() -> None:
    outer = llm(1, given_=20, response_id="msg_1")
    rolled = roll_up([outer, row(2, 1), llm(3, 2, response_id="msg_1")])
    assert (rolled.repeats, rolled.input_tokens) == ({sid(1): "descendant"}, 120)


def test_one_response_told_by_two_spans_side_by_side_counts_once() -> None:
    beside = [llm(2, 1, response_id="r", runs=(2, 5)), llm(3, 1, response_id="r", runs=(3, 4))]
    rolled = roll_up([row(1), *beside, llm(4, 1, response_id="other", runs=(2, 5))])
    assert (rolled.repeats, rolled.input_tokens) == ({sid(3): "response"}, 240)
    without_end = [llm(2, 1, response_id="r", runs=(2, None)), llm(3, 1, response_id="r")]
    assert roll_up(without_end).repeats == {sid(3): "response"}


def test_a_span_that_gives_a_response_only_its_cost_does_not_hide_its_usage() -> None:
    costly = row(
        2, 1, kind="llm", response_id="r", total_cost=Decimal(1), cost_source="provided", runs=(2, 5)
    )
    rolled = roll_up([row(1), costly, llm(3, 1, response_id="r", runs=(3, 4))])
    assert (rolled.repeats, rolled.total_tokens, rolled.total_cost) == ({}, 150, Decimal(1))


def test_calls_that_follow_each_other_are_two_whatever_their_response_ids() -> None:
    rolled = roll_up([row(1), llm(2, 1, response_id="r"), llm(3, 1, response_id="r")])
    assert (rolled.repeats, rolled.input_tokens) == ({}, 240)


def test_a_wrapper_is_compared_with_calls_that_count_and_not_with_their_doubles() -> None:
    beside = [llm(2, 1, response_id="r", runs=(2, 5)), llm(3, 1, response_id="r", runs=(3, 4))]
    rolled = roll_up([llm(1, runs=(1, 9)), *beside])
    assert rolled.repeats == {sid(1): "descendant", sid(3): "response"}
    assert rolled.input_tokens == 120


def test_a_cost_alone_repeats_only_a_cost_below_it() -> None:
    cost: dict[str, Any] = {"total_cost": Decimal(1), "cost_source": "provided"}
    assert roll_up([row(1, kind="agent", **cost), llm(2, 1, **cost)]).total_cost == 1
    assert roll_up([row(1, kind="agent", **cost), llm(2, 1)]).total_cost == 1
    below = roll_up([agent(1), row(2, 1, kind="tool", **cost)])
    assert (below.repeats, below.total_tokens, below.total_cost) == ({}, 300, Decimal(1))


# --- whatever dialect the spans speak --------------------------------------------------------------------

Counts = tuple[int, int, int, int, int]
amounts = st.integers(0, 10**6)
calls_made = st.lists(
    st.tuples(
        st.tuples(amounts, amounts, amounts, amounts, amounts),
        # How many spans around it, and whether another instrumentation tells it too, below or beside.
        st.integers(0, 2),
        st.sampled_from(["alone", "below", "beside"]),
    ),
    min_size=1,
    max_size=6,
)


def inclusive(counts: Counts) -> Counts:
    plain, read, written, said, thought = counts
    return plain + read + written, said + thought, read, written, thought


@pytest.mark.parametrize("dialect", USAGES)
@settings(max_examples=examples(30))
@given(made=calls_made, wrappers=st.integers(0, 2), shuffler=st.randoms(use_true_random=False))
def test_a_run_adds_up_to_its_calls_whatever_repeats_them(
    dialect: str, made: list[tuple[Counts, int, str]], wrappers: int, shuffler: random.Random
) -> None:
    kind, usage = USAGES[dialect]
    whole: Counts = tuple(map(sum, zip(*(counts for counts, _, _ in made), strict=True)))  # type: ignore[assignment]
    rows: list[SpanRow] = []

    def add(attributes: dict[str, Any], parent: int | None, start: int) -> int:
        number = len(rows) + 1
        rows.append(
            msgspec.structs.replace(
                mapped(attributes),
                span_id=sid(number),
                parent_span_id=None if parent is None else sid(parent),
                started_at=at(start),
                ended_at=at(start + 1),
            )
        )
        return number

    top: int | None = None
    for _ in range(wrappers):
        top = add({**WRAPPERS[dialect], **usage(*inclusive(whole))}, top, 0)
    for place, (counts, around, twin) in enumerate(made):
        parent = top
        for _ in range(around):
            parent = add({}, parent, place)
        answer = {"gen_ai.response.id": f"r{place}"}
        call = add({**kind, **usage(*inclusive(counts)), **answer}, parent, place)
        if twin != "alone":
            add(
                {**CHAT, **shared(*inclusive(counts)), **answer},
                call if twin == "below" else parent,
                place,
            )
    shuffler.shuffle(rows)
    rolled = roll_up(rows)
    plain, read, written, said, thought = whole
    assert buckets(rolled) == (plain, said, read, written, thought)


def test_an_agents_run_of_pydantic_ai_before_it_named_its_sum_counts_once() -> None:
    run = mapped({**WRAPPERS["pydantic_ai"], **shared(240, 60, 200, None, 24)})
    calls = [
        msgspec.structs.replace(
            mapped({**CHAT, **shared(120, 30, 100, None, 12)}),
            span_id=sid(number),
            parent_span_id=run.span_id,
            started_at=at(number),
        )
        for number in (11, 12)
    ]
    rolled = roll_up([run, *calls])
    assert (rolled.repeats, buckets(rolled)) == ({run.span_id: "descendant"}, (40, 36, 200, None, 24))


# --- any shape -------------------------------------------------------------------------------------------

LOOPS = [
    {1: 1},
    {1: 2, 2: 1},
    {1: 2, 2: 3, 3: 1, 4: 1, 5: 4},
    {1: 2, 2: 2, 3: 1},
]


@pytest.mark.parametrize("links", LOOPS)
def test_parents_that_go_round_in_a_circle_end_all_the_same(links: dict[int, int]) -> None:
    rolled = roll_up([llm(number, parent, given_=number) for number, parent in links.items()])
    assert not rolled.root_seen
    assert rolled.span_count == len(links)
    counted = sum(number for number in links if sid(number) not in rolled.repeats)
    assert rolled.input_tokens == counted


kinds = st.sampled_from(["llm", "agent", "tool", "step", "workflow", "embedding"])
spans = st.builds(
    lambda kind, tokens, cost, response, start, length: {
        "kind": kind,
        "input_tokens": tokens,
        "total_cost": cost,
        "response_id": response,
        "runs": (start, start + length),
    },
    kinds,
    st.none() | st.integers(0, 50),
    st.none() | st.sampled_from([Decimal(1), Decimal("0.5")]),
    st.none() | st.sampled_from(["a", "b"]),
    st.integers(0, 20),
    st.integers(0, 10),
)


@st.composite
def traces(draw: st.DrawFn, circles: bool) -> list[SpanRow]:
    drawn = draw(st.lists(spans, min_size=1, max_size=25))
    rows = []
    for number, fields in enumerate(drawn):
        highest = len(drawn) + 1 if circles else number - 1
        parent = draw(st.none() | st.integers(0, highest)) if highest >= 0 else None
        rows.append(row(number, parent, **fields))
    return rows


def reports(span: SpanRow) -> bool:
    return span.has_usage() or span.total_cost is not None


@given(traces(circles=True), st.randoms(use_true_random=False))
def test_every_shape_is_rolled_up_the_same_in_any_order(rows: list[SpanRow], shuffler: random.Random) -> None:
    rolled = roll_up(rows)
    counted = [span for span in rows if span.span_id not in rolled.repeats]
    assert rolled.span_count == len(rows)
    assert all(reports(span) or span.kind == "llm" for span in rows if span.span_id in rolled.repeats)
    given_ = [span.input_tokens for span in counted if span.input_tokens is not None]
    assert rolled.input_tokens == (sum(given_) if given_ else None)
    costs = [span.total_cost for span in counted if span.total_cost is not None]
    assert rolled.total_cost == (sum(costs) if costs else None)
    if any(span.has_usage() for span in rows):
        assert rolled.total_tokens is not None
    if all(span.parent_span_id is None or span.parent_span_id < span.span_id for span in rows):
        shuffler.shuffle(rows)
        assert attrs.asdict(roll_up(rows)) == attrs.asdict(rolled)


@given(traces(circles=False))
def test_what_repeats_has_a_counted_span_that_tells_the_same(rows: list[SpanRow]) -> None:
    repeats = roll_up(rows).repeats
    by_id = {span.span_id: span for span in rows}

    def below(span_id: bytes) -> list[SpanRow]:
        found = []
        for other in rows:
            parent = other.parent_span_id
            while parent is not None and parent != span_id:
                parent = by_id[parent].parent_span_id if parent in by_id else None
            if parent == span_id:
                found.append(other)
        return found

    for span in rows:
        why = repeats.get(span.span_id)
        if why == "descendant":
            assert any(reports(other) for other in below(span.span_id))
        elif why == "response":
            assert any(
                other.response_id == span.response_id and other.started_at <= span.started_at
                for other in rows
                if other is not span
            )
        elif span.has_usage() and span.kind not in ("llm", "embedding"):
            assert not any(other.has_usage() for other in below(span.span_id))


@pytest.mark.parametrize("shape", ["chain", "star", "circle", "one response"])
def test_fifty_thousand_spans_are_rolled_up_in_linear_time(shape: str) -> None:
    size = 50_000
    rows = [
        llm(
            number + 1,
            {"chain": number or None, "star": 1 if number else None, "circle": (number + 1) % size + 1}.get(
                shape
            ),
            kind="agent" if shape == "chain" else "llm",
            response_id="r" if shape == "one response" else f"r{number}",
            runs=(number, number + 0.5),
        )
        for number in range(size)
    ]
    start = time.process_time()
    rolled = roll_up(rows)
    assert rolled.span_count == size
    # Measured 2026-11: 0.3 s; squared time would be minutes.
    assert time.process_time() - start < 10


def test_a_call_without_usage_repeats_the_one_below_it_that_has_some() -> None:
    outer = row(1, kind="llm")
    assert roll_up([outer, llm(2, 1)]).repeats == {sid(1): "descendant"}
    assert roll_up([outer, row(3, 1, kind="step"), llm(2, 3)]).repeats == {sid(1): "descendant"}
    assert roll_up([outer, row(3, 1, kind="tool"), llm(2, 3)]).repeats == {}
    assert roll_up([outer, row(2, 1, kind="llm")]).repeats == {}


# --- tool calls ------------------------------------------------------------------------------------------


def call(index: int, name: str, call_id: str | None) -> ToolCall:
    return ToolCall(index, name, call_id, "ok", None, None)


def asks(number: int, *calls: tuple[str, str | None], **fields: Any) -> SpanRow:
    listed = tuple(call(index, name, call_id) for index, (name, call_id) in enumerate(calls))
    return llm(number, tool_calls=listed, **fields)


def tool(number: int, name: str, call_id: str | None = None) -> SpanRow:
    return row(number, kind="tool", tool_calls=(call(0, name, call_id),))


def test_a_call_that_a_tools_span_tells_by_id_is_told_once() -> None:
    rows = [asks(1, ("f", "a"), ("f", "b")), tool(2, "other name", "a")]
    assert dedupe_tool_calls(rows) == {(sid(1), 0)}


def test_without_an_id_spans_and_calls_are_matched_by_name_one_to_one() -> None:
    rows = [
        asks(1, ("f", "a"), ("f", "b"), ("g", None), ("f", "c")),
        tool(2, "f"),
        tool(3, "g", "x"),
        tool(4, "f"),
    ]
    assert dedupe_tool_calls(rows) == {(sid(1), 0), (sid(1), 1), (sid(1), 2)}


def test_calls_with_different_ids_are_different_calls() -> None:
    assert dedupe_tool_calls([asks(1, ("f", "a")), tool(2, "f", "b")]) == frozenset()


def test_a_call_that_two_overlapping_answers_tell_is_told_once() -> None:
    assert dedupe_tool_calls(
        [
            asks(1, ("f", "a"), runs=(1, 9)),
            asks(2, ("f", "a"), runs=(2, 8)),
            asks(3, ("f", "a"), runs=(9, 10)),
        ]
    ) == {(sid(2), 0)}


def below(parent: int, span: SpanRow, status: str = "ok") -> SpanRow:
    calls = tuple(msgspec.structs.replace(one, status=status) for one in span.tool_calls)
    return msgspec.structs.replace(span, parent_span_id=sid(parent), tool_calls=calls)


def test_a_tools_span_inside_another_of_its_name_tells_the_same_call() -> None:
    outer, inner = tool(1, "f"), below(1, tool(2, "f", "a"))
    # The one with an id stands for both, and for the answer that asked.
    assert dedupe_tool_calls([asks(3, ("f", "a")), outer, inner]) == {(sid(1), 0), (sid(3), 0)}
    assert dedupe_tool_calls([tool(1, "f", "a"), below(1, tool(2, "f", "a"))]) == {(sid(2), 0)}
    step = below(1, row(4, kind="step"))
    assert dedupe_tool_calls([tool(1, "f", "a"), step, below(4, tool(2, "f"))]) == {(sid(2), 0)}


def test_of_two_spans_that_tell_one_call_the_failed_one_counts() -> None:
    assert dedupe_tool_calls([tool(1, "f", "a"), below(1, tool(2, "f"), "error")]) == {(sid(1), 0)}


def test_another_name_another_id_or_an_agent_between_makes_another_call() -> None:
    assert dedupe_tool_calls([tool(1, "f"), below(1, tool(2, "g"))]) == frozenset()
    assert dedupe_tool_calls([tool(1, "f", "a"), below(1, tool(2, "f", "b"))]) == frozenset()
    agent = below(1, row(4, kind="agent"))
    assert dedupe_tool_calls([tool(1, "f"), agent, below(4, tool(2, "f"))]) == frozenset()
    assert dedupe_tool_calls([tool(1, "f"), tool(2, "f")]) == frozenset()
    itself = msgspec.structs.replace(below(1, tool(2, "f")), name="span 1")
    assert dedupe_tool_calls([tool(1, "f"), itself]) == frozenset()


def test_spans_beside_each_other_with_one_id_tell_one_call_while_they_overlap() -> None:
    first, beside, later = (
        row(number, kind="tool", runs=runs, tool_calls=(call(0, "f", "a"),))
        for number, runs in ((1, (1, 5)), (2, (2, 4)), (3, (5, 6)))
    )
    assert dedupe_tool_calls([first, beside, later]) == {(sid(2), 0)}


def test_a_call_that_a_trace_of_its_own_tells_is_not_counted_here() -> None:
    assert dedupe_tool_calls([msgspec.structs.replace(tool(1, "f", "a"), usage_repeats="twin")]) == {
        (sid(1), 0)
    }


names = st.sampled_from(["f", "g"])
ids = st.none() | st.sampled_from(["a", "b", "c"])


@given(
    st.lists(st.lists(st.tuples(names, ids), max_size=4), max_size=4),
    st.lists(st.tuples(names, ids), max_size=4),
)
def test_only_embedded_calls_are_dropped_and_never_one_that_nobody_else_tells(
    answers: list[list[tuple[str, str | None]]], called: list[tuple[str, str | None]]
) -> None:
    rows = [asks(number, *calls) for number, calls in enumerate(answers)]
    tools = [tool(100 + number, *one) for number, one in enumerate(called)]
    dropped = dedupe_tool_calls([*tools, *rows])
    embedded = {(span.span_id, c.index): c for span in rows for c in span.tool_calls}
    assert dropped <= embedded.keys()
    for name in ("f", "g"):
        lost = [c for key, c in embedded.items() if key in dropped and c.name == name and c.call_id is None]
        assert len(lost) <= sum(tool_name == name for tool_name, _ in called)
    for key, one in embedded.items():
        if one.call_id is not None and any(one.call_id == call_id for _, call_id in called):
            assert key in dropped
    if not called:
        assert not any(embedded[key].call_id is None for key in dropped)


# --- twins in traces of their own --------------------------------------------------------------------------


def told(number: int, trace: int, **fields: Any) -> SpanRow:
    return msgspec.structs.replace(
        llm(number, **{"response_id": "r", **fields}), trace_id=bytes([trace]) * 16
    )


def test_a_call_that_a_second_instrumentation_tells_in_its_own_trace_is_shown_and_not_summed() -> None:
    wrapper, native = told(1, 1, runs=(1, 5)), told(2, 2, runs=(2, 4))
    other = told(3, 3, response_id="other", runs=(2, 4))
    mark_duplicate_calls([native, other, wrapper])
    assert [row.usage_repeats for row in (wrapper, native, other)] == [None, "twin", None]
    rolled = roll_up([native])
    assert (rolled.repeats, rolled.input_tokens, rolled.unpriced_spans) == ({sid(2): "twin"}, None, 0)
    assert roll_up([wrapper]).input_tokens == 120


def test_a_twin_stays_one_however_often_its_trace_is_rolled_up() -> None:
    native = told(2, 2, usage_repeats="twin")
    for _ in range(2):
        rolled = roll_up([row(1), msgspec.structs.replace(native, parent_span_id=sid(1)), llm(3, 1)])
        assert (rolled.input_tokens, rolled.repeats[sid(2)]) == (120, "twin")


@pytest.mark.parametrize(
    "second",
    [
        {"runs": (6, 8)},
        {"response_id": None},
        {"response_id": "s"},
        {"input_tokens": None, "output_tokens": None},
    ],
)
def test_calls_that_only_look_alike_both_count(second: dict[str, Any]) -> None:
    rows = [told(1, 1, runs=(1, 5)), told(2, 2, **{"runs": (2, 4), **second})]
    mark_duplicate_calls(rows)
    assert [row.usage_repeats for row in rows] == [None, None]


def test_equal_calls_of_one_instrumentation_are_two_calls_whatever_their_id() -> None:
    rows = [msgspec.structs.replace(told(n, n, runs=(1, 5)), name="chat") for n in (1, 2)]
    mark_duplicate_calls(rows)
    assert [row.usage_repeats for row in rows] == [None, None]


def test_a_tools_call_that_another_trace_tells_at_the_time_is_its_twin() -> None:
    def telling(number: int, **fields: Any) -> SpanRow:
        calls = (call(0, "f", "a"),)
        return msgspec.structs.replace(
            told(number, number, **fields), kind="tool", response_id=None, tool_calls=calls
        )

    rows = [telling(1, runs=(1, 5)), telling(2, runs=(2, 4)), telling(3, runs=(6, 7))]
    mark_duplicate_calls(rows)
    assert [row.usage_repeats for row in rows] == [None, "twin", None]


def test_the_cost_of_a_repeat_is_neither_inferred_nor_unpriced() -> None:
    for priced, source in (("gpt-4o", "inferred"), ("nobody's", "unpriced")):
        said = {**CHAT, "gen_ai.request.model": priced, "gen_ai.usage.input_tokens": 5}
        one = mapped(said)
        assert one.cost_source == source
        one.mark("descendant")
        assert (one.usage_repeats, one.cost_source) == ("descendant", None)
        one.mark(None)
        assert (one.usage_repeats, one.cost_source) == (None, source)
    given = mapped({**said, "gen_ai.usage.cost": 0.5})
    given.mark("twin")
    given.mark(None)
    assert given.cost_source == "provided"


def test_a_wrapper_that_shows_an_object_is_previewed_by_its_first_and_last_turn() -> None:
    turns = [
        llm(2, 1, input_preview="Weather?", output_preview=None),
        llm(3, 1, input_preview="sunny", output_preview="It is sunny."),
    ]
    shows = {"input_preview": '{"task": 1}', "output_preview": "[1]"}
    rolled = roll_up([row(1, kind="step", **shows), *turns])
    assert (rolled.input_preview, rolled.output_preview) == ("Weather?", "It is sunny.")
    # Text is what was asked, an agent answers for itself, and where nobody else says anything so it stays.
    rolled = roll_up([row(1, kind="workflow", input_preview="Plan", output_preview="Done"), *turns])
    assert (rolled.input_preview, rolled.output_preview) == ("Plan", "Done")
    assert roll_up([row(1, kind="agent", **shows), *turns]).input_preview == '{"task": 1}'
    assert roll_up([row(1, kind="step", **shows)]).output_preview == "[1]"
