"""Traces of the hour under way are told by their groups, a slice at a time, and as each says for itself."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import pytest

from svc.domain.calendar import EPOCH
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.closed_hours import GRACE, SLICE, SLICE_QUIET, mark_dirty
from svc.store.aggregates.cubes import drop_day_columns
from svc.store.aggregates.slices import Slices
from svc.store.aggregates.trace_slices import FAR_OFF, TRACE_SLICES
from svc.store.aggregates.vitals import TRACES
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.embedded.server import Served
from svc.store.reads.traces import trace_search
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.trace_counts import TraceCounts
from svc.store.reads.traces.trace_groups import grouped
from svc.store.reads.traces.traces import TraceFilter, TraceReads
from svc.store.spans.traces import PostgresTraceStore
from tests.conftest import copied
from tests.store.aggregates.test_model_cubes import FILTERS, clause, traces_agree
from tests.store.aggregates.test_vitals import call
from tests.store.reads.test_column_answers import HOUR, build
from tests.store.reads.test_hour_slices import every_slice_is_large as every_slice_is_large
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, Clock, fetch, rows, store_of

#: Late in its hour, of which all slices but the last are closed.
LATE: Final = NOW + timedelta(minutes=57, seconds=30)
CLOSED: Final = int((LATE - GRACE - NOW) / SLICE)
#: Where the groups of slices stand beside those of hours.
TABLES: Final = ("trace_group", "trace_cube", "trace_code", "trace_code_page")


@pytest.fixture(autouse=True)
def pages_ask_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_search, "NEAR", 1)


async def _settle(store: Database, now: datetime) -> None:
    await settle_at(now + timedelta(seconds=11), PostgresTraceStore(store))


async def _write(store: Database, clock: Clock, dice: random.Random, number: int, trace: int) -> None:
    (made,) = rows(call(number, dice, clock))
    made.row.trace_id = trace.to_bytes(16, "big")
    await store_of(store, clock).write([made])


async def _fill(store: Database) -> None:
    """Two hours of traces of one to three spans, a third of which come minutes after the first."""
    assert (await ProjectStore(store).make_default()).id == 1
    dice, clock = random.Random(7), Clock()
    for number in range(1, 101):
        clock.now = NOW - HOUR + timedelta(minutes=1.16 * number)
        trace = number if number % 3 else max(1, number - dice.randrange(1, 12))
        await _write(store, clock, dice, number, trace)
        await _settle(store, clock.now)
    await build(store, LATE)


@pytest.fixture
async def late(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """A copy in which each closed slice is written."""
    async with copied(served, "traces_of_an_hour", _fill) as database:
        yield database


@pytest.fixture
def clock() -> Clock:
    return Clock(LATE)


async def slices(store: Database) -> Sequence[datetime]:
    async def work(connection: Connection) -> Sequence[datetime]:
        built = await grouped(connection, 1, TraceFilter())
        assert built is not None
        return built.slices

    return await store.run(work)


async def nothing_is_left_of_slices(store: Database) -> None:
    assert await fetch(store, "select from trace_slice") == []
    for table in TABLES:
        assert await fetch(store, f"select from {table} where hour > $1", LATE + HOUR) == []


async def page(store: Database, asked: dict[str, Any]) -> list[str]:
    reads = TraceReads(store, SpanReads(store))
    found = await reads.page(1, TraceFilter(**asked), limit=7, cursor=None)
    return [trace["trace_id"] for trace in found["traces"]]


async def pages_agree(store: Database, asked: dict[str, Any]) -> None:
    expected = await fetch(
        store,
        f"select encode(trace_id, 'hex') as id from trace t where {clause(asked)}"
        " order by started_at desc, trace_id desc limit 7",
    )
    assert await page(store, asked) == [row["id"] for row in expected], asked


async def all_agree(store: Database, clock: Clock, dice: random.Random, filters: int = 3) -> None:
    for asked in dice.sample(FILTERS, filters):
        await traces_agree(store, clock, asked, dice.choice([0, 1, 3]), dice.choice([1, 3]))
        await pages_agree(store, asked)


@pytest.mark.parametrize("turn", range(3))
async def test_each_filter_leaves_of_the_hour_under_way_what_it_leaves_of_rows(
    late: Database, clock: Clock, turn: int
) -> None:
    assert len(await slices(late)) == CLOSED
    for asked in FILTERS[turn::3]:
        for hours in (0, 2):
            await traces_agree(late, clock, asked, hours, 1)
        await pages_agree(late, asked)


@pytest.mark.parametrize("seed", range(2))
async def test_the_hour_under_way_agrees_with_its_rows_at_every_moment(
    store: Database, clock: Clock, seed: int
) -> None:
    assert (await ProjectStore(store).make_default()).id == 1
    dice, traces, seen = random.Random(seed), 0, 0
    clock.now = NOW - timedelta(minutes=9)
    await _write(store, clock, dice, 1, 1)
    for number in range(2, 42):
        clock.now += timedelta(minutes=dice.choice([0, 1, 2, 4]))
        traces += dice.random() < 0.7
        await _write(store, clock, dice, number, max(1, traces - dice.choice([0, 0, 0, 5])))
        await _settle(store, clock.now)
        if dice.random() < 0.5:
            await build(store, clock.now)
        seen += len(await slices(store)) if number > 20 else 0
        await all_agree(store, clock, dice, 1)
    assert seen


async def test_a_closed_slice_is_told_without_reading_a_trace(late: Database, clock: Clock) -> None:
    covered = await slices(late)

    async def drawn() -> list[Any]:
        counts = TraceCounts(late)
        within = {"low": NOW - HOUR, "high": LATE}
        return [
            await counts.histogram(1, TraceFilter(**within, **asked), HOUR, timeout_s=9, budget_s=9)
            for asked in FILTERS
        ]

    before = await drawn()
    for slice_ in covered:
        gone = await fetch(
            late,
            "delete from trace where created_at >= $1 and created_at < $2 returning trace_id",
            *(slice_, slice_ + SLICE),
        )
        await fetch(late, "delete from span where trace_id = any($1)", [row["trace_id"] for row in gone])
    assert await drawn() == before


async def test_a_changed_trace_is_found_at_once_and_drawn_after_its_roll_up(
    late: Database, clock: Clock
) -> None:
    (row,) = await fetch(
        late, "select trace_id, started_at from trace where created_at >= $1 order by created_at limit 1", NOW
    )
    trace, asked = int.from_bytes(row["trace_id"], "big"), {"model": "gpt-4o", "without": (("model", "x"),)}
    whole = await slices(late)
    for number in range(900, 909):
        await _write(late, clock, random.Random(number), number, trace)
    await pages_agree(late, asked)
    await _settle(late, clock.now)
    assert await slices(late) == whole[1:]
    await all_agree(late, clock, random.Random(3))
    # It may be changing still.
    await build(late, LATE + SLICE_QUIET / 2)
    assert await slices(late) == whole[1:]
    await build(late, clock.now + SLICE_QUIET + timedelta(seconds=11))
    assert (await slices(late))[: len(whole)] == whole
    await all_agree(late, clock, random.Random(4))


async def test_a_slice_that_changes_while_others_are_written_stays_unread(
    late: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await slices(late)
    long_ago = LATE - 2 * SLICE_QUIET
    await late.run(lambda connection: mark_dirty(connection, [(1, NOW)], TRACES, long_ago, slow=True))
    find_pending = Slices._find_pending

    async def changed_meanwhile(of: Slices, *asked: Any) -> Any:
        pending = await find_pending(of, *asked)
        if of.kind is not TRACE_SLICES:
            return pending
        young = LATE + timedelta(seconds=1)
        await late.run(lambda connection: mark_dirty(connection, [(1, whole[0])], TRACES, young, slow=True))
        return pending

    monkeypatch.setattr(Slices, "_find_pending", changed_meanwhile)
    await build(late, LATE)
    assert await slices(late) == []
    assert len(await fetch(late, "select from trace_slice_mark")) == len(whole)


async def test_of_two_replicas_one_writes_a_slice(late: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    written = await fetch(late, "select slice, xmin::text from trace_slice order by 1")

    async def every_one(_of: Slices, _hour: datetime, _closed: datetime, _now: datetime) -> Any:
        return [(1, row["slice"], True) for row in written]

    monkeypatch.setattr(Slices, "_find_pending", every_one)
    await Slices(late, attrs.evolve(TRACE_SLICES, few=1)).build(LATE, 50)
    assert await fetch(late, "select slice, xmin::text from trace_slice order by 1") == written


async def test_slices_of_closed_hours_go_in_turns(late: Database) -> None:
    await fetch(late, "update cube_progress set built_until = $1", NOW + HOUR)
    slow_replica = Slices(late, attrs.evolve(TRACE_SLICES, few=1))
    cleared = [await slow_replica.build(NOW + HOUR + GRACE, 4) for _ in range(4)]
    assert cleared == [4, 4, CLOSED - 8, 0]
    await nothing_is_left_of_slices(late)


async def test_a_closed_hour_takes_the_place_of_its_slices(late: Database, clock: Clock) -> None:
    await late.run(lambda connection: mark_dirty(connection, [(1, NOW)], TRACES, LATE))
    clock.now = NOW + HOUR + GRACE
    await build(late, clock.now)
    assert await fetch(late, "select from trace_slice_mark") == []
    await nothing_is_left_of_slices(late)
    await all_agree(late, clock, random.Random(5))


async def test_groups_of_slices_are_behind_every_hour_that_is_built(late: Database) -> None:
    hours = await fetch(late, "select distinct hour from trace_group where hour >= $1 order by hour", NOW)
    assert [row["hour"] - FAR_OFF for row in hours] == await slices(late)
    # As the calendar of the database has it, summer or winter.
    (row,) = await fetch(
        late,
        "select date_part('year', $1::timestamptz at time zone 'UTC') as year,"
        " to_char($1::timestamptz at time zone 'UTC', 'MM-DD HH24:MI') as said",
        hours[0]["hour"],
    )
    assert (row["year"], row["said"]) == (NOW.year + 4_000, NOW.strftime("%m-%d %H:%M"))
    assert (EPOCH + FAR_OFF).strftime("%m-%d %H:%M") == EPOCH.strftime("%m-%d %H:%M")


async def test_what_is_erased_is_not_left_in_a_slice(late: Database, clock: Clock) -> None:
    day = NOW.replace(hour=0)
    await late.run(lambda connection: drop_day_columns(connection, 1, [day]))
    assert await slices(late) == []
    await nothing_is_left_of_slices(late)
    await all_agree(late, clock, random.Random(6))
    await build(late, LATE)
    assert len(await slices(late)) == CLOSED


async def test_a_part_of_an_id_is_looked_for_in_rows_of_slices(late: Database) -> None:
    (row,) = await fetch(
        late, "select encode(trace_id, 'hex') as id from trace where created_at >= $1 limit 1", NOW
    )
    assert row["id"] in await page(late, {"q": row["id"][-20:]})


async def test_a_trace_that_goes_on_marks_its_slice_twice_a_minute(late: Database) -> None:
    async def marks_after(seconds: float, *, slow: bool = False) -> int:
        now = LATE + timedelta(seconds=seconds)
        await late.run(
            lambda connection: mark_dirty(
                connection, [(1, NOW + timedelta(minutes=1))], TRACES, now, slow=slow
            )
        )
        return len(await fetch(late, "select from trace_slice_mark"))

    assert [await marks_after(seconds) for seconds in (0, 10, 29, 31, 50)] == [1, 1, 1, 2, 2]
    # What may last for longer leaves one of its own.
    assert await marks_after(51, slow=True) == 3
