"""Day partitions of the tables that traffic fills.

Owns which days exist. The partitioner makes days ahead; a write makes the day it needs if it is missing; the
retention sweep drops days that have expired.

Ordering: rows of a day may already stand in the default partition (a clock that ran ahead, or kept rows of a
dropped day). Making the day moves them in the same transaction, so that a row is always in exactly one place.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Final

import attrs

from svc.store.postgres.database import Connection, Database

#: Tables partitioned by day of started_at. Identifiers in SQL come from this list and from dates.
DAILY: Final = ("span", "span_payload", "span_message", "tool_call")

#: Days made ahead of time, counted from today; yesterday too, for spans around midnight.
AHEAD: Final = range(-1, 4)

#: Times further away than this go to the default partition.
WINDOW_BACK_DAYS: Final = 400
WINDOW_AHEAD_DAYS: Final = 3

_LOCK: Final = 0x7061_7274


def in_window(day: date, today: date) -> bool:
    """Whether a day gets a partition of its own."""
    return -WINDOW_BACK_DAYS <= (day - today).days <= WINDOW_AHEAD_DAYS


@attrs.define(eq=False)
class DayPartitions:
    """Makes partitions and remembers which days it knows to exist. Implements the `Calendar` port."""

    database: Database
    _known: set[date] = attrs.field(factory=set)

    async def make_days(self, today: datetime) -> int:
        """Make the days ahead. Returns how many were new."""
        return await self.ensure((today.date() + timedelta(days=offset) for offset in AHEAD), today)

    def unknown(self, days: Iterable[date]) -> set[date]:
        """Those of the days that are not known to have a partition, or to need none."""
        return {day for day in days if day not in self._known}

    async def ensure(self, days: Iterable[date], now: datetime) -> int:
        """Make the partitions of these days where they are missing and inside the window."""
        today = now.date()
        missing = sorted(day for day in self.unknown(days) if in_window(day, today))
        made = 0
        for day in missing:
            made += await self.database.run(lambda connection, day=day: _make(connection, day))  # type: ignore[misc]
            self._known.add(day)
        return made


def partition(table: str, day: date) -> str:
    """The name of a day's partition. `table` comes from `DAILY`."""
    return f"{table}_{day:%Y%m%d}"


def midnight(day: date) -> datetime:
    """The beginning of a day, UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


async def existing(connection: Connection) -> list[tuple[str, date]]:
    """Every day's partition that there is: its table and its day, oldest first."""
    # The attached partitions by their names; the default ones carry no date.
    rows = await connection.fetch(
        "select p.relname as parent, right(c.relname, 8) as day from pg_inherits i"
        " join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent"
        " where p.relname = any($1::text[]) and pg_table_is_visible(p.oid)"
        " and c.relname ~ '_[0-9]{8}$' order by 2, 1",
        list(DAILY),
    )
    return [(row["parent"], date.fromisoformat(row["day"])) for row in rows]


async def lock_days(connection: Connection) -> None:
    """Let nobody else make or drop partitions until the end of this transaction."""
    # One process at a time; the lock ends with the transaction.
    await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)


async def columns_of(connection: Connection, table: str) -> str:
    """The columns of a table, for moves of whole rows: partitions need not have them in one order."""
    # Those that are there, in the order of the parent.
    columns: str = await connection.fetchval(
        "select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute"
        " where attrelid = $1::text::regclass and attnum > 0 and not attisdropped",
        table,
    )
    return columns


async def _make(connection: Connection, day: date) -> int:
    await lock_days(connection)
    made = 0
    for table in DAILY:
        name = partition(table, day)
        if await connection.fetchval("select to_regclass($1)", name) is not None:
            continue
        low = midnight(day)
        high = low + timedelta(days=1)
        # The new table is filled before it is attached: attaching an existing table takes a weaker lock on
        # the parent than creating a partition in place would, so ingest goes on meanwhile.
        await connection.execute(f"create table {name} (like {table} including all)")
        columns = await columns_of(connection, table)
        await connection.execute(
            f"with moved as (delete from {table}_default where started_at >= $1 and started_at < $2"
            f" returning {columns}) insert into {name} ({columns}) select {columns} from moved",
            low,
            high,
        )
        await connection.execute(
            f"alter table {table} attach partition {name}"
            f" for values from ('{low.isoformat()}') to ('{high.isoformat()}')"
        )
        made += 1
    return made
