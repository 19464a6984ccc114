"""Migrations: from empty, from each earlier state, by several at once, and never backwards."""

from __future__ import annotations

import pytest
import trio

from svc.store.database import Connection, Database
from svc.store.migrate import SchemaTooNew, migrate, migrations

STEPS = [step.number for step in migrations()]


async def schema(database: Database) -> list[tuple[object, ...]]:
    """Every table, column and index, in order."""

    async def work(connection: Connection) -> list[tuple[object, ...]]:
        columns = await connection.fetch(
            "select table_name::text, column_name::text, data_type::text, is_nullable::text"
            " from information_schema.columns"
            " where table_schema = 'public' order by 1, 2"
        )
        indexes = await connection.fetch(
            "select tablename::text, indexname::text, indexdef from pg_indexes"
            " where schemaname = 'public' order by 1, 2"
        )
        return [tuple(row.values()) for row in [*columns, *indexes]]

    return await database.run(work)


async def test_an_empty_database_is_brought_to_the_newest_step(empty_database: Database) -> None:
    assert await migrate(empty_database) == STEPS


async def test_migrating_twice_changes_nothing(store: Database) -> None:
    before = await schema(store)
    assert await migrate(store) == []
    assert await schema(store) == before


@pytest.mark.parametrize("earlier", STEPS[:-1] or [0])
async def test_every_earlier_state_reaches_the_schema_of_an_empty_start(
    empty_database: Database, store: Database, earlier: int
) -> None:
    await migrate(empty_database, up_to=earlier)
    assert await migrate(empty_database) == [number for number in STEPS if number > earlier]
    assert await schema(empty_database) == await schema(store)


async def test_several_at_once_apply_each_step_once(empty_database: Database) -> None:
    applied: list[int] = []

    async def one() -> None:
        applied.extend(await migrate(empty_database))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(one)
    assert sorted(applied) == STEPS


async def test_a_schema_from_the_future_is_left_alone(store: Database) -> None:
    async def work(connection: Connection) -> None:
        await connection.execute("insert into schema_migration values (9999, 'later', 'x')")

    await store.run(work)
    with pytest.raises(SchemaTooNew, match="9999"):
        await migrate(store)
