"""Expiry of what traffic fills: days dropped whole, days thinned row by row, the default partitions.

Called by the retention sweep. The plan of a day is a handful of index look-ups, however many rows it has: who
still needs it, which hours of it the cubes have counted. Ingest never waits for more than `LOCK_WAIT`.

Ordering: a drop marks the hours that it changes for the cubes in its own transaction, and moves the rows that
an open finding cites to the default partition, where every read finds them as before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final

import asyncpg
import trio

from protocol.inflate import Unreadable
from protocol.storage import Freed
from svc.domain.intake.packing import Frame
from svc.domain.queries.datasets import SPANS, TOOL_CALLS, Dataset
from svc.store.aggregates.closed_hours import HOUR, mark_dirty
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import columns_of, lock_days, midnight, partition
from svc.store.postgres.transactions import one_transaction

log = logging.getLogger(__name__)

#: A drop needs its table for itself for a moment. It asks this long, so that no writer waits longer behind
#: it, and asks again later.
LOCK_WAIT: Final = "300ms"
LOCK_TRIES: Final = 20
LOCK_PAUSE_S: Final = 1.0

#: Rows looked at in one transaction, and the pause after it that leaves the disk to others.
BATCH_ROWS: Final = 5_000
BATCH_PAUSE_S: Final = 0.05
STEP_TIMEOUT_S: Final = 120.0

DAY: Final = timedelta(days=1)

#: The key of each table behind project_id, in the order of its primary key.
_KEYS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "span": (("trace_id", "bytea"), ("span_id", "bytea"), ("started_at", "timestamptz")),
    "span_payload": (("trace_id", "bytea"), ("started_at", "timestamptz"), ("frame", "bigint")),
    "span_message": (("hash", "bytea"), ("started_at", "timestamptz")),
    "tool_call": (
        ("trace_id", "bytea"),
        ("span_id", "bytea"),
        ("index", "integer"),
        ("started_at", "timestamptz"),
    ),
}
#: The tables whose rows the cubes count.
_COUNTED: Final[dict[str, Dataset]] = {"span": SPANS, "tool_call": TOOL_CALLS}

# The hours of created_at that a project has in a table, one step down the index for each.
_HOURS: Final = """
with recursive step (hour) as (
    (select date_trunc('hour', created_at, 'UTC') from {relation} where project_id = $1
     order by created_at limit 1)
    union all
    select (select date_trunc('hour', created_at, 'UTC') from {relation}
            where project_id = $1 and created_at >= step.hour + interval '1 hour'
            order by created_at limit 1)
    from step where step.hour is not null
)
select hour from step where hour is not null
"""

Expired = Mapping[int, datetime | None]


async def sweep_day(
    database: Database,
    table: str,
    day: date,
    expired: Expired,
    default: datetime | None,
    now: datetime,
    freed: Callable[[Freed], None],
) -> None:
    """Drop the day's partition when no project needs it, else thin it. `expired` are cutoffs by project."""
    start = midnight(day)
    gone_for = {project_id for project_id, cut in expired.items() if cut is not None and start + DAY <= cut}
    if not gone_for and (default is None or start + DAY > default):
        return
    needed_by = expired.keys() - gone_for
    name = partition(table, day)
    if not await database.run(
        lambda connection: with_rows(connection, table, name, needed_by, limit=1), readonly=True
    ):
        await _drop(database, table, day, now, freed)
        return
    for project_id in await database.run(
        lambda connection: with_rows(connection, table, name, gone_for), readonly=True
    ):
        await _thin(database, table, name, project_id, start + DAY, now, freed)


async def sweep_default(
    database: Database, table: str, expired: Expired, now: datetime, freed: Callable[[Freed], None]
) -> None:
    """Delete expired rows from the default partition, where rows of no regular day lie."""
    name = f"{table}_default"
    dated = {project_id: cut for project_id, cut in expired.items() if cut is not None}
    for project_id in await database.run(
        lambda connection: with_rows(connection, table, name, dated), readonly=True
    ):
        await _thin(database, table, name, project_id, dated[project_id], now, freed)


def _owners(table: str, relation: str) -> str:
    first = _KEYS[table][0][0]
    # One look into the index for each project: with this order the planner cannot take the whole table.
    return (
        "select asked.id from unnest($1::bigint[]) as asked (id) where"
        f" (select r.project_id from {relation} r where r.project_id = asked.id order by r.{first} limit 1)"
        " is not null limit $2"
    )


async def with_rows(
    connection: Connection, table: str, relation: str, project_ids: Collection[int], limit: int | None = None
) -> list[int]:
    """The projects, of these, that have rows in a partition; one that went meanwhile has nobody's."""
    if not project_ids or await connection.fetchval("select to_regclass($1)", relation) is None:
        return []
    try:
        rows = await connection.fetch(_owners(table, relation), sorted(project_ids), limit)
    except asyncpg.UndefinedTableError:
        # Another sweep dropped it between the two statements.
        return []
    return [row["id"] for row in rows]


async def _drop(
    database: Database, table: str, day: date, now: datetime, freed: Callable[[Freed], None]
) -> None:
    async def work(connection: Connection) -> Freed | None:
        try:
            async with one_transaction(connection):
                return await drop_day(connection, table, day, now)
        except asyncpg.LockNotAvailableError:
            return None

    for _ in range(LOCK_TRIES):
        dropped = await database.run(work, transaction=False, timeout_s=STEP_TIMEOUT_S)
        if dropped is not None:
            freed(dropped)
            return
        await trio.sleep(LOCK_PAUSE_S)
    log.warning("%s is in use; the next sweep drops it", partition(table, day))


async def drop_day(connection: Connection, table: str, day: date, now: datetime) -> Freed:
    """Drop one day of one table. Raises `LockNotAvailableError` when it is in use for longer."""
    await connection.execute(f"set local lock_timeout = '{LOCK_WAIT}'")
    await lock_days(connection)
    name = partition(table, day)
    # What goes: its bytes, and about how many rows.
    sizes = await connection.fetchrow(
        "select pg_total_relation_size(oid) as bytes,"
        " greatest(reltuples::bigint, pg_stat_get_live_tuples(oid), 0) as rows"
        " from pg_class where oid = to_regclass($1)",
        name,
    )
    if sizes is None:
        return Freed(table)
    if table in _COUNTED:
        await _mark_all_hours(connection, table, name, now)
    moved = await _kept_rows(connection, table, name, day)
    if moved is None:
        await connection.execute(f"drop table {name}")
    else:
        # Detached, the day's times belong to the default partition, which takes what must stay.
        condition, values = moved
        await connection.execute(f"alter table {table} detach partition {name}")
        columns = await columns_of(connection, table)
        await connection.execute(
            f"insert into {table} ({columns}) select {columns} from {name} r where {condition}", *values
        )
        await connection.execute(f"drop table {name}")
    return Freed(table, days=1, rows=sizes["rows"], bytes=sizes["bytes"])


async def _kept_rows(
    connection: Connection, table: str, name: str, day: date
) -> tuple[str, tuple[Any, ...]] | None:
    """A condition on the rows `r` that must stay, with its values; None when none must."""
    if table == "span_message":
        hashes = await _kept_hashes(connection, day)
        if not hashes:
            return None
        return (
            "(r.project_id, r.hash) in (select * from unnest($1::bigint[], $2::bytea[]))",
            ([project_id for project_id, _ in hashes], [digest for _, digest in hashes]),
        )
    # Whether anything in it is cited at all.
    if not await connection.fetchval(
        f"select exists (select from kept_trace k where exists (select from {name} r"
        " where r.project_id = k.project_id and r.trace_id = k.trace_id offset 0))"
    ):
        return None
    return (
        "exists (select from kept_trace k where (k.project_id, k.trace_id) = (r.project_id, r.trace_id))",
        (),
    )


async def _kept_hashes(
    connection: Connection, day: date, project_id: int | None = None
) -> list[tuple[int, bytes]]:
    """The messages of a day that payloads of kept traces refer to, by project."""
    hashes: set[tuple[int, bytes]] = set()
    # The payloads of kept traces, a few at a time.
    async for row in connection.cursor(
        "select p.project_id, p.body from kept_trace k join span_payload p using (project_id, trace_id)"
        " where p.started_at >= $1 and p.started_at < $2 and ($3::bigint is null or k.project_id = $3)",
        midnight(day),
        midnight(day) + DAY,
        project_id,
    ):
        try:
            hashes.update((row["project_id"], digest) for digest in Frame(row["body"]).needed())
        except Unreadable:
            # Damaged: nothing can be read from it, whatever is kept.
            continue
    return sorted(hashes)


async def _mark_all_hours(connection: Connection, table: str, name: str, now: datetime) -> None:
    # Whose rows there are: one step down the index for each project.
    owners = await connection.fetch(
        f"with recursive step (id) as (select min(project_id) from {name} union all"
        f" select (select min(project_id) from {name} where project_id > step.id) from step"
        " where step.id is not null) select id from step where id is not null"
    )
    for owner in owners:
        hours = await connection.fetch(_HOURS.format(relation=name), owner["id"])
        await mark_dirty(
            connection, [(owner["id"], row["hour"]) for row in hours], _COUNTED[table], now, slow=True
        )


async def _thin(
    database: Database,
    table: str,
    relation: str,
    project_id: int,
    before: datetime,
    now: datetime,
    freed: Callable[[Freed], None],
) -> None:
    """Delete a project's rows that started before a moment, in small transactions along the key."""
    cursor: tuple[Any, ...] | None = None
    while True:

        async def work(
            connection: Connection, place: tuple[Any, ...] | None = cursor
        ) -> tuple[int, tuple[Any, ...] | None]:
            return await _thinned(connection, table, relation, project_id, before, now, place)

        try:
            rows, cursor = await database.run(work, timeout_s=STEP_TIMEOUT_S)
        except (_Gone, asyncpg.UndefinedTableError):
            return
        if rows:
            freed(Freed(table, rows=rows))
        if cursor is None:
            return
        await trio.sleep(BATCH_PAUSE_S)


class _Gone(Exception):
    """The partition was dropped meanwhile."""


async def _thinned(
    connection: Connection,
    table: str,
    relation: str,
    project_id: int,
    before: datetime,
    now: datetime,
    place: tuple[Any, ...] | None,
) -> tuple[int, tuple[Any, ...] | None]:
    """Rows deleted in one batch, and the key to go on behind; None at the end."""
    if await connection.fetchval("select to_regclass($1)", relation) is None:
        raise _Gone
    keys = [name for name, _ in _KEYS[table]]
    values: list[Any] = [project_id, before, BATCH_ROWS]
    behind = ""
    if place is not None:
        behind = f" and ({', '.join(keys)}) > ({', '.join(f'${4 + n}' for n in range(len(keys)))})"
        values += place
    stays = "exists (select from kept_trace k where k.project_id = t.project_id and k.trace_id = t.trace_id)"
    if table == "span_message":
        values.append(await _hashes_to_keep(connection, project_id, relation, before))
        stays = f"t.hash = any(${len(values)}::bytea[])"
    created = "date_trunc('hour', t.created_at, 'UTC')" if table in _COUNTED else "null::timestamptz"
    # One stretch of the key: its last place, and what of it has expired deleted.
    row: Any = await connection.fetchrow(
        f"with batch as materialized (select {', '.join(keys)} from {relation} where project_id = $1{behind}"
        f" order by {', '.join(keys)} limit $3),"
        f" gone as (delete from {relation} t using batch b where t.project_id = $1"
        f" and {' and '.join(f't.{key} = b.{key}' for key in keys)} and t.started_at < $2 and not {stays}"
        f" returning {created} as hour)"
        f" select {', '.join(f'last.{key}' for key in keys)}, (select count(*) from batch) as seen,"
        " (select count(*) from gone) as n, (select array_agg(distinct hour) from gone) as hours"
        f" from (select * from batch order by {', '.join(f'{key} desc' for key in keys)} limit 1) last",
        *values,
    )
    if row is None:
        return 0, None
    if table in _COUNTED and row["n"]:
        await mark_dirty(
            connection, [(project_id, hour) for hour in row["hours"]], _COUNTED[table], now, slow=True
        )
    end = row["seen"] < BATCH_ROWS
    return row["n"], None if end else tuple(row[key] for key in keys)


async def _hashes_to_keep(
    connection: Connection, project_id: int, relation: str, before: datetime
) -> list[bytes]:
    if relation.endswith("_default"):
        # Of all days in it: those of the payloads that were kept beside them.
        days = await connection.fetch(
            "select distinct date_trunc('day', started_at, 'UTC') as day from span_message_default"
            " where project_id = $1 and started_at < $2",
            project_id,
            before,
        )
        day_hashes = [await _kept_hashes(connection, row["day"].date(), project_id) for row in days]
        return [digest for hashes in day_hashes for _, digest in hashes]
    return [digest for _, digest in await _kept_hashes(connection, (before - HOUR).date(), project_id)]
