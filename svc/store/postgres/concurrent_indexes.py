"""Indexes built while rows come in: of a table kept by the day, one day after the other.

Called by `svc.store.postgres.migrate` for steps that say `-- concurrently` on line two; owns how such an
index comes about and what a build that was cut off leaves. Asyncio-flavoured, on one connection and outside
of any transaction.

How: the index of the whole table comes first, with nothing in it, and each day that is made from then on
brings its own along. Then each day that is there gets one, the newest first, by `create index concurrently`,
which shuts nobody out, and hands it to the index of the whole.

A build that was cut off leaves an index that is not valid. It is dropped, and built again; what is done stays
done, so that whoever comes next goes on where the last one was.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import asyncpg
import attrs

from svc.store.postgres.database import Connection
from svc.store.postgres.transactions import one_transaction

_CREATE: Final = re.compile(r"create (unique )?index (\w+) on (\w+)\s(.+)", re.DOTALL)
_MOST_NAME: Final = 63
_REST_S: Final = 1.0


@attrs.frozen
class Index:
    """What a step wants: an index of this name on a table, with the rest of its definition."""

    name: str
    table: str
    rest: str
    unique: bool

    @staticmethod
    def of(statement: str) -> Index:
        """Read `create index …`. Raises `ValueError` for any other statement."""
        match = _CREATE.fullmatch(statement)
        if match is None:
            raise ValueError(
                f"only `create index name on table …` is done concurrently, not: {statement[:80]}"
            )
        return Index(match[2], match[3], " ".join(match[4].split()), match[1] is not None)

    def create(self, how: str) -> str:
        """The statement; `how` says where, and how."""
        return f"create {'unique ' if self.unique else ''}index {how} {self.rest}"

    def of_day(self, table: str) -> str:
        """The name of the index of one day's table."""
        return f"{table}_{self.name}"[:_MOST_NAME]


async def build(connection: Connection, index: Index, *, lock_timeout_s: float, patience_s: float) -> None:
    """Build it, or finish what was begun. Raises what asyncpg raises, `LockNotAvailableError` among it."""
    briefly = _Briefly(connection, lock_timeout_s, patience_s)
    # Whether the table is kept by the day.
    if not await connection.fetchval(
        "select relkind = 'p' from pg_class where oid = $1::regclass", index.table
    ):
        await _build_one(connection, index, index.table, index.name)
        return
    await briefly.do(index.create(f"if not exists {index.name} on only {index.table}"))
    while days := await _without(connection, index):
        for day in days:
            try:
                await _build_one(connection, index, day, index.of_day(day))
                await briefly.do(f"alter index {index.name} attach partition {index.of_day(day)}")
            except asyncpg.UndefinedTableError:
                # Retention dropped the day meanwhile.
                continue
    await _made_valid(connection, index, briefly)


async def _build_one(connection: Connection, index: Index, table: str, name: str) -> None:
    # What is there of it.
    valid = await connection.fetchval(
        "select indisvalid from pg_index where indexrelid = to_regclass($1)", name
    )
    if valid is False:
        # Left by a build that was cut off.
        await connection.execute(f"drop index concurrently {name}")
    if not valid:
        await connection.execute(index.create(f"concurrently {name} on {table}"))


async def _without(connection: Connection, index: Index) -> list[str]:
    """The days whose part of the index is not there yet, the newest first."""
    rows: list[Any] = await connection.fetch(
        "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid"
        " where i.inhparent = $1::regclass and not exists (select from pg_inherits a"
        " join pg_index x on x.indexrelid = a.inhrelid"
        " where a.inhparent = $2::regclass and x.indrelid = c.oid) order by 1 desc",
        index.table,
        index.name,
    )
    return [row["relname"] for row in rows]


async def _made_valid(connection: Connection, index: Index, briefly: _Briefly) -> None:
    """The whole is valid when its last part is attached; not when the last day without one was dropped."""
    # A part of it, as long as the whole is not valid.
    part = await connection.fetchval(
        "select min(i.inhrelid::regclass::text) from pg_inherits i"
        " join pg_index x on x.indexrelid = i.inhparent"
        " where i.inhparent = $1::regclass and not x.indisvalid",
        index.name,
    )
    if part is not None:
        # To attach what is attached makes the server look again.
        await briefly.do(f"alter index {index.name} attach partition {part}")


@attrs.frozen
class _Briefly:
    """Does one statement that locks for a moment, giving way to whoever holds what it wants."""

    connection: Connection
    lock_timeout_s: float
    patience_s: float

    async def do(self, statement: str) -> None:
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self.patience_s
        while True:
            try:
                async with one_transaction(self.connection):
                    await self.connection.execute(f"set local lock_timeout = '{self.lock_timeout_s:.0f}s'")
                    await self.connection.execute(statement)
                return
            except asyncpg.LockNotAvailableError:
                if loop.time() > give_up_s:
                    raise
            await asyncio.sleep(_REST_S)
