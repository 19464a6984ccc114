"""Laws of sessions: a process asks once what types of PostgreSQL itself are, each session about others."""

from __future__ import annotations

from datetime import date
from typing import Any

import trio_asyncio

from svc.store.postgres.database import Database
from svc.store.postgres.servers import Servers

DAYS = [date(2026, 11, 1), date(2026, 11, 2)]


async def asked_about(store: Database, sql: str, value: Any) -> tuple[Any, bool]:
    """What a fresh session answers, and whether it asked the catalog for types first."""

    async def whole() -> tuple[Any, bool]:
        connection = await Servers(store.address, {}).connect()
        heard: list[str] = []
        try:
            with connection.query_logger(lambda record: heard.append(record.query)):
                return await connection.fetchval(sql, value), any("typeinfo" in query for query in heard)
        finally:
            await connection.close()

    found: tuple[Any, bool] = await trio_asyncio.aio_as_trio(whole)()
    return found


async def test_a_type_that_every_server_has_is_asked_about_once(fresh_store: Database) -> None:
    await asked_about(fresh_store, "select $1::date[]", DAYS)
    for _ in range(2):
        assert await asked_about(fresh_store, "select $1::date[]", DAYS) == (DAYS, False)


async def test_a_type_of_this_server_alone_is_asked_about_each_time(fresh_store: Database) -> None:
    for labels in (["a", "b"], ["b", "c"]):
        words = ", ".join(f"'{label}'" for label in labels)
        await fresh_store.fetch(f"create type letter as enum ({words})")
        for _ in range(2):
            assert await asked_about(fresh_store, "select $1::letter[]", labels) == (labels, True)
        await fresh_store.fetch("drop type letter")
