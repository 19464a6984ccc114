"""Steps of the schema tried out on a database that is thrown away, each statement measured.

Called by `svc.application.upgrade_rehearsal`. Every statement runs as it will, in the transaction of its
step; what is measured of it stands in the catalog: the locks it holds then, the files of tables, the place in
the log.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf
from typing import Any, Final

from svc.domain.upgrade import LOCKS, StatementRun, StepRun
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.migrate import Migration, build_indexes, note_step
from svc.store.postgres.statements import statements

_MOST_TEXT: Final = 80

# Every table that was there before the step: its file, and the table it is a day of, or itself.
_TABLES: Final = """
select c.oid::bigint as oid, coalesce(p.relname, c.relname) as root,
    pg_relation_filenode(c.oid)::bigint as file
from pg_class c left join pg_inherits i on i.inhrelid = c.oid left join pg_class p on p.oid = i.inhparent
where c.relkind in ('r', 'p') and c.relnamespace = current_schema()::regnamespace
"""

# The locks of this transaction on such tables that somebody may wait for.
_HELD: Final = (
    "select relation::bigint as oid, mode from pg_locks where pid = pg_backend_pid() and granted"
    " and locktype = 'relation' and relation::bigint = any($1::bigint[]) and mode = any($2::text[])"
)


async def rehearse(database: Database, step: Migration) -> StepRun:
    """Do one step, and leave it done. Raises as the step would."""
    if step.concurrent:
        return await database.run(
            lambda connection: _built(connection, step), transaction=False, timeout_s=inf
        )
    return await database.run(lambda connection: _tried(connection, step), timeout_s=inf)


async def _tried(connection: Connection, step: Migration) -> StepRun:
    tables = {row["oid"]: row for row in await connection.fetch(_TABLES)}
    files = {oid: row["file"] for oid, row in tables.items()}
    size_before = await _size(connection)
    strongest: dict[str, str] = {}
    runs = []
    for text in statements(step.sql):
        log_at, began_s = await _log_place(connection), time.perf_counter()
        await connection.execute(text)
        took_s = time.perf_counter() - began_s
        written = await _log_place(connection) - log_at
        locks = await _new_locks(connection, tables, strongest)
        now = {row["oid"]: row["file"] for row in await connection.fetch(_TABLES)}
        anew = {tables[oid]["root"] for oid, file in files.items() if oid in now and now[oid] != file}
        files = {oid: now.get(oid, file) for oid, file in files.items()}
        runs.append(StatementRun(_short(text), took_s, written, locks, sorted(anew)))
    grown = await _size(connection) - size_before
    await note_step(connection, step)
    return _run(step, runs, grown)


async def _built(connection: Connection, step: Migration) -> StepRun:
    size_before, log_at = await _size(connection), await _log_place(connection)
    began_s = time.perf_counter()
    await build_indexes(connection, step)
    took_s = time.perf_counter() - began_s
    written = await _log_place(connection) - log_at
    run = StatementRun(_short(statements(step.sql)[0]), took_s, written, {}, ())
    return _run(step, [run], await _size(connection) - size_before)


def _run(step: Migration, runs: Sequence[StatementRun], grown: int) -> StepRun:
    return StepRun(step.number, step.name, step.kind, step.reads_from, step.concurrent, tuple(runs), grown)


async def _new_locks(
    connection: Connection, tables: dict[int, Any], strongest: dict[str, str]
) -> dict[str, str]:
    """What is held more strongly than before, by table; `strongest` is brought up to date."""
    new: dict[str, str] = {}
    for row in await connection.fetch(_HELD, list(tables), list(LOCKS)):
        root, mode = tables[row["oid"]]["root"], row["mode"]
        if root not in strongest or LOCKS.index(mode) > LOCKS.index(strongest[root]):
            strongest[root] = new[root] = mode
    return new


async def _size(connection: Connection) -> int:
    # All files of the database, those of a table that is written anew included.
    size: int = await connection.fetchval("select pg_database_size(current_database())")
    return size


async def _log_place(connection: Connection) -> int:
    # How far the log has been written.
    position: int = await connection.fetchval("select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
    return position


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _MOST_TEXT else words[: _MOST_TEXT - 1] + "…"
