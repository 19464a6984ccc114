"""Databases that tests use one after the other: what a test wrote is taken out, the schema stays.

Called by the `store` fixture. Copying 590 files of a template took three times as much of a core as what most
tests do with them. A database that a test changed otherwise, or filled, is never used again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import asyncpg

from protocol.database_address import Address

T = TypeVar("T")

#: More than this is quicker thrown away.
_BOUND_BYTES: Final = 16 * 1024 * 1024
#: Whatever is no row of a table: objects, their order of making, switched triggers, settings.
_SHAPE: Final = """
select array[
    (select concat(count(*), ' ', max(oid)) from pg_class),
    (select concat(count(*), ' ', max(oid)) from pg_proc),
    (select concat(count(*), ' ', max(oid)) from pg_constraint),
    (select concat(count(*), ' ', string_agg(tgenabled::text, '' order by oid)) from pg_trigger),
    (select concat(count(*), ' ', sum(atttypid::bigint), ' ', sum(attnum)) from pg_attribute),
    (select concat(count(*), ' ', sum(length(setconfig::text))) from pg_db_role_setting),
    (select string_agg(s::text, ' ' order by s::text) from schema_migration s)
]
"""
_USED: Final = """
select quote_ident(relname) from pg_class
where relkind = 'r' and relnamespace = 'public'::regnamespace and relname <> 'schema_migration'
    and pg_relation_size(oid) > 0
"""
#: Tables of days, which writes make.
_DAYS: Final = """
select string_agg(oid::regclass::text, ', ') from pg_class
where relkind = 'r' and relnamespace = 'public'::regnamespace and relname ~ '^[a-z_]+_[0-9]{8}$'
"""
_REWIND: Final = """
select setval(quote_ident(sequencename)::regclass, start_value, false) from pg_sequences
where schemaname = 'public' and last_value is not null
"""
_END_OTHERS: Final = """
select pg_terminate_backend(pid, 10000) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


class Upkeep:
    """Connections of a thread and a loop of their own, one a database, which outlive the tests.

    A session of its own for each emptying found every catalog cold, which cost the server 7 ms a test
    (November 2026).
    """

    def __init__(self) -> None:
        # The loop that trio-asyncio lends elsewhere belongs to one test.
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._kept: dict[str, Any] = {}

    def begin(self, address: Address, work: Callable[[Any], Awaitable[T]]) -> Future[T]:
        """Do something on the connection to a database."""

        async def whole() -> T:
            kept = self._kept.get(address.database)
            if kept is None or kept.is_closed():
                (name, port), *_ = address.hosts
                kept = self._kept[address.database] = await asyncpg.connect(
                    host=name,
                    port=port,
                    user=address.user,
                    password=address.password,
                    database=address.database,
                )
            return await work(kept)

        return asyncio.run_coroutine_threadsafe(whole(), self._loop)

    def forget(self, address: Address) -> Future[None]:
        """End the connection to a database, if there is one."""

        async def whole() -> None:
            if (kept := self._kept.pop(address.database, None)) is not None:
                await kept.close()

        return asyncio.run_coroutine_threadsafe(whole(), self._loop)

    def stop(self) -> None:
        """End all connections and the thread."""

        async def whole() -> None:
            while self._kept:
                await self._kept.popitem()[1].close()

        asyncio.run_coroutine_threadsafe(whole(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


async def shape(connection: Any) -> list[str]:
    """What a database is, but for its rows."""
    return list(await connection.fetchval(_SHAPE))


async def emptied(connection: Any, fresh: list[str]) -> bool:
    """Take out what a test wrote. False when the database has not the shape that it had `fresh`."""
    await connection.execute(_END_OTHERS)
    if days := await connection.fetchval(_DAYS):
        await connection.execute(f"drop table {days}")
    if await connection.fetchval("select pg_database_size(current_database())") > _BOUND_BYTES:
        return False
    if await shape(connection) != fresh:
        return False
    if used := [table for (table,) in await connection.fetch(_USED)]:
        # Foreign keys are not followed: everything goes.
        deletes = "; ".join(f"delete from {table}" for table in used)
        await connection.execute(f"begin; set local session_replication_role = replica; {deletes}; commit")
        # Rows lie in the order of their writing, as in a new table.
        await connection.execute(f"vacuum (truncate) {', '.join(used)}")
    await connection.execute(_REWIND)
    return True
