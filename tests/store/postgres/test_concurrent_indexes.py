"""Indexes that a step builds while rows come in: day by day, resumable, never twice."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio
import trio_asyncio

from protocol.storage import Outage
from svc.store.postgres import migrate as migrate_module
from svc.store.postgres.concurrent_indexes import Index
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.migrate import Migration, migrate, migrations
from svc.store.postgres.partitions import DAILY, DayPartitions
from svc.store.postgres.statements import statements

TODAY = datetime(2026, 11, 20, 12, tzinfo=UTC)
NAME = "span_by_user"
STEP = Migration(
    9000,
    "by_user",
    f"-- expand\n-- concurrently\n-- Spans of a user.\ncreate index {NAME} on span (project_id, user_id)\n"
    "    where user_id is not null;\n",
)

_INSERT = (
    "insert into span (project_id, trace_id, span_id, started_at, kind, name, status, created_at,"
    " call_site_id, tagged, frame) values (1, $1, $1, $2, 'llm', 'chat', 'ok', $2, 'c', false, 1)"
)


@pytest.fixture
def one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release with one more step than this one."""
    steps = [*migrations(), STEP]
    monkeypatch.setattr(migrate_module, "migrations", lambda: steps)


async def _with_days(database: Database) -> None:
    await DayPartitions(database).make_days(TODAY)


async def _built(database: Database) -> dict[str, tuple[int, bool]]:
    """By table that has a part of it: the number of that index, and whether it is valid."""
    rows = await database.fetch(
        "select x.indrelid::regclass::text as part, x.indexrelid::bigint as oid, x.indisvalid"
        " from pg_index x join pg_class c on c.oid = x.indexrelid"
        " left join pg_inherits i on i.inhrelid = c.oid"
        " where c.relname = $1 or c.relname like '%' || $1 or i.inhparent = to_regclass($1)",
        NAME,
    )
    return {row["part"]: (row["oid"], row["indisvalid"]) for row in rows}


def _parts() -> set[str]:
    days = [TODAY + timedelta(days=offset) for offset in (-1, 0, 1)]
    return {"span", "span_default", *(f"span_{day:%Y%m%d}" for day in days)}


async def test_every_day_gets_it_and_days_made_later_have_it(store: Database, one_more: None) -> None:
    await _with_days(store)
    assert await migrate(store) == [9000]
    assert await migrate(store) == []
    await DayPartitions(store).make_days(TODAY + timedelta(days=1))
    built = await _built(store)
    assert set(built) == _parts() | {f"span_{TODAY + timedelta(days=2):%Y%m%d}"}
    assert all(valid for _, valid in built.values())


class _Writer:
    """Somebody who writes into a day and does not come to an end: a build waits for them."""

    def __init__(self, database: Database) -> None:
        self._database, self._held, self._enough = database, trio.Event(), trio.Event()

    async def __call__(self, *, task_status: trio.TaskStatus[trio.Event]) -> None:
        async def work(connection: Connection) -> None:
            # What writing takes, of the day alone: what locks the whole for a moment has an easy time.
            await connection.execute(f"lock table span_{TODAY:%Y%m%d} in row exclusive mode")
            await trio_asyncio.trio_as_aio(_set)(self._held)
            await trio_asyncio.trio_as_aio(self._enough.wait)()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._database.run, work)
            await self._held.wait()
            task_status.started(self._enough)


async def _set(event: trio.Event) -> None:
    event.set()


async def _building(database: Database) -> int:
    """Wait until somebody builds the part of today; the process of the server that does."""
    while True:
        rows = await database.fetch(
            "select pid from pg_stat_progress_create_index where relid = $1::regclass"
            " and phase like 'waiting%'",
            f"span_{TODAY:%Y%m%d}",
        )
        if rows:
            pid: int = rows[0]["pid"]
            return pid
        await trio.sleep(0.02)


async def test_rows_and_days_come_in_while_it_is_built(store: Database, one_more: None) -> None:
    await _with_days(store)
    applied: list[int] = []

    async def migrates() -> None:
        applied.extend(await migrate(store))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            enough = await nursery.start(_Writer(store))
            nursery.start_soon(migrates)
            await _building(store)
            for number in range(2, 10):
                await store.fetch(_INSERT, bytes([number]) * 16, TODAY, timeout_s=5)
            await DayPartitions(store).make_days(TODAY + timedelta(days=1))
            assert applied == []
            enough.set()
    assert applied == [9000]
    built = await _built(store)
    assert len(built) == 6
    assert all(valid for _, valid in built.values())
    assert (await store.fetch("select count(*) as n from span"))[0]["n"] == 8


async def test_a_build_that_is_cut_off_is_gone_on_with(store: Database, one_more: None) -> None:
    await _with_days(store)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            enough = await nursery.start(_Writer(store))

            async def cut_off() -> None:
                with pytest.raises(Outage):
                    await migrate(store)

            async with trio.open_nursery() as cut:
                cut.start_soon(cut_off)
                pid = await _building(store)
                await store.fetch("select pg_terminate_backend($1)", pid)
            enough.set()
    before = await _built(store)
    today, tomorrow = (f"span_{TODAY + timedelta(days=more):%Y%m%d}" for more in (0, 1))
    assert before[today][1] is False
    assert before[tomorrow][1] is True
    assert await migrate(store) == [9000]
    after = await _built(store)
    assert set(after) == _parts()
    assert all(valid for _, valid in after.values())
    # The one that was not valid was built anew, and what was done stayed.
    assert after[today][0] != before[today][0]
    assert after[tomorrow] == before[tomorrow]


async def test_several_at_once_build_it_once_and_wait_for_one_another(
    store: Database, one_more: None
) -> None:
    await _with_days(store)
    applied: list[list[int]] = []

    async def migrates() -> None:
        applied.append(await migrate(store))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            enough = await nursery.start(_Writer(store))
            for _ in range(3):
                nursery.start_soon(migrates)
            await _building(store)
            enough.set()
    assert sorted(applied) == [[], [], [9000]]


async def test_a_day_that_retention_drops_meanwhile_is_left_out(store: Database, one_more: None) -> None:
    await _with_days(store)
    yesterday = f"span_{TODAY - timedelta(days=1):%Y%m%d}"
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            enough = await nursery.start(_Writer(store))
            nursery.start_soon(migrate, store)
            await _building(store)
            await store.fetch(f"drop table {yesterday}")
            enough.set()
    built = await _built(store)
    assert set(built) == _parts() - {yesterday}
    assert all(valid for _, valid in built.values())


async def test_a_table_without_days_gets_it_whole(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = f"-- expand\n-- concurrently\ncreate unique index {NAME} on trace (trace_id, project_id);"
    steps = [*migrations(), Migration(9000, "x", sql)]
    monkeypatch.setattr(migrate_module, "migrations", lambda: steps)
    assert await migrate(store) == [9000]
    assert {part: valid for part, (_, valid) in (await _built(store)).items()} == {"trace": True}


@pytest.mark.parametrize("other", ["alter table span add column x int", "create index on span (name)"])
def test_a_step_that_builds_concurrently_does_nothing_else(other: str) -> None:
    with pytest.raises(ValueError, match="only `create index name on table"):
        Index.of(other)
    assert Migration(1, "x", f"-- expand\n-- concurrently\n{other}").concurrent
    assert not Migration(1, "x", f"-- expand\n-- Concurrently, he said.\n{other}").concurrent


#: Steps up to this one came before there was such a way.
_BEFORE = 110


def test_a_step_builds_indexes_of_what_traffic_fills_while_rows_come_in() -> None:
    """A table that the step makes itself has no rows."""
    for step in migrations():
        made: set[Any] = set(re.findall(r"create table (\w+)", step.sql))
        for statement in statements(step.sql):
            found = re.match(r"create (?:unique )?index (\w+) on (\w+)", statement)
            if found and step.number > _BEFORE and found[2] in {*DAILY, "trace"} - made:
                assert step.concurrent, f"{found[1]} of step {step.number} shuts writers of {found[2]} out"


def test_statements_are_told_apart_whatever_they_quote() -> None:
    sql = (
        "-- a; b\nselect ';', \"a;b\" /* c; */ ;\n"
        "create function f() as $x$ begin; $y$ end; $x$;\n\nselect 1 - 2"
    )
    assert statements(sql) == [
        "select ';', \"a;b\"",
        "create function f() as $x$ begin; $y$ end; $x$",
        "select 1 - 2",
    ]
    for step in migrations():
        assert statements(step.sql)
