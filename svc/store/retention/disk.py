"""What lies on disk: by table and day, and what a project's share of it would free.

Called by the pages of health and of retention. Sizes are what PostgreSQL says of its files, so they are
exact; shares are estimates by the number of spans, and pages call them so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

import attrs

from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.partitions import DAILY

#: Tables beside the daily ones that are listed; the rest is summed up.
OTHERS_SHOWN: Final = 8
#: Over how many whole days what comes in is averaged.
AVERAGED_DAYS: Final = 7

# Every partition of the daily tables: its table, its day (null for the default one), bytes, and about how
# many rows. A handful of catalogue rows a day.
_PARTS: Final = """
select p.relname as table_name, substring(c.relname from '_([0-9]{8})$') as day,
    pg_total_relation_size(c.oid) as bytes,
    greatest(c.reltuples::bigint, pg_stat_get_live_tuples(c.oid), 0) as n
from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
where p.relname = any($1::text[]) and pg_table_is_visible(p.oid)
"""
# The largest tables of ours that are not kept by the day.
_OTHERS: Final = """
select c.relname as table_name, pg_total_relation_size(c.oid) as bytes from pg_class c
where c.relkind = 'r' and pg_table_is_visible(c.oid) and c.relnamespace = current_schema()::regnamespace
  and not exists (select from pg_inherits i where i.inhrelid = c.oid)
order by 2 desc, 1
"""
# A project's spans and traces that began before a moment, and in a stretch of time.
_BEFORE: Final = """
select count(*) as traces, coalesce(sum(span_count), 0)::bigint as spans from trace
where project_id = $1 and started_at < $2
"""
_WITHIN: Final = """
select count(*) as traces, coalesce(sum(span_count), 0)::bigint as spans from trace
where project_id = $1 and started_at >= $2 and started_at < $3
"""


@attrs.frozen
class TableOnDisk:
    """One table kept by the day: all of it, and each of its days, newest first."""

    name: str
    bytes: int
    days: Mapping[date, int]
    #: Rows of times outside of the kept days.
    default_bytes: int


@attrs.frozen
class Disk:
    """The whole database, its daily tables, and the largest of the others."""

    bytes: int
    tables: Sequence[TableOnDisk]
    others: Sequence[tuple[str, int]]
    others_bytes: int
    #: About how many spans lie in each day, those without a day under None.
    spans: Mapping[date | None, int]

    @property
    def days(self) -> list[date]:
        """Every day that any table has, newest first."""
        return sorted({day for table in self.tables for day in table.days}, reverse=True)

    def on(self, day: date) -> int:
        """Bytes of a day over all tables."""
        return sum(table.days.get(day, 0) for table in self.tables)

    @property
    def bytes_per_span(self) -> float | None:
        """What a span takes, with its payload; None while there are none."""
        spans = sum(self.spans.values())
        return sum(table.bytes for table in self.tables) / spans if spans else None


@attrs.frozen
class HeldTraces:
    """Traces and spans of a project."""

    traces: int
    spans: int


@attrs.define(eq=False)
class DiskReads:
    """Reads for pages. All verbs raise `Outage`."""

    database: Database

    async def now(self) -> Disk:
        """What lies on disk."""

        async def work(connection: Connection) -> tuple[int, list[Any], list[Any]]:
            # The files of the whole database.
            database_bytes: int = await connection.fetchval("select pg_database_size(current_database())")
            return (
                database_bytes,
                await connection.fetch(_PARTS, list(DAILY)),
                await connection.fetch(_OTHERS),
            )

        database_bytes, parts, other_rows = await self.database.run(
            work, readonly=True, timeout_s=READ_TIMEOUT_S
        )
        spans: dict[date | None, int] = {}
        sizes_by_table: dict[str, dict[date | None, int]] = {name: {} for name in DAILY}
        for row in parts:
            day = None if row["day"] is None else date.fromisoformat(row["day"])
            sizes_by_table[row["table_name"]][day] = row["bytes"]
            if row["table_name"] == "span":
                spans[day] = row["n"]
        tables = [
            TableOnDisk(
                name,
                sum(sizes.values()),
                {day: size for day, size in sizes.items() if day is not None},
                sizes.get(None, 0),
            )
            for name, sizes in sizes_by_table.items()
        ]
        other_tables = [(row["table_name"], row["bytes"]) for row in other_rows]
        return Disk(
            database_bytes,
            tables,
            other_tables[:OTHERS_SHOWN],
            sum(size for _, size in other_tables[OTHERS_SHOWN:]),
            spans,
        )

    async def before(self, project_id: int, moment: datetime) -> HeldTraces:
        """What a project holds of traces that began before a moment: it reads as many rows as there are."""
        rows = await self.database.fetch(_BEFORE, project_id, moment, timeout_s=READ_TIMEOUT_S)
        return HeldTraces(rows[0]["traces"], rows[0]["spans"])

    async def a_day(self, project_id: int, today: datetime) -> HeldTraces:
        """What comes into a project on a day, by the mean of the last whole ones. `today`: its midnight."""
        since = today - timedelta(days=AVERAGED_DAYS)
        rows = await self.database.fetch(_WITHIN, project_id, since, today, timeout_s=READ_TIMEOUT_S)
        return HeldTraces(round(rows[0]["traces"] / AVERAGED_DAYS), round(rows[0]["spans"] / AVERAGED_DAYS))
