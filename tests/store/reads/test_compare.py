"""Two populations of traces: sizes, measures with intervals, what moved beyond chance, and nothing else."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.refusals import Refused
from protocol.rest.query import timestamp
from svc.domain.queries.population_comparison import UNITS, Mean, TracePopulation, compared, moved_values
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.reads.questions.attributes import history_note
from svc.store.reads.usage import compared_traces
from svc.store.reads.usage.compared_sides import side_of
from svc.store.reads.usage.compared_traces import ComparedTraces
from svc.store.spans.attribute_keys import AttributeKeys
from svc.store.spans.traces import PostgresTraceStore
from tests.store.as_json import JsonComparing, as_json
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, PROJECT, Clock, one, rows, store_of

DAY = timedelta(days=1)
#: Since then another model answers, and it is dearer.
SWITCH = NOW - DAY
BEFORE_AND_SINCE = side_of(None, SWITCH, None, None, None), side_of(SWITCH, None, None, None, None)


@pytest.fixture
async def switched(store: Database) -> JsonComparing:
    """A hundred and twenty traces before a switch of models and as many since; the last forty fail more."""
    assert (await ProjectStore(store).make_default()).id == PROJECT
    dice = random.Random(3)
    clock = Clock()
    spans = store_of(store, clock)
    for number in range(1, 241):
        since = number > 120
        start = SWITCH + timedelta(minutes=number - 120.5)
        failed = since and dice.random() < 0.5
        chat = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt-4o" if since else "gpt-4o-mini",
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 10,
            "user.id": f"u{number % 3}",
        }
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "book"}
        status = 2 if failed else 0
        shared: dict[str, Any] = {"trace_id": dice.randbytes(16), "start": start, "status_code": status}
        await spans.write(
            rows(
                one(number * 10, name="turn", took_s=2, **shared),
                one(number * 10 + 1, name="chat", parent=number * 10, attributes=chat, **shared),
                one(
                    number * 10 + 2,
                    name="book",
                    parent=number * 10,
                    attributes=tool | ({"error.type": "TimeoutError"} if failed else {}),
                    **shared,
                ),
            )
        )
    traces = PostgresTraceStore(store)
    await settle_at(clock.now + timedelta(minutes=1), traces)
    return JsonComparing(store)


def measures(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {measure.pop("measure"): measure for measure in answer["measures"]}


async def test_before_and_since_differ_in_what_changed_and_in_nothing_else(switched: JsonComparing) -> None:
    answer = await switched.compare(PROJECT, *BEFORE_AND_SINCE)
    assert answer["baseline"] == answer["comparison"] == {"traces": 120, "sampled": 120}
    moved = {(value["field"], value["value"]): value for value in answer["moved"]}
    assert moved.keys() == {
        ("model_id", "gpt-4o"),
        ("model_id", "gpt-4o-mini"),
        ("provided_model_name", "gpt-4o"),
        ("provided_model_name", "gpt-4o-mini"),
        ("error_type", "TimeoutError"),
    }
    assert moved["model_id", "gpt-4o"]["only_in"] == "comparison"
    assert moved["model_id", "gpt-4o-mini"]["only_in"] == "baseline"
    assert moved["model_id", "gpt-4o"]["p_value"] < 1e-6
    assert moved["model_id", "gpt-4o"]["odds_between"][0] > 100
    assert answer["moved_left_out"] == 0
    figures = measures(answer)
    assert list(figures) == list(UNITS)
    assert figures["error_rate"]["baseline"]["value"] == 0
    assert 0.3 < figures["error_rate"]["comparison"]["low"] < 0.5
    assert figures["cost"]["baseline"]["high"] < figures["cost"]["comparison"]["low"]
    assert figures["duration"]["baseline"] == {"value": 2000, "low": 2000, "high": 2000}
    assert figures["spans"]["comparison"]["value"] == 3
    assert answer["notes"] == []
    assert len(answer["examples"]["baseline"]) == len(answer["examples"]["comparison"]) == 5
    assert len(msgspec.json.encode(answer)) <= 4096


async def test_failing_against_healthy_does_not_rank_what_made_the_split(switched: JsonComparing) -> None:
    answer = await switched.compare(
        PROJECT, side_of(None, None, None, "ok", None), side_of(None, None, None, "error", None)
    )
    assert answer["baseline"]["traces"] + answer["comparison"]["traces"] == 240
    assert {value["field"] for value in answer["moved"]} == {"model_id", "provided_model_name"}


async def test_a_filter_asks_for_one_span_that_has_it_all(switched: JsonComparing) -> None:
    everything = side_of(None, None, None, None, None)
    failed_tool = side_of(None, None, {"name": "book", "error_type": "TimeoutError"}, None, None)
    answer = await switched.compare(PROJECT, everything, failed_tool)
    failing = answer["comparison"]["traces"]
    assert 40 < failing < 80
    # What is on both sides counts for comparison alone.
    assert answer["baseline"]["traces"] == 240 - failing
    nothing = side_of(None, None, {"name": "chat", "error_type": "TimeoutError"}, None, None)
    empty = await switched.compare(PROJECT, everything, nothing)
    assert empty["comparison"] == {"traces": 0, "sampled": 0}
    assert empty["moved"] == []
    assert empty["notes"] == ["comparison: no trace matches"]
    assert measures(empty)["error_rate"]["comparison"] == {"value": None, "low": 0, "high": 1}


async def test_no_more_traces_are_sampled_than_its_bound_and_the_same_ones_each_time(
    switched: JsonComparing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compared_traces, "SAMPLED_TRACES", 50)
    answer = await switched.compare(PROJECT, *BEFORE_AND_SINCE)
    assert answer["baseline"] == {"traces": 120, "sampled": 50}
    assert answer["notes"][0] == ("baseline: a sample of 50 of its 120 traces")
    assert await switched.compare(PROJECT, *BEFORE_AND_SINCE) == answer


@pytest.mark.parametrize("spare", [0.1, 1.3, 4.0])
@pytest.mark.parametrize("alike", [False, True], ids=["random ends", "one end"])
async def test_sampled_are_the_traces_whose_ids_end_smallest_however_many_are_put_in_order(
    switched: JsonComparing, spare: float, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = switched.store.database
    if alike:
        end = "decode(repeat('ff', 8), 'hex')"
        for table in ("span", "trace"):
            await store.fetch(f"update {table} set trace_id = substring(trace_id for 8) || {end}")
    monkeypatch.setattr(compared_traces, "SAMPLED_TRACES", 50)
    monkeypatch.setattr(compared_traces, "_SPARE", spare)
    smallest = await store.fetch(
        "select trace_id from trace where started_at < $1"
        " order by substring(trace_id from 9), trace_id limit 50",
        SWITCH,
    )
    ids = "array_agg(t.trace_id order by substring(t.trace_id from 9), t.trace_id) as ids"
    before = await store.run(ComparedTraces(PROJECT, *BEFORE_AND_SINCE, ids).of_baseline)
    assert (before.matched, before.estimated) == (120, False)
    assert before.row["ids"] == [row["trace_id"] for row in smallest]


async def promoted_after(store: Database, earlier: int, *names: str) -> datetime:
    """240 traces, of which so many were stored before these became fields; returns when they did."""
    assert (await ProjectStore(store).make_default()).id == PROJECT
    keys, clock = AttributeKeys(store), Clock()
    for name in names:
        await store.fetch(
            "insert into attribute_key values ($1, $2, 'seen', 1, '', null, now())", PROJECT, name
        )
    spans, dice, promoted_at = store_of(store, clock), random.Random(5), NOW
    for number in range(240):
        if number == earlier:
            promoted_at = clock()
            for name in names:
                assert await keys.promote(PROJECT, name, promoted_at) is None
        start = SWITCH + timedelta(minutes=number - 119.5)
        (turn,) = rows(one(trace_id=dice.randbytes(16), start=start))
        if number >= earlier:
            plan = "gold" if (number % 3 if number >= 120 else not number % 3) else "free"
            turn.row.attributes = tuple(text for name in names for text in (name, plan))
        await spans.write([turn])
    await settle_at(clock.now + timedelta(minutes=1), PostgresTraceStore(store))
    return promoted_at


async def test_a_field_that_only_the_first_traces_are_older_than_is_compared(store: Database) -> None:
    await promoted_after(store, 6, "attr.metadata.plan")
    answer = await JsonComparing(store).compare(PROJECT, *BEFORE_AND_SINCE)
    assert {value["field"] for value in answer["moved"]} == {"attr.metadata.plan"}
    assert answer["notes"] == []


async def test_fields_that_many_traces_are_older_than_are_not_compared_and_named(store: Database) -> None:
    """Every earlier trace had the same plans, but nothing stored them: both would seem to have risen."""
    keys, names = AttributeKeys(store), ("attr.metadata.plan", "attr.metadata.tier")
    promoted_at = await promoted_after(store, 120, *names)
    before_and_since = JsonComparing(store)
    answer = await before_and_since.compare(PROJECT, *BEFORE_AND_SINCE)
    assert answer["baseline"]["traces"] == answer["comparison"]["traces"] == 120
    assert answer["moved"] == []
    since = timestamp(promoted_at)
    assert answer["notes"] == [
        f"not compared: {names[0]} has been a field since {since}, {names[1]} since {since}: spans stored"
        " before have no value of them until `trace-svc remap --apply` has read them again"
    ]
    # Both sides within its life, or with its history read.
    within = side_of(SWITCH, SWITCH + timedelta(hours=1), None, None, None)
    later = side_of(SWITCH + timedelta(hours=1), None, None, None, None)
    assert (await before_and_since.compare(PROJECT, within, later))["notes"] == []
    # What chooses a side is told of as elsewhere.
    free = side_of(SWITCH, None, {names[0]: "free"}, None, None)
    assert (await before_and_since.compare(PROJECT, BEFORE_AND_SINCE[0], free))["notes"] == [
        f"{names[0]} has been a field since {since}: spans stored before have no value of it until"
        " `trace-svc remap --apply` has read them again",
        f"not compared: {names[1]} has been a field since {since}: spans stored before have no value of it"
        " until `trace-svc remap --apply` has read them again",
    ]
    await keys.have_history(PROJECT, names)
    assert (await before_and_since.compare(PROJECT, *BEFORE_AND_SINCE))["moved"] != []


def test_one_note_names_a_few_young_fields() -> None:
    note = history_note({f"attr.{number}": NOW for number in range(7)})
    assert "attr.4 since" in note
    assert "attr.5" not in note
    assert ", and 2 more: spans stored before have no value of them" in note


async def test_other_projects_are_on_neither_side(switched: JsonComparing) -> None:
    everything = side_of(None, None, None, None, None)
    answer = await switched.compare(2, everything, everything)
    assert answer["baseline"]["traces"] == answer["comparison"]["traces"] == 0


def test_what_cannot_be_asked_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="'colour'"):
        side_of(None, None, {"colour": "red"}, None, None)
    with pytest.raises(Refused, match="after"):
        side_of(NOW, NOW - DAY, None, None, None)


def population(sampled: int, values: dict[tuple[str, str], int]) -> TracePopulation:
    means = {name: Mean(0, None, None) for name in ("duration", "cost", "tokens", "spans")}
    return TracePopulation(
        sampled, sampled, {"error_rate": 0, "failed_spans_rate": 0}, means, {"duration_p95": None}, values, []
    )


_counts = st.dictionaries(
    st.tuples(st.sampled_from(["name", "kind"]), st.text(max_size=200)), st.integers(0, 500), max_size=40
)


@given(before=_counts, since=_counts)
def test_any_two_populations_have_an_answer_of_bounded_size(
    before: dict[tuple[str, str], int], since: dict[tuple[str, str], int]
) -> None:
    answer = as_json(compared(population(500, before), population(500, since), ["kind"]))
    assert all(value["field"] == "name" for value in answer["moved"])
    differences = [abs(v["comparison_share"] - v["baseline_share"]) for v in answer["moved"]]
    assert differences == sorted(differences, reverse=True)
    assert len(answer["moved"]) <= 10
    # Text of any alphabet may take three bytes a character.
    assert len(msgspec.json.encode(answer)) <= 4096 + 10 * 3 * 80


@given(st.integers(2, 50), st.floats(0, 1e6), st.floats(0, 1e9))
def test_the_interval_of_a_mean_holds_it_and_nothing_below_zero(
    traces: int, value: float, deviation: float
) -> None:
    shown = Mean(traces, value, deviation).shown()
    assert shown.value is not None
    assert shown.low is not None
    assert shown.high is not None
    assert 0 <= shown.low <= shown.value <= shown.high


def test_a_value_that_one_side_never_has_stands_among_many_others() -> None:
    chatter = {("user_id", f"user-{number}"): 2 for number in range(150)}
    sides = [population(304, chatter), population(281, chatter | {("error_type", "QuotaExceeded"): 27})]
    (moved,) = moved_values(*sides, [])
    assert (moved.value, moved.odds.p_value < 1e-8) == ("QuotaExceeded", True)


@given(counts=_counts)
def test_equal_populations_differ_in_nothing(counts: dict[tuple[str, str], int]) -> None:
    assert moved_values(population(500, counts), population(500, counts), []) == []
