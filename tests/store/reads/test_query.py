"""The query API's SQL on a real PostgreSQL: answers, refusals, and plans that use the indexes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.refusals import Refused
from svc.domain.queries.datasets import DATASETS
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.postgres.database import Connection, Database
from svc.store.reads.questions.buckets import CALENDAR_INTERVALS, bucket_starts
from svc.store.reads.questions.questions import ask
from tests.store.as_json import JsonQueries
from tests.store.reads.test_reads import Explaining
from tests.store.spans.test_writing import NOW, Clock, one, rows, store_of

DAY = timedelta(days=1)


@pytest.fixture
async def filled(store: Database) -> JsonQueries:
    clock = Clock()
    spans = store_of(store, clock)
    for number in range(1, 13):
        clock.now = NOW - timedelta(hours=number)
        model = ("gpt-4o", "claude-sonnet-4-5", "unheard-of")[number % 3]
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.usage.input_tokens": number,
            "session.id": f"s{number % 2}",
        }
        trace_id = bytes([number]) * 16
        await spans.write(rows(one(number, trace_id=trace_id, attributes=attributes, name=f"chat_{number}%")))
    return JsonQueries(store)


def question(
    dataset: str = "spans", low: datetime | None = None, high: datetime | None = None, **filters: Any
) -> Any:
    return ask(1, dataset, (low, high), filters)


async def test_count_counts_what_the_question_names(filled: JsonQueries) -> None:
    assert await filled.count(question()) == {"count": 12}
    assert await filled.count(question(session_id="s1")) == {"count": 6}
    assert await filled.count(question(session_id="s1", provided_model_name="gpt-4o")) == {"count": 2}
    assert await filled.count(question(model_id=None)) == {"count": 4}
    assert await filled.count(ask(2, "spans", (None, None), {})) == {"count": 0}


async def test_a_range_is_half_open(filled: JsonQueries) -> None:
    found = await filled.search(question(), None, None, 100, None)
    newest = datetime.fromisoformat(found["rows"][0]["created_at"])
    assert await filled.count(question(low=newest)) == {"count": 1}
    assert await filled.count(question(high=newest)) == {"count": 11}


@pytest.mark.parametrize("value", ["zz", "0102", "", 5, True])
async def test_an_id_that_is_none_matches_nothing(filled: JsonQueries, value: Any) -> None:
    assert await filled.count(question(trace_id=value)) == {"count": 0}


async def test_an_id_is_matched_in_any_letter_case(filled: JsonQueries) -> None:
    assert await filled.count(question(trace_id="0A" * 16)) == {"count": 1}


async def test_facets_are_most_frequent_first_then_by_value_and_null_is_a_value(filled: JsonQueries) -> None:
    answer = await filled.facets(question(), "model_id", 20)
    assert [(f["value"], f["count"]) for f in answer["facets"]] == [
        ("claude-sonnet-4-5", 4),
        ("gpt-4o", 4),
        (None, 4),
    ]
    assert len((await filled.facets(question(), "model_id", 1))["facets"]) == 1


async def test_timeseries_holds_empty_buckets_and_adds_up(filled: JsonQueries) -> None:
    low, high = NOW - DAY, NOW
    answer = await filled.timeseries(question(low=low, high=high), "hour")
    assert len(answer["buckets"]) == 24
    assert sum(bucket["count"] for bucket in answer["buckets"]) == 12
    assert answer["buckets"][0] == {"bucket_start": "2026-11-19T12:00:00.000000Z", "count": 0}


@pytest.mark.parametrize("interval", CALENDAR_INTERVALS)
async def test_buckets_are_those_of_the_database(filled: JsonQueries, interval: str) -> None:
    low, high = NOW - 40 * DAY, NOW
    buckets = (await filled.timeseries(question(low=low, high=high), interval))["buckets"]
    assert sum(bucket["count"] for bucket in buckets) == 12


def test_weeks_start_on_monday_and_months_on_the_first() -> None:
    for start in bucket_starts(NOW - 40 * DAY, NOW, "week"):
        assert start.weekday() == 0
    assert [start.day for start in bucket_starts(NOW - 100 * DAY, NOW, "month")] == [1] * 4


def test_more_than_ten_thousand_buckets_are_refused() -> None:
    low = datetime(2020, 1, 1, tzinfo=UTC)
    assert len(bucket_starts(low, low + timedelta(hours=10_000), "hour")) == 10_000
    with pytest.raises(Refused) as refusal:
        bucket_starts(low, low + timedelta(hours=10_001), "hour")
    assert refusal.value.refusal.code == "QUERY.INVALID_RANGE"


@given(
    low=st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31), timezones=st.just(UTC)),
    span=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=300)),
    interval=st.sampled_from(CALENDAR_INTERVALS),
)
def test_buckets_cover_the_range_without_gaps(low: datetime, span: timedelta, interval: str) -> None:
    try:
        high = low + span
    except OverflowError:
        high = datetime.max.replace(tzinfo=UTC)
    starts = bucket_starts(low, high, interval)
    assert starts == sorted(set(starts))
    if starts:
        assert starts[0] <= low < high
        assert starts[-1] < high


async def test_search_pages_through_everything_once_newest_first(filled: JsonQueries) -> None:
    seen: list[str] = []
    cursor = None
    while True:
        page = await filled.search(question(), None, "keyword", 5, cursor)
        seen += [row["id"] for row in page["rows"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 12
    assert seen[0].startswith("01" * 16)


@pytest.mark.parametrize(
    "cursor", ["garbage", "", "e30", "WyJzcGFucyJd", "é", "WyJ0b29sX2NhbGxzIiwiMjAyNiJd"]
)
async def test_an_unreadable_or_foreign_cursor_restarts_at_the_newest_page(
    filled: JsonQueries, cursor: str
) -> None:
    first = await filled.search(question(), None, None, 5, None)
    assert await filled.search(question(), None, None, 5, cursor) == first


async def test_q_is_a_literal_case_insensitive_substring(filled: JsonQueries) -> None:
    async def found(q: str) -> int:
        return len((await filled.search(question(), q, None, 100, None))["rows"])

    assert await found("CHAT_1") == 4
    assert await found("chat_12%") == 1
    assert await found("chat.1") == 0
    assert await found("%") == 12
    assert await found("_") == 12
    assert await found("\\") == 0
    assert await found("'; drop table span; --") == 0
    assert await found("\x00") == 0
    assert await found("  ") == 12


async def test_every_dataset_answers_even_when_it_is_empty(store: Database) -> None:
    queries = JsonQueries(store)
    for name, dataset in DATASETS.items():
        asked = question(name, NOW - DAY, NOW)
        assert await queries.count(asked) == {"count": 0}
        assert all(b["count"] == 0 for b in (await queries.timeseries(asked, "day"))["buckets"])
        for field in dataset.fields:
            assert (await queries.count(question(name, **{field.name: "00" * 8})))["count"] == 0
            if field.facetable:
                assert (await queries.facets(asked, field.name, 5))["facets"] == []
        if dataset.searched:
            assert (await queries.search(asked, "x", None, 5, None))["rows"] == []


async def test_metric_rollups_add_up_their_values_with_fractions(store: Database) -> None:
    async def work(connection: Connection) -> None:
        await connection.executemany(
            "insert into metric_rollup values (1, 'ingested_spans', $1, $2, $3)",
            [("hour", NOW, 2.5), ("hour", NOW + timedelta(hours=1), 1), ("day", NOW, 9)],
        )

    await store.run(work)
    queries = JsonQueries(store)
    assert await queries.count(question("metric_rollups", granularity="hour")) == {"count": 3.5}
    with pytest.raises(Refused, match="metric_rollups"):
        await queries.search(question("metric_rollups"), None, None, 5, None)


@pytest.mark.parametrize(
    ("dataset", "field", "code"),
    [("nope", "kind", "QUERY.UNKNOWN_DATASET"), ("spans", "nope", "QUERY.UNKNOWN_FIELD")],
)
def test_the_unknown_is_named(dataset: str, field: str, code: str) -> None:
    with pytest.raises(Refused, match="nope") as refusal:
        ask(1, dataset, (None, None), {field: "x"})
    assert refusal.value.refusal.code == code


#: Tables of a few rows a project.
_FEW_ROWS = ("cube_progress", "cube_dirty", "span_slice", "span_slice_mark")


async def test_no_query_reads_a_whole_table(store: Database) -> None:
    """Plans at forty thousand rows of two projects: indexes only, and no sort of a whole project."""
    await _many(store)
    await store.fetch(
        "insert into attribute_value (project_id, field, value, code) select n % 2 + 1, 'agent_path',"
        " 'agent ' || n, chr(n + 100) from generate_series(1, 4000) as n"
    )
    await store.fetch(
        "insert into call_site (project_id, id, tagged, first_seen_at)"
        " select n % 2 + 1, 'site ' || n, true, now() from generate_series(1, 4000) as n"
    )
    await ProjectStore(store).make_default()
    while (await CubeStore(store).build(NOW, 1000)).more:
        pass
    await store.fetch("analyze")
    explaining = Explaining(store)
    queries = JsonQueries(explaining)  # type: ignore[arg-type]
    low, high = NOW - timedelta(hours=1), NOW
    await queries.search(question(), None, None, 50, None)
    await queries.search(question(session_id="s5"), None, None, 50, None)
    await queries.search(question(call_site_id="c5"), None, None, 50, None)
    await queries.search(question(model_id="m1"), None, None, 50, None)
    await queries.search(question(model_id="m1", kind="llm"), None, None, 50, None)
    await queries.search(question("tool_calls"), None, None, 50, None)
    await queries.timeseries(question(low=low, high=high), "hour")
    await queries.timeseries(question(low=NOW - 2 * DAY, high=high), "day")
    await queries.count(question("tool_calls", low=low, high=high, agent_path="agent 7"))
    await queries.facets(question("tool_calls", low=low, high=high), "agent_path", 20)
    await queries.facets(question(low=low, high=high), "model_id", 20)
    await queries.facets(question(), "call_site_id", 20)
    assert len(explaining.plans) >= 8
    for plan in explaining.plans:
        scanned = set(re.findall(r"Seq Scan on (\w+)", plan))
        assert scanned <= {"span_default", "span_payload_default", *_FEW_ROWS}, plan
        sorts = [int(n) for n in re.findall(r"^ *(?:->)? *Sort .*rows=(\d+)", plan, re.M)]
        assert all(n < 2_000 for n in sorts), plan
    # The rows beside the cube are reached by their time, not value by value.
    assert "call_site_id_created_at" not in explaining.plans[-1]


async def _many(store: Database) -> None:
    async def work(connection: Connection) -> None:
        for day in (NOW, NOW - DAY):
            await connection.execute(
                f"create table span_{day:%Y%m%d} partition of span"
                f" for values from ('{day:%Y-%m-%d}') to ('{day + DAY:%Y-%m-%d}')"
            )
        await connection.execute(
            "insert into span (project_id, trace_id, span_id, kind, name, status, started_at, created_at,"
            " call_site_id, tagged, session_id, model_id, frame)"
            " select 1 + n % 2, decode(lpad(to_hex(n / 10), 32, '0'), 'hex'),"
            " decode(lpad(to_hex(n), 16, '0'), 'hex'), 'llm', 'chat', 'ok',"
            " $1::timestamptz - n * interval '2 seconds', $1::timestamptz - n * interval '2 seconds',"
            " 'c' || n % 100, false, 's' || n % 500, 'm' || n % 5, 0 from generate_series(1, 40000) n",
            NOW,
        )
        await connection.execute(
            "insert into tool_call select project_id, trace_id, span_id, 0, false, name, null, status, null,"
            " null, call_site_id, started_at, created_at from span"
        )

    await store.run(work)

    async def analyze(connection: Connection) -> None:
        await connection.execute("analyze")

    await store.run(analyze, transaction=False)
