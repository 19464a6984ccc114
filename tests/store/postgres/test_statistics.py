"""Laws of young tables: they are looked at before many rows are in them, once, and queues never."""

from __future__ import annotations

from datetime import date, timedelta

from svc.store.postgres import statistics
from svc.store.postgres.database import Database
from svc.store.postgres.partitions import DayPartitions, partition
from svc.store.postgres.statistics import SPANS, YoungTables
from svc.store.spans.trace_rollups import SPAN_FIELDS
from tests.store.spans.test_writing import NOW, PROJECT, fetch, one, rows, store_of

DAY = NOW.date()


async def known_rows(store: Database, *tables: str) -> dict[str, float]:
    """What PostgreSQL takes each table's number of rows to be; -1 where it never looked."""
    found = await fetch(
        store, "select relname, reltuples from pg_class where relname = any($1::text[])", list(tables)
    )
    return {row["relname"]: row["reltuples"] for row in found}


async def test_the_tables_of_a_new_day_are_known_after_its_first_thousand_spans(store: Database) -> None:
    writer, spans, tables = store_of(store), partition("span", DAY), ("trace", "session", "trace_due")
    made = rows(*(one(n, trace_id=n.to_bytes(16, "big")) for n in range(1, SPANS[0] + 1)))
    await writer.write(made[:-1])
    assert set((await known_rows(store, spans, *tables)).values()) == {-1}
    await writer.write(made[-1:])
    # The session and the payloads of nobody stay unknown, and so does the queue.
    assert await known_rows(store, spans, *tables) == {
        spans: SPANS[0],
        "trace": SPANS[0],
        "session": -1,
        "trace_due": -1,
    }
    # So a plan for any trace goes by its key, whatever else begins with the project.
    plan = await fetch(
        store,
        f"explain select {SPAN_FIELDS} from span where project_id = $1 and trace_id = $2"
        " and started_at between $3 and $4",
        *(PROJECT, bytes(16), NOW, NOW + timedelta(minutes=1)),
    )
    assert any(f"{spans}_pkey" in row["QUERY PLAN"] for row in plan), plan


async def test_a_table_is_looked_at_again_only_where_it_has_grown(store: Database) -> None:
    await DayPartitions(store).make_days(NOW)
    young = YoungTables(store)
    await store_of(store).write(rows(*(one(n, trace_id=n.to_bytes(16, "big")) for n in range(1, 50))))
    await young.count([DAY] * SPANS[0])
    looked = "select relname, last_analyze from pg_stat_user_tables where last_analyze is not null order by 1"
    before = await fetch(store, looked)
    assert partition("span", DAY) in {row["relname"] for row in before}
    await young.count([DAY] * SPANS[1])
    assert await fetch(store, looked) == before


async def test_days_that_nobody_made_harm_no_writer(store: Database) -> None:
    young = YoungTables(store)
    await young.count([date(1999, 1, 1)] * SPANS[0])
    assert not await fetch(store, "select from pg_stat_user_tables where last_analyze is not null")


async def test_the_days_that_are_counted_are_bounded(store: Database) -> None:
    young = YoungTables(store)
    days = [DAY + timedelta(days=n) for n in range(statistics._MOST_DAYS + 1)]
    await young.count(days[:-1])
    assert len(young._spans) == statistics._MOST_DAYS
    await young.count(days)
    assert not young._spans
