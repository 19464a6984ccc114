"""Hourly cubes are exact at every moment: whatever is written, re-sent, built or marked in between."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio

from protocol.rest.query import timestamp
from svc.domain.calendar import hour_of
from svc.domain.queries.datasets import SPANS, Dataset
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.closed_hours import GRACE, HOUR, mark_dirty
from svc.store.aggregates.cubes import BUILT, CubeStore, first_row
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.migrate import migrations
from svc.store.reads.traces.spans import SpanFilter, SpanReads
from tests.examples import first_always
from tests.store.as_json import JsonQueries
from tests.store.reads.test_query import question
from tests.store.spans.test_writing import NOW, Clock, fetch, one, rows, store_of

MODELS = ("gpt-4o", "claude-sonnet-4-5", "unheard-of", None)
FIELDS = tuple(field.name for field in SPANS.fields if field.facetable and field.type != "attribute")


@pytest.fixture
async def clock(store: Database) -> Clock:
    assert (await ProjectStore(store).make_default()).id == 1
    clock = Clock()
    clock.now = NOW - timedelta(days=5)
    return clock


def chat(number: int, dice: random.Random, took_s: float = 1.0) -> Any:
    model = dice.choice(MODELS)
    attributes = {
        "session.id": f"s{dice.randrange(4)}",
        "gen_ai.operation.name": dice.choice(["chat", "execute_tool"]),
    }
    if model is not None:
        attributes["gen_ai.request.model"] = model
    trace_id = bytes([1 + number % 250]) * 16
    name, failed = f"n{dice.randrange(3)}", dice.random() < 0.3
    return one(
        number,
        trace_id=trace_id,
        attributes=attributes,
        name=name,
        took_s=took_s,
        status_code=2 if failed else 0,
    )


async def raw(store: Database, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in await fetch(store, sql, *values)]


async def agree(store: Database, low: datetime | None, high: datetime | None, dice: random.Random) -> None:
    """Every kind of question answers what counting the raw rows answers."""
    queries = JsonQueries(store)
    where = (
        "project_id = 1 and created_at >= coalesce($1::timestamptz, '1970-01-01')"
        " and created_at < coalesce($2::timestamptz, '9999-01-01')"
    )
    ((total,),) = await raw(store, f"select count(*) from span where {where}", low, high)
    assert (await queries.count(question(low=low, high=high)))["count"] == total
    field = dice.choice(FIELDS)
    counted = await raw(
        store,
        f"select {field}, count(*) from span where {where} group by 1 order by 2 desc, 1 nulls last",
        low,
        high,
    )
    facets = (await queries.facets(question(low=low, high=high), field, 100))["facets"]
    assert [(facet["value"], facet["count"]) for facet in facets] == counted
    for value, n in counted:
        assert await queries.count(question(low=low, high=high, **{field: value})) == {"count": n}
    # The same of what failed.
    counted = await raw(
        store,
        f"select {field}, count(*) from span where {where} and status = 'error'"
        " group by 1 order by 2 desc, 1 nulls last",
        low,
        high,
    )
    failed = question(low=low, high=high, status="error")
    facets = (await queries.facets(failed, field, 100))["facets"]
    assert [(facet["value"], facet["count"]) for facet in facets] == counted
    assert (await queries.count(failed))["count"] == sum(n for _, n in counted)
    for value, n in counted:
        both = {field: value, "status": "error"}
        assert await queries.count(question(low=low, high=high, **both)) == {"count": n}
    if low is not None and high is not None:
        for interval in ("hour", "day", "week"):
            buckets = (await queries.timeseries(question(low=low, high=high), interval))["buckets"]
            counted = await raw(
                store,
                f"select date_trunc('{interval}', created_at, 'UTC'), count(*) from span where {where}"
                " group by 1 order by 1",
                low,
                high,
            )
            assert [(b["bucket_start"], b["count"]) for b in buckets if b["count"]] == [
                (timestamp(start), n) for start, n in counted
            ]


@pytest.mark.parametrize("seed", first_always(range(3)))
async def test_the_cube_agrees_with_the_rows_at_every_moment(
    store: Database, clock: Clock, seed: int
) -> None:
    dice = random.Random(seed)
    spans, cubes = store_of(store, clock), CubeStore(store)
    number = 0
    for _ in range(40):
        action = dice.choice(["write", "write", "resend", "wait", "build", "build one"])
        if action == "write":
            count = dice.randrange(1, 8)
            await spans.write(rows(*(chat(number + n + 1, dice) for n in range(count))))
            number += count
        elif action == "resend" and number:
            again = chat(dice.randrange(number) + 1, dice, took_s=dice.choice([0.5, 2.0, 3.0]))
            await spans.write(rows(again))
        elif action == "wait":
            clock.now += timedelta(minutes=dice.choice([dice.randrange(5, 90), dice.randrange(300, 2000)]))
        elif action == "build":
            await cubes.build(clock.now, 100)
        else:
            await cubes.build(clock.now, 1)
        ends = [
            None,
            *(clock.now - timedelta(minutes=dice.randrange(0, 900)) for _ in range(3)),
            *(hour_of(clock.now) - dice.randrange(100) * HOUR for _ in range(2)),
            hour_of(clock.now).replace(hour=0),
        ]
        low, high = dice.choice(ends), dice.choice(ends)
        if low is not None and high is not None and low > high:
            low, high = high, low
        await agree(store, low, high, dice)
    await cubes.build(clock.now + timedelta(hours=2), 1000)
    assert await raw(store, "select count(*) from cube_dirty") == [(0,)]
    await agree(store, None, None, dice)


async def test_hours_built_before_repeats_were_counted_count_them_after_the_migration(
    store: Database, clock: Clock
) -> None:
    usage = {"gen_ai.request.model": "gpt-4o", "gen_ai.usage.input_tokens": 5}
    agent = one(1, attributes={"gen_ai.operation.name": "invoke_agent", **usage})
    call = one(2, parent=1, attributes={"gen_ai.operation.name": "chat", **usage})
    await store_of(store, clock).write(rows(agent, call))
    await CubeStore(store).build(clock.now + 30 * HOUR, 100)
    kept = [
        f"select value, n from {table} where field = 'usage_repeats' order by value"
        for table in ("cube", "cube_day")
    ]
    built = [await raw(store, sql) for sql in kept]
    assert built == [[("descendant", 1), (None, 1)]] * 2
    (step,) = [step for step in migrations() if step.number == 40]

    async def anew(connection: Connection) -> None:
        await connection.execute("delete from cube where field = 'usage_repeats'")
        await connection.execute("delete from cube_day where field = 'usage_repeats'")
        await connection.execute(step.sql)

    await store.run(anew)
    assert [await raw(store, sql) for sql in kept] == built


async def test_an_hour_is_built_only_when_nothing_can_be_on_the_way(store: Database, clock: Clock) -> None:
    await store_of(store, clock).write(rows(one(1)))
    cubes = CubeStore(store)
    end = hour_of(clock.now) + HOUR
    assert (await cubes.build(end + GRACE - timedelta(seconds=1), 10)).hours == 0
    # One of spans, and one of traces.
    assert (await cubes.build(end + GRACE, 10)).hours == 2
    assert (await cubes.build(end + GRACE, 10)).hours == 0


async def test_a_closed_question_is_answered_without_reading_a_span(store: Database, clock: Clock) -> None:
    await store_of(store, clock).write(rows(*(chat(n, random.Random(n)) for n in range(1, 9))))
    await CubeStore(store).build(clock.now + 3 * HOUR, 10)

    async def work(connection: Connection) -> None:
        await connection.execute("delete from span")

    await store.run(work)
    low, high = hour_of(clock.now), hour_of(clock.now) + HOUR
    queries, failed = JsonQueries(store), question(low=low, high=high, status="error")
    assert await queries.count(question(low=low, high=high)) == {"count": 8}
    (count,) = (await queries.facets(failed, "status", 5))["facets"]
    assert count == {"value": "error", "count": (await queries.count(failed))["count"]}
    names = (await queries.facets(failed, "name", 5))["facets"]
    assert sum(name["count"] for name in names) == count["count"] > 0


@pytest.mark.parametrize("seed", first_always(range(2)))
async def test_hours_of_an_earlier_release_count_what_failed_row_by_row_until_they_are_made_up(
    store: Database, clock: Clock, seed: int
) -> None:
    dice = random.Random(seed)
    began = clock.now
    for number in range(1, 200, 5):
        clock.now += timedelta(minutes=dice.randrange(5, 90))
        await store_of(store, clock).write(rows(*(chat(number + n, dice) for n in range(5))))
    await CubeStore(store).build(clock.now, 1000)
    sums = "select * from {} where field like 'failed:%' order by 1, 2, 3, 4, 5"
    built = [await raw(store, sums.format(table)) for table in ("cube", "cube_day")]
    assert all(built)

    async def as_before(connection: Connection) -> None:
        # A few hours, of which the earlier release summed up the days.
        await connection.execute(
            "delete from cube where field like 'failed:%' and date_part('hour', hour)::int % 5 = $1", seed
        )
        await connection.execute(
            "delete from cube_day d where field like 'failed:%' and exists (select from cube c"
            " where field = '' and date_trunc('day', hour, 'UTC') = d.day and not exists ("
            "  select from cube f where f.hour = c.hour and f.field = 'failed:'))"
        )

    await store.run(as_before)
    for _ in range(20):
        low = began + timedelta(minutes=dice.randrange(0, 2000))
        await agree(store, low, low + timedelta(minutes=dice.randrange(1, 3000)), dice)
    await agree(store, None, None, dice)
    # A few at a time, as one start after the other would.
    cubes = CubeStore(store)
    while (await cubes.build(clock.now, 2)).more:
        await agree(store, None, None, dice)
    assert [await raw(store, sums.format(table)) for table in ("cube", "cube_day")] == built
    assert (await cubes.build(clock.now, 2)).hours == 0


async def test_a_range_may_end_where_the_calendar_does(store: Database, clock: Clock) -> None:
    await store_of(store, clock).write(rows(*(chat(n, random.Random(n)) for n in range(1, 9))))
    await CubeStore(store).build(clock.now + 3 * HOUR, 10)
    queries, last = JsonQueries(store), datetime.max.replace(tzinfo=UTC)
    for low, count in ((None, 8), (clock.now - HOUR, 8), (last - timedelta(minutes=5), 0), (last, 0)):
        asked = question(low=low, high=last)
        assert await queries.count(asked) == {"count": count}
        assert len((await queries.search(asked, "n", None, 50, None))["rows"]) == count
        for q in ("n", "n0 "):
            narrow = SpanFilter(q=q, low=low, high=last)
            page = await SpanReads(store).page(1, narrow, payload=False, limit=50, cursor=None)
            assert len(page["spans"]) == (count if q == "n" else 0)


async def test_two_builders_at_once_count_nothing_twice(store: Database, clock: Clock) -> None:
    await store_of(store, clock).write(rows(*(chat(n, random.Random(n)) for n in range(1, 9))))
    later = clock.now + 3 * HOUR
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(CubeStore(store).build, later, 10)
    await agree(store, None, None, random.Random(0))


async def test_a_mark_made_while_its_hour_is_built_is_not_lost(store: Database, clock: Clock) -> None:
    """The build waits for the marker's transaction, or the mark stands behind the build."""
    await store_of(store, clock).write(rows(chat(1, random.Random(1))))
    moment = clock.now
    later = moment + 3 * HOUR
    cubes = CubeStore(store)
    await cubes.build(later, 10)
    marked, go_on = trio.Event(), trio.Event()

    async def mark() -> None:
        async def work(connection: Connection) -> None:
            await mark_dirty(connection, [(1, moment)], SPANS, later)

        await store.run(work)
        marked.set()
        await go_on.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mark)
        await marked.wait()
        await cubes.build(later, 10)
        go_on.set()
    assert await raw(store, "select count(*) from cube_dirty") == [(0,)]
    await agree(store, None, None, random.Random(0))


@pytest.mark.parametrize("dataset", BUILT.values(), ids=lambda dataset: dataset.name)
async def test_the_next_hour_is_found_without_the_rows_before_it(store: Database, dataset: Dataset) -> None:
    async def plan(connection: Connection) -> str:
        # As a statement is planned that was prepared once, whatever it is asked for.
        await connection.execute(
            "set local enable_seqscan = off; set local plan_cache_mode = force_generic_plan;"
            f" prepare first_row (bigint, timestamptz) as {first_row(dataset)}"
        )
        lines = await connection.fetch("explain execute first_row (1, now())")
        await connection.execute("deallocate first_row")
        return "\n".join(line[0] for line in lines)

    conditions = [line for line in (await store.run(plan)).splitlines() if "Index Cond" in line]
    assert conditions
    assert all("created_at >= $2" in line for line in conditions)
