"""Questions by attribute: every answer is what plain Python says of what was sent, whatever stores it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from protocol.refusals import Refused
from protocol.rest.query import timestamp
from svc.domain.attributes.census import KeyCount
from svc.domain.attributes.conventions import CONVENTIONS
from svc.domain.queries.datasets import DATASETS
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.postgres.database import Database
from svc.store.postgres.embedded.server import Served
from svc.store.reads.questions.attributes import OTHER_SHOWN, AttributeReads
from svc.store.reads.questions.questions import Question, ask
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.trace_counts import TraceCounts
from svc.store.reads.traces.trace_filter import of_one_span
from svc.store.reads.traces.traces import TraceFilter, TraceReads
from svc.store.reads.usage.compared_sides import side_of
from svc.store.spans import attribute_codes
from svc.store.spans.attribute_keys import AttributeKeys
from svc.store.spans.traces import PostgresTraceStore
from tests.conftest import copied, filled_once
from tests.store.as_json import JsonComparing, JsonQueries
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, PROJECT, Clock, one, rows, store_of

HOUR = timedelta(hours=1)
LOW, HIGH = NOW - 6 * HOUR, NOW
ENVIRONMENTS = ("prod", "test", None)
TAGS = ("new", "vip", "slow")
#: What each span was sent with, by its number.
Sent = dict[int, dict[str, Any]]


def attributes_of(said: Mapping[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if said["environment"] is not None:
        attributes["deployment.environment.name"] = said["environment"]
    if said["tags"]:
        attributes["tag.tags"] = said["tags"]
    if said["tool"] is not None:
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": said["tool"]}
    return attributes


def _said() -> Sent:
    dice, said = random.Random(7), Sent()
    for number in range(1, 201):
        said[number] = {
            "at": NOW - timedelta(minutes=300 - number),
            "trace": 1 + (number // 5),
            "environment": dice.choice(ENVIRONMENTS),
            "tags": [tag for tag in TAGS if dice.random() < 0.3],
            "tool": dice.choice([None, "search", "book"]),
            "failed": dice.random() < 0.3,
        }
    return said


SENT = _said()


async def _fill(store: Database) -> None:
    """Two hundred spans of forty traces over five hours, rolled up and counted by the hour."""
    assert (await ProjectStore(store).make_default()).id == PROJECT
    clock = Clock()
    spans = store_of(store, clock)
    for number, said in SENT.items():
        clock.now = said["at"]
        span = one(
            number,
            start=said["at"],
            trace_id=said["trace"].to_bytes(16, "big"),
            attributes=attributes_of(said),
            status_code=2 if said["failed"] else 0,
        )
        await spans.write(rows(span))
    await settle_at(clock.now + timedelta(minutes=1), PostgresTraceStore(store))
    while (await CubeStore(store).build(NOW + HOUR, 100)).more:
        pass


async def _fill_and_forget_cubes(store: Database) -> None:
    await _fill(store)
    for table in ("trace_cube", "trace_group", "search_value", "cube_progress"):
        await store.fetch(f"delete from {table}")


@pytest.fixture
async def sent(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """What was sent, for tests that only read it."""
    async with filled_once(served, "attributes", _fill) as database:
        yield database


@pytest.fixture
async def without_cubes(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """The same before anything was counted by the hour; only read too."""
    async with filled_once(served, "attributes_without_cubes", _fill_and_forget_cubes) as database:
        yield database


@pytest.fixture
async def changeable(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    async with copied(served, "attributes", _fill) as database:
        yield database


def question(measure: str = "count", **filters: Any) -> Question:
    return ask(PROJECT, "spans", (LOW, HIGH), filters, measure=measure)


def matching(**filters: Any) -> list[dict[str, Any]]:
    """The spans that meet the filters, in plain Python."""
    chosen = []
    for span in SENT.values():
        meets = {
            "environment": span["environment"],
            "tool": span["tool"],
            "status": "error" if span["failed"] else "ok",
        }
        if all(
            (value in span["tags"] if value is not None else not span["tags"])
            if field == "tag"
            else meets[field] == value
            for field, value in filters.items()
        ):
            chosen.append(span)
    return chosen


FILTERS: list[dict[str, Any]] = [
    {"environment": "prod"},
    {"environment": None},
    {"environment": "nowhere"},
    {"tag": "vip"},
    {"tag": None},
    {"tool": "search", "status": "error"},
    {"environment": "prod", "tag": "new", "tool": "book"},
]


@pytest.mark.parametrize("filters", FILTERS)
async def test_a_filter_by_attribute_counts_the_spans_that_say_it(
    sent: Database, filters: dict[str, Any]
) -> None:
    queries, expected = JsonQueries(sent), matching(**filters)
    assert (await queries.count(question(**filters)))["count"] == len(expected)
    found = await queries.search(question(**filters), None, None, 1_000, None)
    numbers = {int(row["fields"]["span_id"], 16) for row in found["rows"]}
    assert numbers == {number for number, span in SENT.items() if span in expected}
    series = await queries.timeseries(question(**filters), "hour")
    assert sum(bucket["count"] for bucket in series["buckets"]) == len(expected)


async def test_facets_of_an_attribute_count_each_value_and_those_without(sent: Database) -> None:
    queries = JsonQueries(sent)
    facets = (await queries.facets(question(), "environment", 10))["facets"]
    assert {row["value"]: row["count"] for row in facets} == Counter(
        span["environment"] for span in SENT.values()
    )
    assert facets == sorted(facets, key=lambda row: (-row["count"], row["value"] is None, row["value"] or ""))
    # A span with two tags counts for both.
    tags = (await queries.facets(question(), "tag", 10))["facets"]
    expected = Counter(tag for span in SENT.values() for tag in span["tags"] or [None])
    assert {row["value"]: row["count"] for row in tags} == expected
    two = (await queries.facets(question(), "tag", 2))["facets"]
    assert two == tags[:2]


async def test_any_measure_is_asked_by_attribute(sent: Database) -> None:
    answer = await JsonQueries(sent).facets(question("error_rate", tool="search"), "environment", 10)
    for row in answer["facets"]:
        chosen = matching(tool="search", environment=row["value"])
        failed = sum(span["failed"] for span in chosen)
        assert (row["count"], row["errors"]) == (len(chosen), failed)
        assert row["error_rate"] == pytest.approx(failed / len(chosen))
    rates = [row["error_rate"] for row in answer["facets"]]
    assert rates == sorted(rates, reverse=True)


async def test_a_series_by_attribute_adds_up_to_its_facets(sent: Database) -> None:
    answer = await JsonQueries(sent).timeseries(question(), "hour", "environment", 5)
    sums = {
        series["value"]: sum(bucket["count"] for bucket in series["buckets"]) for series in answer["series"]
    }
    assert sums == Counter(span["environment"] for span in SENT.values())


async def test_values_beyond_the_most_are_one_that_can_be_asked_for(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ProjectStore(store).make_default()
    monkeypatch.setattr(attribute_codes, "MOST_VALUES", 2)
    clock = Clock()
    clock.now = NOW - HOUR
    spans = store_of(store, clock)
    for number, env in enumerate(("a", "b", "c", "d"), 1):
        await spans.write(rows(one(number, start=clock.now, attributes={"env": env})))
    queries = JsonQueries(store)
    facets = (await queries.facets(question(), "environment", 10))["facets"]
    assert {row["value"]: row["count"] for row in facets} == {"a": 1, "b": 1, OTHER_SHOWN: 2}
    assert (await queries.count(question(environment=OTHER_SHOWN)))["count"] == 2


async def test_a_promoted_key_is_a_facet_and_any_other_is_refused_with_those_that_are(
    changeable: Database,
) -> None:
    queries, keys = JsonQueries(changeable), AttributeKeys(changeable)
    with pytest.raises(Refused) as refused:
        await queries.facets(question(), "attr.shop.tier", 10)
    assert refused.value.refusal.code == "QUERY.UNKNOWN_FIELD"
    assert "'attr.shop.tier' is not a field of this project" in refused.value.refusal.message
    await changeable.fetch(
        "insert into attribute_key values ($1, 'attr.shop.tier', 'promoted', 1, '', null, now())", PROJECT
    )
    assert (await queries.count(question(**{"attr.shop.tier": "gold"})))["count"] == 0
    assert "attr.shop.tier" in [field.field for field in await AttributeReads(changeable).fields(PROJECT)]
    assert await keys.hide(PROJECT, "attr.shop.tier", NOW)
    with pytest.raises(Refused):
        await queries.facets(question(), "attr.shop.tier", 10)


async def test_an_answer_by_a_young_field_says_which_spans_have_no_value_of_it(changeable: Database) -> None:
    queries, keys, name = JsonQueries(changeable), AttributeKeys(changeable), "attr.shop.tier"
    traces = TraceReads(changeable, SpanReads(changeable))
    await changeable.fetch(
        "insert into attribute_key values ($1, $2, 'seen', 1, '', null, now())", PROJECT, name
    )
    assert await keys.promote(PROJECT, name, NOW - HOUR) is None
    # Again, and when more of it has been counted: it is no younger for that.
    assert await keys.promote(PROJECT, name, NOW) is None
    await keys.add({PROJECT: {"shop.tier": KeyCount(3, {b"12345678"}, None)}}, NOW)

    async def notes(low: datetime | None = LOW) -> list[Any]:
        asked = ask(PROJECT, "spans", (low, HIGH), {name: "gold"})
        by_none = ask(PROJECT, "spans", (low, HIGH), {})
        filtered = TraceFilter(low=low, high=HIGH, attributes=((name, "gold"),))
        answers = [
            await queries.count(asked),
            await queries.facets(by_none, name, 3),
            await queries.search(asked, None, None, 10, None),
            await queries.search(asked, "text", None, 10, None),
            await traces.page(PROJECT, filtered, limit=5, cursor=None),
            await traces.largest(PROJECT, filtered, "cost", limit=5),
        ]
        if low is not None:
            answers.append(await queries.timeseries(by_none, "hour", name))
        return [answer.get("notes") for answer in answers]

    since = timestamp(NOW - HOUR)
    said = (
        f"{name} has been a field since {since}: spans stored before have no value of it until"
        " `trace-svc remap --apply` has read them again"
    )
    assert await notes() == [[said]] * 7
    assert await notes(None) == [[said]] * 6
    assert await notes(NOW - HOUR) == [None] * 7
    # Beside what is to be said otherwise.
    failed = await queries.count(ask(PROJECT, "spans", (LOW, HIGH), {"status": "failed", name: "gold"}))
    assert failed["notes"] == [said, "status is never 'failed', only ok, error"]
    await keys.have_history(PROJECT, [name])
    assert await notes() == [None] * 7


async def test_a_hidden_field_leaves_nothing_behind(changeable: Database) -> None:
    async def mentions() -> set[str]:
        tables = ("attribute_value", "search_value", "trace_cube", "cube", "cube_day")
        found = set()
        for table in tables:
            rows_ = await changeable.fetch(f"select value from {table} where value = 'vip'")
            found |= {table} if rows_ else set()
        return found

    assert await mentions() == {"attribute_value", "search_value", "trace_cube"}
    assert await AttributeKeys(changeable).hide(PROJECT, "tag", NOW)
    assert await mentions() == set()
    assert "tag" not in await AttributeReads(changeable).names(PROJECT)


TRACES: list[tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]] = [
    # What a trace filter asks, what one span each must be for it, and what none may be.
    ({"attributes": (("environment", "prod"),)}, [{"environment": "prod"}], []),
    ({"attributes": (("environment", "nowhere"),)}, [{"environment": "nowhere"}], []),
    (
        {"attributes": (("environment", "prod"), ("tool", "search"))},
        [{"environment": "prod"}, {"tool": "search"}],
        [],
    ),
    (
        {"attributes": (("environment", "prod"), ("tool", "search")), "one_span": True},
        [{"environment": "prod", "tool": "search"}],
        [],
    ),
    (
        {"attributes": (("tool", "book"),), "span_status": "error", "one_span": True},
        [{"tool": "book", "status": "error"}],
        [],
    ),
    (
        {"attributes": (("tag", "vip"),), "kind": "tool", "span_status": "ok", "one_span": True,
         "without": (("tag", "slow"),)},
        [{"tag": "vip", "kind": "tool", "status": "ok"}],
        [{"tag": "slow"}],
    ),
    (
        {"without": (("tool", "search"), ("environment", "test"))},
        [],
        [{"tool": "search"}, {"environment": "test"}],
    ),
]  # fmt: skip


@pytest.fixture(params=["sent", "without_cubes"])
def counted_or_not(request: pytest.FixtureRequest) -> Database:
    return cast(Database, request.getfixturevalue(request.param))


@pytest.mark.parametrize(("asked", "each", "none"), TRACES)
async def test_traces_are_narrowed_by_what_one_span_or_any_says(
    counted_or_not: Database,
    asked: dict[str, Any],
    each: list[dict[str, Any]],
    none: list[dict[str, Any]],
) -> None:
    def traces_of(said: dict[str, Any]) -> set[int]:
        by_tool = {"kind": said.pop("kind")} if "kind" in said else {}
        return {span["trace"] for span in matching(**said) if not by_tool or span["tool"] is not None}

    expected = {span["trace"] for span in SENT.values()}
    for said in each:
        expected &= traces_of(dict(said))
    for said in none:
        expected -= traces_of(dict(said))
    trace_filter = TraceFilter(low=LOW, high=HIGH, **asked)
    page = await TraceReads(counted_or_not, SpanReads(counted_or_not)).page(
        PROJECT, trace_filter, limit=100, cursor=None
    )
    assert {int(row["trace_id"], 16) for row in page["traces"]} == expected
    counts = TraceCounts(counted_or_not)
    histogram = await counts.histogram(PROJECT, trace_filter, HOUR, timeout_s=30.0, budget_s=10.0)
    assert histogram.count == len(expected)
    assert (await counts.facets(PROJECT, trace_filter, timeout_s=30.0)).over == len(expected)
    few = await TraceReads(counted_or_not, SpanReads(counted_or_not)).page(
        PROJECT, trace_filter, limit=2, cursor=None
    )
    assert [row["trace_id"] for row in few["traces"]] == [row["trace_id"] for row in page["traces"][:2]]


@pytest.mark.parametrize(
    "filters",
    [
        {"tool": "search", "status": "error"},
        {"tag": "vip", "kind": "tool", "environment": "prod"},
        {"name": "span", "tool": "book"},
        {"name": "nobody"},
    ],
)
async def test_filters_of_spans_find_the_traces_with_one_that_has_them_all(
    sent: Database, filters: dict[str, Any]
) -> None:
    trace_filter = TraceFilter(low=LOW, high=HIGH, **of_one_span(filters))
    page = await TraceReads(sent, SpanReads(sent)).page(PROJECT, trace_filter, limit=100, cursor=None)
    found = await JsonQueries(sent).search(question(**filters), None, None, 1_000, None)
    assert {row["trace_id"] for row in page["traces"]} == {row["fields"]["trace_id"] for row in found["rows"]}
    histogram = await TraceCounts(sent).histogram(PROJECT, trace_filter, HOUR, timeout_s=30, budget_s=10)
    assert histogram.count == len(page["traces"])


@pytest.mark.parametrize("filters", [{"nobody": "x"}, {"tool": None}, {"trace_id": "00" * 16}])
def test_what_no_trace_can_be_asked_is_refused(filters: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        of_one_span(filters)


async def test_another_project_is_never_asked(sent: Database) -> None:
    other = ask(PROJECT + 1, "spans", (LOW, HIGH), {"environment": "prod"})
    assert (await JsonQueries(sent).count(other))["count"] == 0
    assert await AttributeReads(sent).names(PROJECT + 1) == []


async def test_comparing_tells_which_attributes_moved(sent: Database) -> None:
    baseline = side_of(LOW, HIGH, {"environment": "prod", "tool": "search"}, None, None)
    comparison = side_of(LOW, HIGH, {"environment": "test"}, None, None)
    answer = await JsonComparing(sent).compare(PROJECT, baseline, comparison)
    expected = {span["trace"] for span in matching(environment="test")}
    assert answer["comparison"]["traces"] == len(expected)
    assert {row["field"] for row in answer["moved"]}.isdisjoint({"environment", "tool"})


async def test_values_are_completed_by_what_is_typed(sent: Database) -> None:
    reads = AttributeReads(sent)
    assert await reads.names(PROJECT) == ["environment", "tag", "tool", "operation"]
    assert await reads.values(PROJECT, "tag", "") == sorted(TAGS)
    assert await reads.values(PROJECT, "tag", "VI") == ["vip"]
    assert await reads.values(PROJECT, "tag", "%") == []


def test_no_convention_has_the_name_of_another_field() -> None:
    for dataset in DATASETS.values():
        names = [field.name for field in dataset.fields]
        assert len(names) == len(set(names))
    assert {convention.name for convention in CONVENTIONS} <= {
        field.name for field in DATASETS["spans"].fields
    }
