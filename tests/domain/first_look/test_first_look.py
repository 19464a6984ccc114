"""Laws of the first look: facts with their counts, nothing compared, and a month as an interval."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from svc.domain.first_look.facts import (
    CallCount,
    Example,
    Fact,
    MarkCount,
    ModelCount,
    RetryCount,
    TraceCount,
)
from svc.domain.first_look.month import MONTH, month_of
from svc.domain.first_look.text import SHOWN, _rough, facts_of

AT = datetime(2026, 11, 23, 11, 13, tzinfo=UTC)
SHOWING = (Example("ab" * 16, "cd" * 8, AT),)
WHOLE = TraceCount(139, 139, 139)


def model(name: str = "gpt-4o", calls: int = 10, **more: Any) -> ModelCount:
    counts: dict[str, Any] = {
        "unpriced": 0,
        "tokens": 0,
        "traces": 0,
        "with_usage": calls,
        "with_content": calls,
    }
    return ModelCount(name, calls, **{**counts, **more})


def facts(
    *tools: CallCount, retries: Any = (), models: Any = (), traces: TraceCount = WHOLE, services: Any = ()
) -> list[Fact]:
    return facts_of(tools, retries, models, traces, services)


def test_a_tool_that_always_fails_is_broken_and_one_that_failed_twice_is_not_sure() -> None:
    [fact] = facts(CallCount("create_return", 18, 18, "KeyError", 18, SHOWING))
    assert (fact.kind, fact.group) == ("tool_broken", "broken")
    assert fact.what == "create_return has failed in every trace"
    assert fact.proof == "18 of 18 traces, each with KeyError; surely more than 20 %."
    assert fact.examples == SHOWING
    [fact] = facts(CallCount("search", 3, 2, "Timeout", 1))
    assert (fact.kind, fact.group) == ("tool_failed", "failed")
    assert fact.proof.startswith("2 of 3 traces, 1 of them with Timeout; too few to tell how often (")
    assert 0 < (fact.at_least or 0) < 2 / 3


def test_marks_say_what_is_so_of_which_tool_and_what_to_do() -> None:
    detail = "`order` is required and missing"
    marks = [
        MarkCount("args_break_schema", "create_return", 7, 5, detail, 4, SHOWING),
        MarkCount("http_error_in_ok_result", "search", 2, 2, "status 404", 2),
        MarkCount("tool_broken_inside", "", 1, 1, "UnboundLocalError", 1),
        MarkCount("same_call_again", "search", 9, 9),
    ]
    schema, http, fault = facts_of([], [], [], WHOLE, [], marks)
    assert schema.what == "create_return is called with arguments that break its schema"
    assert schema.proof == "7 calls in 5 of 139 traces; most often order is required and missing."
    assert (schema.group, schema.filter, schema.examples) == (
        "broken",
        ("mark", "args_break_schema"),
        SHOWING,
    )
    assert http.proof == "2 calls in 2 of 139 traces; each time status 404."
    assert fault.what == "A tool fails with an error of its own code"
    assert fault.proof == "1 call in 1 of 139 traces: UnboundLocalError."


def test_a_model_that_fails_is_told_with_its_error_and_does_not_wait_for_tools() -> None:
    refused = CallCount("gpt-4o", 40, 30, "RateLimitError", 7, is_model=True)
    [fact] = facts(*(CallCount(f"tool_{n}", 50, 0) for n in range(40)), refused)
    assert (fact.kind, fact.group, fact.what) == (
        "model_broken",
        "broken",
        "gpt-4o has failed from the start",
    )
    assert fact.proof.startswith("30 of 40 traces, 7 of them with RateLimitError; ")
    assert fact.action.endswith("See what the provider says there.")
    [fact] = facts(attrs.evolve(refused, failed=1, error_traces=1))
    assert (fact.kind, fact.group) == ("model_failed", "failed")


def test_what_is_sure_hangs_on_how_many_tools_there_were_before() -> None:
    healthy = [CallCount(f"tool_{n}", 50, 0) for n in range(2)]
    failing = CallCount("create_return", 5, 5)
    assert facts(failing)[0].group == "broken"
    assert facts(*healthy, failing)[0].group == "failed"


def test_a_tool_with_a_baseline_is_left_to_its_detector() -> None:
    assert facts(CallCount("create_return", 18, 18, has_baseline=True)) == []


def test_nothing_is_compared_before_there_is_a_baseline() -> None:
    everything = facts(
        CallCount("create_return", 18, 18, "KeyError", 18),
        CallCount("search", 3, 1),
        retries=[RetryCount("search", 14, 0, 7)],
        models=[model("acme-ft3", unpriced=4, tokens=900, traces=3, with_usage=0, with_content=0)],
        traces=TraceCount(139, 0, 0),
        services=["f3a9c1d2e4b7"],
    )
    assert {fact.kind for fact in everything} == {
        "tool_broken", "tool_failed", "retry", "no_price", "no_session", "no_user", "no_usage", "no_content",
        "service_name",
    }  # fmt: skip
    text = " ".join(f"{fact.what} {fact.proof} {fact.action}" for fact in everything).lower()
    for word in ("rose", "slower", "dearer", "increase", "more often", "usual"):
        assert word not in text
    for fact in everything:
        assert fact.what
        assert fact.proof.endswith(".")
        assert fact.action.endswith(".")
        assert 0 <= fact.traces <= max(fact.of, fact.traces)


def test_repeats_say_how_many_came_to_something() -> None:
    [fact] = facts(retries=[RetryCount("search", 14, 0, 7)])
    assert fact.proof.startswith("14 exact repeats in 7 of 139 traces; none of them succeeded.")
    [fact] = facts(retries=[RetryCount("search", 1, 1, 1)])
    assert fact.proof.startswith("1 exact repeat in 1 of 139 traces; 1 succeeded.")


def test_a_model_without_a_price_is_named_with_its_calls_and_tokens() -> None:
    [fact] = facts(models=[model("acme-support-ft3", 212, unpriced=212, tokens=388_410, traces=97)])
    assert fact.what == "acme-support-ft3 has no price"
    assert fact.proof == "212 calls, 388,410 tokens. Their cost is missing from every total."
    assert fact.filter == ("model", "acme-support-ft3")


def test_what_one_trace_sends_is_not_missing() -> None:
    assert facts(traces=TraceCount(139, 1, 1), models=[model(), model("b", with_usage=0)]) == []
    [fact] = facts(traces=TraceCount(139, 139, 0))
    assert fact.proof == "0 of 139. Sessions are named in 139 of 139."
    assert facts(traces=TraceCount(0, 0, 0), services=["f3a9c1d2e4b7"]) == []


@pytest.mark.parametrize(
    ("service", "container"),
    [
        ("f3a9c1d2e4b7", True),
        ("support-bot-7d9f8c6b5d-x2x9q", True),
        ("support-bot", False),
        ("f3a9c1d2e4b", False),
        ("a-service-named-cafe", False),
    ],
)
def test_a_container_id_is_no_name_of_a_service(service: str, container: bool) -> None:
    assert bool(facts(services=[service])) is container


def test_of_many_facts_of_one_kind_those_of_most_traces_are_listed() -> None:
    named = [model(f"m{n}", unpriced=1, tokens=5, traces=n) for n in range(1, 30)]
    listed = facts(models=named)
    assert [fact.traces for fact in listed] == list(range(29, 29 - SHOWN, -1))


def test_a_month_is_an_interval_that_holds_what_comes() -> None:
    dice, held = random.Random(3), 0
    a_month, seconds = 100_000, 3_600.0
    expected = a_month * seconds / MONTH.total_seconds()
    for _ in range(200):
        number = max(round(dice.gauss(expected, expected**0.5)), 0)
        costs = [dice.lognormvariate(-4, 1) for _ in range(number)]
        month = month_of(costs, [5] * number, 1_000.0, seconds)
        assert month is not None
        assert month.dollars is not None
        mean = 2.718281828 ** (-4 + 0.5)
        held += month.dollars[0] <= a_month * mean <= month.dollars[1]
        assert month.bytes is not None
        assert month.bytes[0] < month.bytes[1]
    assert held >= 180


def test_too_little_forecasts_nothing_and_no_price_no_cost() -> None:
    assert month_of([1.0] * 9, [5] * 9, 1_000.0, 3_600) is None
    assert month_of([1.0] * 90, [5] * 90, 1_000.0, 60) is None
    month = month_of([0.0] * 90, [5] * 90, None, 3_600)
    assert month is not None
    assert (month.dollars, month.bytes) == (None, None)


@pytest.mark.parametrize(
    ("dollars", "text"), [(1_401.21, "$1,400"), (96.4, "$96.00"), (99.9, "$100"), (0.0123, "$0.0120")]
)
def test_a_forecast_is_written_with_two_digits(dollars: float, text: str) -> None:
    assert _rough(dollars) == text
