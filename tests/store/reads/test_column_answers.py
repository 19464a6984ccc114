"""Answers from columns are those of the rows, whatever is built, changed or late."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from svc.domain.columns.totals import bin_middle_ms
from svc.domain.queries.datasets import SPANS
from svc.domain.queries.measures import MEASURES
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates import span_columns, span_sums
from svc.store.aggregates.closed_hours import mark_dirty
from svc.store.aggregates.cubes import CubeStore
from svc.store.aggregates.span_columns import ALL_HOURS, DAY_QUIET
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.embedded.server import Served
from svc.store.reads.questions import grouped
from svc.store.reads.questions.columns import rows as column_rows
from svc.store.reads.questions.columns import segments as column_segments
from svc.store.reads.questions.questions import Question, ask
from tests.conftest import copied, filled_once
from tests.examples import share
from tests.store.as_json import JsonQueries
from tests.store.spans.test_writing import NOW, Clock, fetch, one, rows, store_of

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FIELDS = ("kind", "name", "status", "model_id", "user_id", "session_id", "error_type", "environment", "tag")
FILTERS: tuple[Mapping[str, Any], ...] = (
    {},
    {"status": "error"},
    {"name": "n1", "kind": "llm"},
    {"user_id": None},
    {"environment": "production"},
    {"environment": None, "status": "error"},
    {"environment": "staging", "tag": "b"},
    {"tag": "nobody's"},
    {"model_id": "no such model"},
)


@pytest.fixture(autouse=True)
def every_answer_tries_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_segments, "FEW_SPANS", 1)
    # However few spans are alike.
    monkeypatch.setattr(span_columns, "FEW_SPANS", 1)
    monkeypatch.setattr(span_sums, "FEWER", 1)


async def send(store: Database, dice: random.Random, spans: int, days: int, until: datetime = NOW) -> None:
    """Spans of several days, a third of them late by up to three days, in batches of three."""
    batches: list[tuple[datetime, Any]] = []
    for number in range(1, spans + 1):
        started_at = until - timedelta(minutes=dice.randrange(1, days * 24 * 60))
        late = dice.choice([timedelta(0), timedelta(0), timedelta(minutes=dice.randrange(3 * 24 * 60))])
        attributes: dict[str, Any] = {"gen_ai.operation.name": dice.choice(["chat", "execute_tool"])}
        if attributes["gen_ai.operation.name"] == "execute_tool":
            attributes["gen_ai.tool.name"] = dice.choice(["search", "book"])
        else:
            attributes["gen_ai.request.model"] = dice.choice(["gpt-4o", "claude-sonnet-4-5", "unheard-of"])
            attributes["gen_ai.usage.input_tokens"] = dice.randrange(1000)
            if dice.random() < 0.5:
                attributes["gen_ai.usage.output_tokens"] = dice.randrange(100)
        if dice.random() < 0.7:
            attributes |= {"session.id": f"s{dice.randrange(9)}", "user.id": f"u{dice.randrange(5)}"}
        if dice.random() < 0.7:
            attributes["deployment.environment.name"] = dice.choice(["production", "staging"])
        if dice.random() < 0.3:
            attributes["langfuse.trace.tags"] = dice.sample(["a", "b", "c"], 2)
        span = one(
            number,
            start=started_at,
            took_s=dice.choice([0.0, 0.0004, dice.randrange(1, 90_000) / 1000]),
            trace_id=dice.randrange(1, 90).to_bytes(16, "big"),
            attributes=attributes,
            name=f"n{dice.randrange(3)}",
            status_code=2 if dice.random() < 0.2 else 0,
        )
        batches.append((min(until, started_at + late), span))
    clock = Clock()
    written = store_of(store, clock)
    for arrived_at, span in sorted(batches, key=lambda batch: batch[0]):
        clock.now = arrived_at
        await written.write(rows(span))


async def build(store: Database, now: datetime) -> None:
    cubes = CubeStore(store)
    while (await cubes.build(now, 50)).more:
        pass


async def _fill(store: Database) -> None:
    assert (await ProjectStore(store).make_default()).id == 1
    await send(store, random.Random(7), 240, 3)


async def _fill_and_build(store: Database) -> None:
    """Hours of the last day stand alone, days before as a whole; the newest hours are not built at all."""
    await _fill(store)
    await build(store, NOW - 3 * HOUR)


@pytest.fixture
async def sent(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    async with copied(served, "spans_of_days", _fill) as database:
        yield database


@pytest.fixture
async def built(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """Of all tests that only read it."""
    async with filled_once(served, "columns_of_days", _fill_and_build) as database:
        yield database


async def _fill_and_build_all(store: Database) -> None:
    await _fill(store)
    await build(store, NOW + DAY)


async def _fill_and_lose_columns(store: Database) -> None:
    await _fill_and_build_all(store)
    await fetch(store, "delete from span_column where hour = -1")


@pytest.fixture
async def whole(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """A copy in which every day stands as a whole."""
    async with copied(served, "columns_of_whole_days", _fill_and_build_all) as database:
        yield database


@pytest.fixture
async def sums_alone(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """Of all tests that only read it: what only the columns of each span know of its days is lost."""
    async with filled_once(served, "sums_of_whole_days", _fill_and_lose_columns) as database:
        yield database


@asynccontextmanager
async def rows_alone(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Questions are answered from rows, and not from columns."""
    with monkeypatch.context() as patch:
        patch.setattr(grouped, "columns_know", lambda *_: False)
        yield


async def answers(
    queries: JsonQueries, low: datetime, high: datetime, by: str, filters: Any, turn: int
) -> list[Any]:
    found: list[Any] = []
    for number, measure in share(list(enumerate(MEASURES)), turn, 5):
        question = ask(1, SPANS.name, (low, high), filters, by=by, measure=measure)
        found.append(await queries.count(question))
        found.append(await queries.timeseries(question, "hour", "status", 9))
        found.append(await queries.timeseries(question, "day", "tag", 9))
        # A third of the fields, each of a few measures: all of them with all take a minute more.
        found.extend([await queries.facets(question, field, 50) for field in FIELDS[number % 3 :: 3]])
    return found


async def agree(
    store: Database,
    monkeypatch: pytest.MonkeyPatch,
    low: datetime,
    high: datetime,
    filters: Any,
    turn: int = 0,
) -> None:
    queries = JsonQueries(store)
    for shift, by in enumerate(("created_at", "started_at")):
        by_columns = await answers(queries, low, high, by, filters, turn + shift)
        async with rows_alone(monkeypatch):
            by_rows = await answers(queries, low, high, by, filters, turn + shift)
        for one_answer, other in zip(by_columns, by_rows, strict=True):
            assert alike(one_answer, other), (by, filters, one_answer, other)


def alike(mine: Any, theirs: Any) -> bool:
    """The same but for durations, which are within one per cent, and the order that follows from them."""
    if isinstance(theirs, dict):
        if str(theirs.get("measure", "")).startswith("duration"):
            mine, theirs = in_order(mine), in_order(theirs)
        return mine.keys() == theirs.keys() and all(
            close(mine[key], theirs[key]) if key.startswith("duration_p") else alike(mine[key], theirs[key])
            for key in theirs
        )
    if isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(alike, mine, theirs))
    return bool(mine == theirs)


def in_order(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with its groups by their values."""
    names = {"facets", "series"} & answer.keys()
    return answer | {name: sorted(answer[name], key=lambda group: str(group["value"])) for name in names}


def close(mine: float | None, theirs: float | None) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    # Less than a microsecond is no duration that anybody tells apart.
    return abs(mine - theirs) <= 0.0101 * theirs + 0.0011


async def covered(store: Database) -> int:
    (row,) = await fetch(
        store, "select coalesce(sum(bit_count(hours::bit(24))), 0)::integer as n from span_column_day"
    )
    return int(row["n"])


@pytest.mark.parametrize(("turn", "filters"), list(enumerate(FILTERS)), ids=str)
async def test_each_measure_filter_and_group_is_what_rows_say(
    built: Database, monkeypatch: pytest.MonkeyPatch, turn: int, filters: Any
) -> None:
    states = await fetch(built, "select whole from span_column_day order by day")
    assert {row["whole"] for row in states} == {True, False}
    low, high = NOW - 2 * DAY - timedelta(minutes=13), NOW - timedelta(minutes=17)
    await agree(built, monkeypatch, low, high, filters, turn)


async def test_ranges_of_hours_days_and_less_than_an_hour_are_what_rows_say(
    whole: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    midnight = NOW.replace(hour=0)
    for low, high in (
        (midnight - DAY, midnight),
        (midnight + HOUR, midnight + 2 * HOUR),
        (midnight + timedelta(minutes=5), midnight + timedelta(minutes=25)),
        (midnight + timedelta(minutes=50), midnight + timedelta(minutes=70)),
        (midnight, midnight),
        (midnight - 300 * DAY, midnight + 300 * DAY),
    ):
        question = ask(1, SPANS.name, (low, high), {}, by="started_at", measure="cost")
        mine = await JsonQueries(whole).facets(question, "model_id", 50)
        async with rows_alone(monkeypatch):
            assert await JsonQueries(whole).facets(question, "model_id", 50) == mine
    open_ended = ask(1, SPANS.name, (None, None), {}, by="started_at", measure="cost")
    mine = await JsonQueries(whole).facets(open_ended, "user_id", 50)
    async with rows_alone(monkeypatch):
        assert await JsonQueries(whole).facets(open_ended, "user_id", 50) == mine


async def test_what_changes_is_read_from_its_rows_until_its_columns_are_written_anew(
    whole: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = NOW + DAY
    before = await covered(whole)
    assert before == ALL_HOURS.bit_count() * len(await fetch(whole, "select from span_column_day"))

    async def change(connection: Connection) -> None:
        changed = await connection.fetch(
            "update span set total_cost = 7, status = 'error', kind = 'rerank'"
            " where get_byte(span_id, 7) % 40 = 3 returning created_at"
        )
        await mark_dirty(connection, [(1, row["created_at"]) for row in changed], SPANS, now)

    await whole.run(change)
    low, high = NOW - 2 * DAY, NOW + DAY
    # Marked and not counted anew; counted anew, hours out of their days; and whole days again.
    await agree(whole, monkeypatch, low, high, {"kind": "rerank"}, 0)
    await build(whole, now)
    assert await covered(whole) < before
    await agree(whole, monkeypatch, low, high, {"kind": "rerank"}, 1)
    await build(whole, now + 2 * DAY_QUIET)
    assert await covered(whole) == before
    await agree(whole, monkeypatch, low, high, {"kind": "rerank"}, 2)


@pytest.mark.release
async def test_days_that_are_gone_leave_no_column(whole: Database) -> None:
    async def forget(connection: Connection) -> None:
        rows = await connection.fetch("delete from span returning created_at")
        await mark_dirty(connection, [(1, row["created_at"]) for row in rows], SPANS, NOW + DAY)

    await whole.run(forget)
    await build(whole, NOW + DAY)
    await build(whole, NOW + DAY + 2 * DAY_QUIET)
    assert await fetch(whole, "select from span_column") == []
    assert await fetch(whole, "select from span_column_day") == []


@pytest.mark.release
async def test_costs_of_any_digits_add_up_exactly(sent: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await fetch(
        sent,
        "update span set total_cost = (get_byte(span_id, 7) * 0.000000000000123456789012::numeric)"
        " + case when get_byte(span_id, 7) % 5 = 0 then 12345.678901 else 0 end where kind = 'llm'",
    )
    await build(sent, NOW + DAY)
    question = ask(
        1, SPANS.name, (NOW - 9 * DAY, NOW + DAY), {"kind": "llm"}, by="started_at", measure="cost"
    )
    (row,) = await fetch(sent, "select sum(total_cost) as cost from span where usage_repeats is null")
    assert (await covered(sent)) > 0
    assert Decimal((await JsonQueries(sent).count(question))["cost"]) == row["cost"]
    mine = await JsonQueries(sent).facets(question, "model_id", 50)
    async with rows_alone(monkeypatch):
        assert await JsonQueries(sent).facets(question, "model_id", 50) == mine


@pytest.mark.release
async def test_what_no_column_can_hold_is_read_from_its_rows(
    sent: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fetch(sent, "update span set total_cost = 1e7 where get_byte(span_id, 7) = 5")
    await build(sent, NOW + DAY)
    states = await fetch(sent, "select hours from span_column_day")
    assert {row["hours"] for row in states} == {0, ALL_HOURS}
    await agree(sent, monkeypatch, NOW - 2 * DAY, NOW + DAY, {})
    # And not tried again for nothing.
    writes = await fetch(sent, "select xmin::text as version from span_column_day order by day")
    await build(sent, NOW + DAY + 3 * DAY_QUIET)
    assert await fetch(sent, "select xmin::text as version from span_column_day order by day") == writes


async def test_a_large_hour_is_cut_into_segments(sent: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_columns, "MOST_ROWS", 16)
    monkeypatch.setattr(span_columns, "BATCH_ROWS", 8)
    await build(sent, NOW + DAY)
    segments = await fetch(sent, "select part, spans from span_column where field = 'kind'")
    assert max(row["spans"] for row in segments) == 16
    assert max(row["part"] for row in segments) >= 2
    await agree(sent, monkeypatch, NOW - 2 * DAY, NOW + DAY, {"status": "error"})
    # As of a larger history: some columns at a time, cut within segments.
    for bound, most in (("FEW_VALUES", 0), ("PREFETCH_COLUMNS", 3), ("BATCH_BYTES", 1)):
        monkeypatch.setattr(column_segments, bound, most)
    await agree(sent, monkeypatch, NOW - 2 * DAY, NOW + DAY, {"status": "error"}, 1)


@pytest.mark.release
async def test_too_much_for_one_answer_is_left_to_the_rows(
    whole: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for turn, bound in enumerate(("MOST_BYTES", "MOST_PARTS")):
        with monkeypatch.context() as patch:
            patch.setattr(column_segments if bound == "MOST_BYTES" else column_rows, bound, 0)
            if bound == "MOST_BYTES":
                # Nothing of the columns is added up.
                patch.delattr(column_segments, "_batches")
            await agree(whole, monkeypatch, NOW - 2 * DAY, NOW + DAY, {"status": "error"}, turn)


async def test_days_that_are_added_up_answer_from_their_sums_alone(
    sums_alone: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = await fetch(sums_alone, "select summed from span_column_day")
    assert {row["summed"] for row in states} == {0b111111}
    low, high = NOW - 2 * DAY - timedelta(minutes=13), NOW - timedelta(minutes=17)
    for measure in ("count", "errors", "error_rate", "cost", "tokens"):
        for by in ("created_at", "started_at"):
            for filters in ({}, {"status": "error"}, {"environment": "production", "kind": "llm"}):
                question = ask(1, SPANS.name, (low, high), filters, by=by, measure=measure)
                for field in ("model_id", "name", "tag"):
                    mine = await JsonQueries(sums_alone).timeseries(question, "hour", field, 50)
                    async with rows_alone(monkeypatch):
                        assert await JsonQueries(sums_alone).timeseries(question, "hour", field, 50) == mine


async def figures(queries: JsonQueries, question: Question) -> dict[Any, dict[str, Any]]:
    """What an answer says of all, of each value and of each bucket, by what it is of."""
    total = await queries.count(question)
    found = {"all": {name: total[name] for name in total if name not in ("measure", "unit", "by")}}
    for field in ("model_id", "tag"):
        facets = (await queries.facets(question, field, 50))["facets"]
        found |= {(field, facet["value"]): facet for facet in facets}
    series = await queries.timeseries(question, "day", "status", 9)
    found |= {bucket["bucket_start"]: bucket for bucket in series["buckets"]}
    return found | {
        (group["value"], bucket["bucket_start"]): bucket
        for group in series["series"]
        for bucket in group["buckets"]
    }


@pytest.mark.parametrize("by", ["created_at", "started_at"])
@pytest.mark.parametrize("from_rows", [False, True], ids=["columns", "rows"])
async def test_measures_asked_together_are_what_each_says_alone(
    built: Database, monkeypatch: pytest.MonkeyPatch, by: str, from_rows: bool
) -> None:
    low, high = NOW - 2 * DAY - timedelta(minutes=13), NOW - timedelta(minutes=17)
    asked = ("cost", "errors", "tokens", "duration_p50", "duration_p95", "traces")
    if from_rows:
        monkeypatch.setattr(grouped, "columns_know", lambda *_: False)
    queries = JsonQueries(built)

    async def of(measure: str, *beside: str) -> dict[Any, dict[str, Any]]:
        question = ask(1, SPANS.name, (low, high), {}, by=by, measure=measure, beside=beside)
        return await figures(queries, question)

    alone: dict[Any, dict[str, Any]] = {}
    for measure in asked:
        for key, figure in (await of(measure)).items():
            alone[key] = alone.get(key, {}) | figure
    assert await of(*asked) == alone
    # Of many cells, which are added up in a thread, as of few.
    monkeypatch.setattr(grouped, "_CELLS_AT_ONCE", 0)
    assert await of(*asked) == alone


def of_whole_days(filters: Sequence[Mapping[str, Any]], measure: str, *beside: str) -> Iterator[Question]:
    """The question about two days that are over, by each time and with each of these filters."""
    midnight = NOW.replace(hour=0)
    for by in ("created_at", "started_at"):
        for narrowed in filters:
            bounds = midnight - 2 * DAY, midnight
            yield ask(1, SPANS.name, bounds, narrowed, by=by, measure=measure, beside=beside)


async def test_percentiles_of_whole_days_come_from_their_sums_alone(
    sums_alone: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters: list[Mapping[str, Any]] = [{}, {"status": "error"}, {"kind": "llm", "name": "n1"}]
    for question in of_whole_days(filters, "duration_p95"):
        for field in ("kind", "call_site_id"):
            mine = await JsonQueries(sums_alone).timeseries(question, "day", field, 50)
            async with rows_alone(monkeypatch):
                theirs = await JsonQueries(sums_alone).timeseries(question, "day", field, 50)
            assert alike(mine, theirs)


async def test_what_users_use_on_whole_days_comes_from_its_sums_alone(
    sums_alone: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters: list[Mapping[str, Any]] = [{}, {"kind": "llm"}, {"status": "error"}]
    for question in of_whole_days(filters, "cost", "errors", "tokens"):
        mine = await JsonQueries(sums_alone).timeseries(question, "day", "user_id", 50)
        async with rows_alone(monkeypatch):
            assert await JsonQueries(sums_alone).timeseries(question, "day", "user_id", 50) == mine


@pytest.mark.release
async def test_spans_that_are_hardly_alike_are_not_added_up(
    sent: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_sums, "FEWER", 4)
    await build(sent, NOW + DAY)
    assert {row["summed"] for row in await fetch(sent, "select summed from span_column_day")} == {0}
    assert await fetch(sent, "select from span_column where hour < -1") == []
    # Nor looked at again for nothing.
    writes = await fetch(sent, "select xmin::text as version from span_column_day order by day")
    await build(sent, NOW + DAY + 3 * DAY_QUIET)
    assert await fetch(sent, "select xmin::text as version from span_column_day order by day") == writes


@pytest.mark.release
async def test_days_of_a_release_before_are_added_up(whole: Database) -> None:
    sums = "select * from span_column where hour < -1 order by project_id, field, day, hour, began, part"
    mine = await fetch(whole, sums)
    assert mine
    await fetch(whole, "delete from span_column where hour < -1")
    await fetch(whole, "update span_column_day set summed = null")
    await build(whole, NOW + DAY)
    assert await fetch(whole, sums) == mine


@pytest.mark.release
async def test_sums_that_no_column_can_hold_are_read_from_the_columns_of_each_span(
    sent: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fetch(sent, "update span set total_cost = 8e6, cost_source = 'reported' where kind = 'llm'")
    await build(sent, NOW + DAY)
    assert {row["hours"] for row in await fetch(sent, "select hours from span_column_day")} == {ALL_HOURS}
    # Durations are summed all the same.
    assert 0b11000 in {row["summed"] for row in await fetch(sent, "select summed from span_column_day")}
    question = ask(1, SPANS.name, (NOW - 9 * DAY, NOW + DAY), {}, by="started_at", measure="cost")
    mine = await JsonQueries(sent).facets(question, "kind", 50)
    async with rows_alone(monkeypatch):
        assert await JsonQueries(sent).facets(question, "kind", 50) == mine


async def test_two_projects_never_share_columns(sent: Database) -> None:
    other = one(1, trace_id=bytes(15) + b"\xff", name="foreign")
    await store_of(sent).write(rows(other, project=2))
    await build(sent, NOW + DAY)
    question = ask(1, SPANS.name, (NOW - 9 * DAY, NOW + DAY), {"name": "foreign"}, measure="traces")
    assert (await JsonQueries(sent).count(question))["count"] == 0


def test_a_bin_stands_for_durations_within_one_per_cent() -> None:
    for place in range(1, 1500):
        low, high = 0.001 * 1.02**place, 0.001 * 1.02 ** (place + 1)
        assert abs(bin_middle_ms(place) - low) <= 0.01 * low * 1.0001
        assert abs(bin_middle_ms(place) - high) <= 0.01 * high * 1.0001
