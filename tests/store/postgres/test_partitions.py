"""Laws of day partitions: within the longest term, a few in a write, the others one by one."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from functools import partial

import pytest
import trio

from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import DAILY, MADE_BY_A_WRITE, DayPartitions, existing

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TODAY = NOW.date()


async def made(store: Database) -> list[date]:
    """The days that have a partition."""
    return [day for table, day in await store.run(existing) if table == "span"]


def back(*days: int) -> list[date]:
    return [TODAY - timedelta(days=day) for day in days]


async def test_only_days_within_the_longest_term_and_one_ahead_are_made(store: Database) -> None:
    days = DayPartitions(store, 30)
    await days.ensure(back(400, 31, 30, 2, -1, -2, -300), NOW)
    assert await made(store) == back(30, 2, -1)


async def test_a_project_that_keeps_for_longer_widens_it_and_for_ever_is_bounded(store: Database) -> None:
    async def keep(connection: Connection) -> None:
        await connection.execute("insert into retention_override (project_id, trace_ttl_days) values (1, 60)")

    await store.run(keep)
    await DayPartitions(store, 30).ensure(back(61, 60), NOW)
    assert await made(store) == back(60)
    await DayPartitions(store, 0).ensure(back(401, 400), NOW)
    assert await made(store) == back(400, 60)


async def test_a_write_makes_a_few_days_however_many_it_brings(store: Database) -> None:
    days = DayPartitions(store, 90)
    assert await days.ensure_some(back(*range(-1, 90)), NOW) == MADE_BY_A_WRITE * len(DAILY)
    assert await made(store) == back(0, -1)


async def test_days_that_a_write_left_are_made_one_by_one_and_take_their_rows(store: Database) -> None:
    days = DayPartitions(store, 30)

    async def lay(connection: Connection) -> None:
        for number, day in enumerate(back(40, 5, 3), 1):
            await connection.execute(
                "insert into span (project_id, trace_id, span_id, started_at, created_at, kind, name, status,"
                " cost_source, frame, call_site_id, tagged)"
                " values (1, $1, $2, $3, now(), 'step', 'n', 'ok', 'unpriced', 1, 'c', false)",
                bytes([number]) * 16,
                bytes([number]) * 8,
                datetime(day.year, day.month, day.day, 7, tzinfo=UTC),
            )

    await store.run(lay)
    # What lies there would have to be moved, which is no write's business.
    assert await days.ensure_some(back(5), NOW) == 0
    assert [await days.bring_home(NOW) for _ in range(3)] == [True, True, False]
    assert await made(store) == back(5, 3)
    (left,) = await store.fetch("select count(*) as n from span_default")
    assert left["n"] == 1


@pytest.mark.parametrize("held", [f"{table}_default" for table in DAILY])
async def test_who_reads_one_table_of_a_day_that_is_made_reads_the_others_too(
    store: Database, held: str
) -> None:
    is_held = trio.Event()

    async def read(connection: Connection) -> None:
        await connection.execute("set local lock_timeout = '5s'")
        await connection.execute(f"select from {held} limit 1")
        is_held.set()
        while not await connection.fetchval(  # noqa: ASYNC110 - a lock that is waited for is no event
            "select exists (select from pg_locks l join pg_database d on d.oid = l.database"
            " where d.datname = current_database() and mode = 'AccessExclusiveLock' and not granted)"
        ):
            await asyncio.sleep(0.01)
        for table in DAILY:
            await connection.execute(f"select from {table}_default limit 1")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(store.run, read, readonly=True))
        await is_held.wait()
        nursery.start_soon(DayPartitions(store, 30).ensure, back(3), NOW)
    assert await made(store) == back(3)
