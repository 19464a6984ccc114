"""Day partitions of the tables that traffic fills.

Owns which days exist: those that somebody's term of retention still covers, up to one day ahead. What lies
outside goes to the default partitions, or a clock that is wrong would make four tables for each day it names
(a write key made 1,612, measured 2026-11). The partitioner makes the days ahead; a write makes a few of those
it needs and leaves the others to the partitioner, which brings their rows home, a day at a time; the
retention sweep drops days that have expired.

Ordering: rows of a day may already stand in the default partition (a clock that ran ahead, or kept rows of a
dropped day). Making a table of the day moves them in the same transaction, so that a row is always in exactly
one place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

import asyncpg
import attrs

from svc.store.postgres.database import Connection, Database

log = logging.getLogger(__name__)

#: Tables partitioned by day of started_at. Identifiers in SQL come from this list and from dates.
DAILY: Final = ("span", "span_payload", "span_message", "tool_call")

#: Days made ahead of time, counted from today; yesterday too, for spans around midnight.
AHEAD: Final = range(-1, 2)

#: How far back a day gets a partition where traces are kept for longer, or for ever.
WINDOW_BACK_DAYS: Final = 400
WINDOW_AHEAD_DAYS: Final = 1

#: Days that one write may make: each is four tables, made while the write waits.
MADE_BY_A_WRITE: Final = 2

_LOCK: Final = 0x7061_7274


def in_window(day: date, today: date, back_days: int = WINDOW_BACK_DAYS) -> bool:
    """Whether a day gets a partition of its own."""
    return -back_days <= (day - today).days <= WINDOW_AHEAD_DAYS


@attrs.define(eq=False)
class DayPartitions:
    """Makes partitions and remembers which days it knows to exist. Implements the `Calendar` port.

    `term_days` is the install's term of retention for traces; 0 is for ever. All verbs raise `Outage`.
    """

    database: Database
    term_days: int = 0
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
        if any(day - today < timedelta(days=AHEAD.start) for day in missing):
            back_days = await self.database.run(self._longest_term)
            missing = [day for day in missing if in_window(day, today, back_days)]
        count = 0
        for day in missing:
            try:
                count += await make_day(self.database, day)
            except asyncpg.CheckViolationError:
                # Between the move and the attaching somebody wrote rows of that day to the default partition.
                # Ours go there too; `bring_home` fetches them all.
                log.info("postponed the partition of %s: rows arrived meanwhile", day)
                continue
            self._known.add(day)
        return count

    async def ensure_some(self, days: Iterable[date], now: datetime) -> int:
        """Within a write: make a few of these days, the newest first, and none that has rows to be moved.

        Rows of the others go to the default partition, from where `bring_home` fetches them.
        """
        today = now.date()
        missing = sorted((day for day in self.unknown(days) if in_window(day, today)), reverse=True)
        existing_days = await self.database.run(_existing_days) if missing else set()
        self._known |= existing_days
        lying = await self.database.run(lambda connection: _lying(connection, missing)) if missing else set()
        near = {today + timedelta(days=offset) for offset in AHEAD}
        makable = [day for day in missing if day not in existing_days and (day in near or day not in lying)]
        return await self.ensure(makable[:MADE_BY_A_WRITE], now)

    async def bring_home(self, today: datetime) -> bool:
        """Make one day whose rows lie in the default partition. Returns whether there was one."""
        back_days = await self.database.run(self._longest_term)
        low = midnight(today.date() - timedelta(days=back_days))
        high = midnight(today.date() + timedelta(days=WINDOW_AHEAD_DAYS + 1))
        # The day that will expire first.
        rows = await self.database.fetch(
            "select min(started_at) as oldest from span_default where started_at >= $1 and started_at < $2",
            low,
            high,
        )
        if (lying := rows[0]["oldest"]) is None:
            return False
        await make_day(self.database, lying.date())
        self._known.add(lying.date())
        return True

    async def _longest_term(self, connection: Connection) -> int:
        # The longest that any project keeps its traces; none sets anything as a rule, and 0 is for ever.
        row = await connection.fetchrow(
            "select max(trace_ttl_days) as longest, bool_or(trace_ttl_days = 0) as for_ever"
            " from retention_override"
        )
        assert row is not None, "an aggregate has a row"
        if not self.term_days or row["for_ever"]:
            return WINDOW_BACK_DAYS
        return min(max(self.term_days, row["longest"] or 0), WINDOW_BACK_DAYS)


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


async def _existing_days(connection: Connection) -> set[date]:
    return {day for table, day in await existing(connection) if table == DAILY[0]}


async def _lying(connection: Connection, days: Sequence[date]) -> set[date]:
    """Those of the days that have spans in the default partition."""
    # One look for each.
    rows = await connection.fetch(
        "select day from unnest($1::date[]) as asked (day) where exists (select from span_default"
        " where started_at >= day::timestamp at time zone 'UTC'"
        " and started_at < (day + 1)::timestamp at time zone 'UTC')",
        list(days),
    )
    return {row["day"] for row in rows}


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


async def make_day(database: Database, day: date) -> int:
    """Make the tables of a day that are missing, with the rows that lie in the default ones. Raises `Outage`.

    Ordering: a transaction for each table. Attaching keeps readers away from one default partition; who kept
    them away from two would wait for a reader who waits in turn (13 of 37 reads failed so while days of the
    past came in, December 2026). Spans are last, so a day that has them has all of it.
    """
    count = 0
    for table in reversed(DAILY):
        count += await database.run(lambda connection, table=table: _make_table(connection, table, day))  # type: ignore[misc]
    return count


async def _make_table(connection: Connection, table: str, day: date) -> bool:
    await lock_days(connection)
    name = partition(table, day)
    if await connection.fetchval("select to_regclass($1)", name) is not None:
        return False
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
    return True
