"""A part of a database put into another one of the same schema: for an upgrade that is tried out.

Called by `svc.application.upgrade_rehearsal`. Spans and what belongs to their trace are chosen by it, so that
what a step joins is together; of other tables rows are chosen by chance, of small ones all. Never writes to
the source.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Final

from protocol.backup import Relation
from svc.store.backup.catalog import quoted, relations
from svc.store.backup.reading import NOT_COPIED
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import DAILY, make_day, partition

#: Of a table with no more rows all are taken: steps join with projects and the like.
SMALL_ROWS: Final = 1_000
_PARTS: Final = 10_000
_TIMEOUT_S: Final = 6 * 3600.0


async def copy_some(
    source: Database, target: Database, share: float, folder: Path, report: Callable[[str], None]
) -> int:
    """Put so much of `source` into `target`, table by table, by way of a file. Returns how many rows.

    The target has the steps of the source and no rows; its own role is a superuser.
    """
    source_tables = [
        table for table in await source.run(relations, readonly=True) if table.name not in NOT_COPIED
    ]
    days = {table.day for table in source_tables if _is_day(table)}
    for day in sorted(day for day in days if day is not None):
        await make_day(target, date.fromisoformat(day))
    names = {table.name for table in await target.run(relations, readonly=True)}
    file, rows = folder / "rows", 0
    for table in source_tables:
        if table.name in names:
            query = await _chosen(source, table, share)
            await source.run(
                lambda connection, sql=query: connection.copy_from_query(sql, output=file, format="binary"),  # type: ignore[misc]
                readonly=True,
                timeout_s=_TIMEOUT_S,
            )
            rows += await target.run(
                lambda connection, table=table: _filled(connection, table, file),  # type: ignore[misc]
                timeout_s=_TIMEOUT_S,
            )
            file.unlink()
            report(f"copied: {table.label}")
    # What the planner knows, as the real one has it.
    await target.run(
        lambda connection: connection.execute("analyze"), transaction=False, timeout_s=_TIMEOUT_S
    )
    return rows


def _is_day(table: Relation) -> bool:
    return (
        table.day is not None
        and table.parent in DAILY
        and table.name == partition(table.parent, date.fromisoformat(table.day))
    )


async def _chosen(source: Database, table: Relation, share: float) -> str:
    columns = ", ".join(quoted(column.name) for column in table.columns)
    select = f"select {columns} from only {quoted(table.name)}"
    if share >= 1:
        return select
    # Whether the table, with all its days, is a small one.
    parent_table = quoted(table.parent or table.name)
    (row,) = await source.fetch(
        f"select count(*) as n from (select from {parent_table} limit {SMALL_ROWS + 1}) as first"
    )
    if row["n"] <= SMALL_ROWS:
        return select
    if any(column.name == "trace_id" for column in table.columns):
        return (
            f"{select} where (hashtext(encode(trace_id, 'hex')) & 2147483647) % {_PARTS}"
            f" < {round(share * _PARTS)}"
        )
    return f"{select} tablesample bernoulli ({share * 100:g})"


async def _filled(connection: Connection, table: Relation, file: Path) -> int:
    # Neither references nor triggers: what they would say stands in the rows.
    await connection.execute("set local session_replication_role = replica")
    copied = await connection.copy_to_table(
        table.name, source=file, columns=[column.name for column in table.columns], format="binary"
    )
    return int(copied.rpartition(" ")[2])
