"""Measures by arrival and by event time: every answer is what plain Python works out of the rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.refusals import Refused
from protocol.rest.query import timestamp
from svc.domain.queries.datasets import CLASSIFIER_EVENTS, DATASETS, SPANS, TOOL_CALLS
from svc.domain.queries.measures import MEASURES
from svc.domain.spans.span import TOKEN_BUCKETS
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.postgres.database import Connection, Database
from svc.store.reads.questions.event_time import day_stretches
from svc.store.reads.questions.nothing_found import UNPRICED_NOTE
from svc.store.reads.questions.query import NOTE_ROWS
from svc.store.reads.questions.questions import Question, ask
from svc.store.reads.traces.spans import SpanFilter, SpanReads
from tests.examples import first_always
from tests.store.as_json import JsonQueries
from tests.store.spans.test_writing import NOW, Clock, fetch, one, rows, store_of

DAY = timedelta(days=1)
LOW, HIGH = NOW - 3 * DAY, NOW
Rows = Sequence[Any]


@pytest.fixture
async def sent(store: Database) -> Database:
    """Three hundred spans of four days, a third of them late by up to three days."""
    assert (await ProjectStore(store).make_default()).id == 1
    dice = random.Random(5)
    clock = Clock()
    spans = store_of(store, clock)
    batches: list[tuple[datetime, Any]] = []
    for number in range(1, 301):
        started_at = NOW - timedelta(minutes=dice.randrange(1, 4 * 24 * 60))
        late = dice.choice([timedelta(0), timedelta(0), timedelta(minutes=dice.randrange(3 * 24 * 60))])
        attributes: dict[str, Any] = {"gen_ai.operation.name": dice.choice(["chat", "execute_tool"])}
        if attributes["gen_ai.operation.name"] == "execute_tool":
            attributes["gen_ai.tool.name"] = dice.choice(["search", "book"])
        else:
            attributes["gen_ai.request.model"] = dice.choice(["gpt-4o", "claude-sonnet-4-5", "unheard-of"])
            attributes["gen_ai.usage.input_tokens"] = dice.randrange(1000)
            attributes["gen_ai.usage.output_tokens"] = dice.randrange(100)
        if dice.random() < 0.7:
            attributes |= {"session.id": f"s{dice.randrange(9)}", "user.id": f"u{dice.randrange(5)}"}
        span = one(
            number,
            start=started_at,
            took_s=dice.randrange(1, 90_000) / 1000,
            trace_id=dice.randrange(1, 90).to_bytes(16, "big"),
            attributes=attributes,
            name=f"n{dice.randrange(3)}",
            status_code=2 if dice.random() < 0.2 else 0,
        )
        batches.append((started_at + late, span))
    for arrived_at, span in sorted(batches, key=lambda batch: batch[0]):
        clock.now = arrived_at
        await spans.write(rows(span))
    return store


def plain(measure: str, chosen: Rows, dataset: str = "spans") -> dict[str, Any]:
    """The count and the measure of some rows, in plain Python."""
    answer: dict[str, Any] = {"count": len(chosen)}
    errors = sum(row["status"] == "error" for row in chosen)
    own = [row for row in chosen if dataset != "spans" or row["usage_repeats"] is None]
    if measure in ("errors", "error_rate"):
        answer["errors"] = errors
    if measure == "error_rate":
        answer["error_rate"] = errors / len(chosen) if chosen else None
    if measure == "cost":
        costs = [row["total_cost"] for row in own if row["total_cost"] is not None]
        answer["cost"] = f"{sum(costs, Decimal(0)).normalize():f}" if costs else None
        answer["unpriced_spans"] = sum(
            row["total_cost"] is None and row["price_book"] is not None for row in own
        )
    if measure == "tokens":
        sums = {}
        for bucket in TOKEN_BUCKETS:
            values = [row[bucket] for row in own if row[bucket] is not None]
            sums[bucket.removesuffix("_tokens")] = sum(values) if values else None
        known = [value for value in sums.values() if value is not None]
        answer["tokens"] = sums | {"total": sum(known)} if known else None
    if measure.startswith("duration"):
        fraction = int(measure.removeprefix("duration_p")) / 100
        durations = sorted(
            (row["ended_at"] - row["started_at"]) / timedelta(milliseconds=1) for row in chosen
        )
        rank = max(0, math.ceil(fraction * len(durations)) - 1)
        answer[measure] = pytest.approx(durations[rank]) if durations else None
    if measure in ("traces", "sessions", "users"):
        column = f"{measure.removesuffix('s')}_id"
        answer[measure] = len({row[column] for row in chosen} - {None})
    return answer


def asked(measure: str, by: str, dataset: str = "spans", **filters: Any) -> Question:
    return ask(1, dataset, (LOW, HIGH), filters, by=by, measure=measure)


def within(all_rows: Iterable[Any], by: str, keep: Callable[[Any], bool] = lambda _row: True) -> list[Any]:
    return [row for row in all_rows if LOW <= row[by] < HIGH and keep(row)]


@pytest.mark.parametrize("by", first_always(["started_at", "created_at"]))
@pytest.mark.parametrize("dataset", [SPANS, TOOL_CALLS])
async def test_each_measure_of_each_time_is_what_the_rows_add_up_to(
    sent: Database, dataset: Any, by: str
) -> None:
    queries = JsonQueries(sent)
    all_rows = await fetch(sent, f"select * from {dataset.table}")
    assert len(within(all_rows, "created_at")) != len(within(all_rows, "started_at"))
    for measure in dataset.measures:
        heading = {} if measure == "count" else {"measure": measure, "unit": MEASURES[measure].unit}
        heading |= {"by": by} if by == "started_at" else {}

        def expected(chosen: Rows, measure: str = measure) -> dict[str, Any]:
            return plain(measure, chosen, dataset.name)

        chosen = within(all_rows, by)
        assert await queries.count(asked(measure, by, dataset.name)) == heading | expected(chosen)
        failed = [row for row in chosen if row["status"] == "error" and row["name"] != "n1"]
        names = {row["name"] for row in failed}
        for name in names:
            some = asked(measure, by, dataset.name, status="error", name=name)
            alone = [row for row in failed if row["name"] == name]
            assert await queries.count(some) == heading | expected(alone)
        for interval in ("hour", "day"):
            answer = await queries.timeseries(asked(measure, by, dataset.name), interval, "status", 2)
            trunc = {"hour": {}, "day": {"hour": 0}}[interval]
            assert answer["group_by"] == "status"
            for series in [{"value": None, "buckets": answer["buckets"]}, *answer["series"]]:
                for bucket in series["buckets"]:
                    start = bucket.pop("bucket_start")
                    inside = [
                        row
                        for row in chosen
                        if timestamp(row[by].replace(minute=0, second=0, microsecond=0, **trunc)) == start
                        and series["value"] in (None, row["status"])
                    ]
                    assert bucket == expected(inside)


async def test_facets_are_ranked_by_their_measure_either_way(sent: Database) -> None:
    queries = JsonQueries(sent)
    all_rows = within(await fetch(sent, "select * from span"), "started_at")
    for measure, key in (
        ("errors", "errors"),
        ("error_rate", "error_rate"),
        ("users", "users"),
        ("duration_p95", "duration_p95"),
    ):
        for ascending in (False, True):
            answer = await queries.facets(asked(measure, "started_at"), "user_id", 9, ascending=ascending)
            values = [facet[key] for facet in answer["facets"]]
            assert values == sorted(values, reverse=not ascending)
            for facet in answer["facets"]:
                value = facet.pop("value")
                assert facet == plain(measure, [row for row in all_rows if row["user_id"] == value])
    costs = (await queries.facets(asked("cost", "started_at"), "model_id", 9))["facets"]
    known = [Decimal(facet["cost"]) for facet in costs if facet["cost"] is not None]
    assert known == sorted(known, reverse=True)
    assert costs[-1]["cost"] is None


async def test_costs_by_model_say_where_models_without_a_price_are_named(sent: Database) -> None:
    queries, unpriced = JsonQueries(sent), {"provided_model_name": "unheard-of"}

    async def notes(field: str, measure: str | None, **filters: str) -> list[str] | None:
        answer = await queries.facets(ask(1, "spans", (None, None), filters, measure=measure), field, 9)
        found: list[str] | None = answer.get("notes")
        return found

    assert await notes("model_id", "cost") == [UNPRICED_NOTE]
    assert await notes("model_id", "cost", provided_model_name="gpt-4o") is None
    assert await notes("provided_model_name", "cost", **unpriced) is None
    assert await notes("model_id", None) is None


async def test_a_span_that_comes_a_week_late_changes_its_own_hour_and_no_other(sent: Database) -> None:
    queries = JsonQueries(sent)
    question = asked("errors", "started_at")
    before = (await queries.timeseries(question, "hour"))["buckets"]
    clock = Clock()
    clock.now = NOW + 7 * DAY
    late = one(9_999, start=NOW - timedelta(hours=30), trace_id=b"late" * 4, status_code=2)
    await store_of(sent, clock).write(rows(late))
    after = (await queries.timeseries(question, "hour"))["buckets"]
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    ((old, new),) = changed
    assert new["bucket_start"] == timestamp((NOW - timedelta(hours=30)).replace(minute=0))
    assert (new["count"], new["errors"]) == (old["count"] + 1, old["errors"] + 1)


async def test_counts_by_arrival_come_from_the_cubes_as_before(sent: Database) -> None:
    while (await CubeStore(sent).build(NOW, 1000)).more:
        pass
    queries = JsonQueries(sent)
    all_rows = await fetch(sent, "select * from span")
    assert await queries.count(asked("count", "created_at")) == {"count": len(within(all_rows, "created_at"))}
    assert await queries.count(asked("count", "started_at")) == {
        "count": len(within(all_rows, "started_at")),
        "by": "started_at",
    }
    # A facet that no cube holds is counted all the same.
    answer = await queries.facets(asked("count", "created_at"), "user_id", 9)
    assert sum(facet["count"] for facet in answer["facets"]) == len(within(all_rows, "created_at"))


async def test_minutes_are_buckets_too(sent: Database) -> None:
    queries = JsonQueries(sent)
    low = NOW - timedelta(hours=30)
    question = ask(1, "spans", (low, NOW), None, by="started_at")
    buckets = (await queries.timeseries(question, "minute"))["buckets"]
    assert len(buckets) == 30 * 60
    all_rows = await fetch(sent, "select started_at from span where started_at >= $1", low)
    assert {b["bucket_start"]: b["count"] for b in buckets if b["count"]} == {
        timestamp(start.replace(second=0, microsecond=0)): sum(
            row["started_at"].replace(second=0, microsecond=0) == start for row in all_rows
        )
        for start in {row["started_at"].replace(second=0, microsecond=0) for row in all_rows}
    }


# --- notes --------------------------------------------------------------------------------------------


async def test_an_answer_by_arrival_says_what_started_in_its_range(store: Database) -> None:
    assert (await ProjectStore(store).make_default()).id == 1
    clock = Clock()
    day = NOW - 30 * DAY
    for number in range(8):
        await store_of(store, clock).write(rows(one(number + 1, start=day, trace_id=bytes([7]) * 16)))
    queries = JsonQueries(store)
    question = ask(1, "spans", (day - DAY, day + DAY), None)
    note = {"notes": ["0 by arrival; 8 started in this range: by=started_at"]}
    assert await queries.count(question) == {"count": 0} | note
    assert (await queries.timeseries(question, "day"))["notes"] == note["notes"]
    assert await queries.facets(question, "name", 5) == {"field": "name", "facets": []} | note
    assert (await queries.search(question, None, None, 5, None))["notes"] == note["notes"]
    # Nothing is said of an answer that has rows, of none that started there, or without a range.
    assert await queries.count(ask(1, "spans", (NOW - DAY, NOW + DAY), None)) == {"count": 8}
    assert await queries.count(ask(1, "spans", (NOW - 9 * DAY, NOW - 8 * DAY), None)) == {"count": 0}
    assert await queries.count(ask(1, "spans", (None, None), {"name": "no such"})) == {"count": 0}
    assert await queries.count(ask(1, "spans", (day - DAY, day + DAY), {"name": "no such"})) == {"count": 0}


async def test_a_note_counts_no_more_than_its_bound(store: Database) -> None:
    async def work(connection: Connection) -> None:
        await connection.execute(
            "insert into span (project_id, trace_id, span_id, kind, name, status, started_at, created_at,"
            " call_site_id, tagged, frame) select 1, '\\x01', decode(lpad(to_hex(n), 16, '0'), 'hex'), 'llm',"
            " 'chat', 'ok', $1, $2, 'c', false, 0 from generate_series(1, $3::integer) n",
            NOW - 30 * DAY,
            NOW,
            NOTE_ROWS + 5,
        )

    await store.run(work)
    answer = await JsonQueries(store).count(ask(1, "spans", (NOW - 31 * DAY, NOW - 29 * DAY), None))
    assert answer["notes"] == ["0 by arrival; more than 1,000 started in this range: by=started_at"]


# --- pages by event time --------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["spans", "tool_calls"])
async def test_pages_by_event_time_hold_each_row_once_newest_first(sent: Database, dataset: str) -> None:
    queries = JsonQueries(sent)
    question = asked("count", "started_at", dataset, status="ok")
    expected = within(
        await fetch(sent, f"select * from {DATASETS[dataset].table}"),
        "started_at",
        lambda row: row["status"] == "ok",
    )
    cursor, ids, times = None, [], []
    while True:
        page = await queries.search(question, None, None, 7, cursor)
        ids += [row["id"] for row in page["rows"]]
        times += [row["fields"]["started_at"] for row in page["rows"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(ids) == len(set(ids)) == len(expected) > 7
    assert times == sorted(times, reverse=True)


async def test_list_spans_by_event_time_pages_through_its_range(sent: Database) -> None:
    reads = SpanReads(sent)
    asked_for = SpanFilter(low=LOW, high=HIGH, kind="llm", by_event_time=True)
    expected = await fetch(
        sent,
        "select span_id from span where started_at between $1 and $2 and kind = 'llm'"
        " order by started_at desc, trace_id desc, span_id desc",
        LOW,
        HIGH,
    )
    cursor, ids = None, []
    while True:
        page = await reads.page(1, asked_for, payload=False, limit=9, cursor=cursor)
        ids += [span["span_id"] for span in page["spans"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert ids == [row["span_id"].hex() for row in expected]
    assert len(ids) > 9
    # A cursor of the other order starts again at the newest.
    by_arrival = await reads.page(1, SpanFilter(), payload=False, limit=2, cursor=None)
    restarted = await reads.page(1, asked_for, payload=False, limit=9, cursor=by_arrival["next_cursor"])
    assert [span["span_id"] for span in restarted["spans"]] == ids[:9]


_moments = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31), timezones=st.just(UTC))


_ago = st.timedeltas(min_value=timedelta(seconds=-5), max_value=timedelta(minutes=15))


@given(low=_moments, high=_moments, oldest=_moments, now=_moments, ago=st.none() | _ago)
def test_stretches_are_the_range_without_gap_or_overlap(
    low: datetime, high: datetime, oldest: datetime, now: datetime, ago: timedelta | None
) -> None:
    last = min(high, now)
    recent = None if ago is None or last.year in (1, 9999) else last - ago
    stretches = list(day_stretches(low, high, oldest, now, recent))
    assert len(stretches) < 40
    if low >= high:
        assert stretches == []
        return
    assert (stretches[0][1], stretches[-1][0]) == (high, low)
    for (since, until), (_, next_until) in pairwise(stretches):
        assert since < until
        assert next_until == since


def test_minutes_are_looked_into_before_the_rest_of_the_newest_day() -> None:
    now = datetime(2026, 11, 29, 9, 15, tzinfo=UTC)
    low, tomorrow = now - timedelta(days=60), now + timedelta(days=1)
    lengths = [until - since for since, until in day_stretches(low, tomorrow, low, now)]
    assert lengths[:4] == [
        timedelta(days=1),
        timedelta(minutes=10),
        timedelta(minutes=90),
        timedelta(hours=7, minutes=35),
    ]
    assert lengths[4:7] == [timedelta(days=2), timedelta(days=4), timedelta(days=8)]
    # Where a page of traces began within seconds, these come first; where it takes longer than minutes, not.
    for ago, lengths_then in (
        (timedelta(seconds=9), [lengths[0], timedelta(seconds=9)]),
        (timedelta(hours=1), lengths[:2]),
    ):
        stretches = day_stretches(low, tomorrow, low, now, now - ago)
        assert [until - since for since, until in islice(stretches, 2)] == lengths_then


# --- refusals --------------------------------------------------------------------------------------------


def test_a_measure_that_a_dataset_has_not_is_refused_with_those_it_has() -> None:
    with pytest.raises(Refused, match="'cost' for dataset 'tool_calls'") as refusal:
        ask(1, "tool_calls", (None, None), None, measure="cost")
    assert refusal.value.refusal.code == "QUERY.UNKNOWN_MEASURE"
    assert refusal.value.refusal.details == {"allowed": ["count", "errors", "error_rate", "traces"]}


def test_a_time_that_a_dataset_has_not_is_refused() -> None:
    for dataset in (CLASSIFIER_EVENTS.name, "metric_rollups"):
        with pytest.raises(Refused, match="started_at") as refusal:
            ask(1, dataset, (None, None), None, by="started_at")
        assert refusal.value.refusal.code == "QUERY.UNKNOWN_TIME"


async def test_every_measure_answers_on_an_empty_project(store: Database) -> None:
    queries = JsonQueries(store)
    for dataset in DATASETS.values():
        for measure in dataset.measures:
            question = ask(1, dataset.name, (LOW, HIGH), None, measure=measure)
            assert (await queries.count(question))["count"] == 0
            assert len((await queries.timeseries(question, "day"))["buckets"]) == 4
            assert (await queries.facets(question, dataset.fields[0].name, 5))["facets"] == []
