"""Filling an empty database from a backup: the schema of its steps, then table by table by binary COPY.

Called by `svc.backup` with files whose digests have been compared already. A table that tells of the restore
stands from its first to its last moment: while it is there nothing else opens the database
(`svc.store.postgres.migrate`), and the next restore throws away what a cut-off one left.

Ordering: the steps that the backup has; days, each filled before it is attached, which builds its indexes;
the other tables in the order of their references; sequences; then the steps that the backup has not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from graphlib import TopologicalSorter
from typing import Final

import asyncpg
import attrs
import msgspec

from protocol.backup import BackupDamaged, BackupRefused, ColumnType, Manifest, Relation
from protocol.storage import StoreRefused
from svc.store.backup.catalog import encoding, quoted, relations
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.migrate import RESTORING, apply_to_empty, migrate, migrations
from svc.store.postgres.partitions import DAILY, midnight, partition

#: For one table, or one day of one.
LOAD_TIMEOUT_S: Final = 6 * 3600.0
_ANALYZE_TIMEOUT_S: Final = 3600.0

#: How the bytes of a table come, inflated; raises `BackupDamaged`.
Reader = Callable[[Relation], Iterator[bytes]]


def unfit(manifest: Manifest) -> str | None:
    """Why this release cannot read the backup, or None."""
    digests = {step.number: step.digest for step in migrations()}
    newest = max(digests)
    for step in manifest.steps:
        if step.number > newest:
            return (
                f"the backup is at step {manifest.steps[-1].number} of the schema, this release knows"
                f" {newest}: a newer one made it (trace-svc {manifest.release}); restore with that one"
            )
        if digests.get(step.number) != step.digest:
            return (
                f"step {step.number} of the backup's schema is not this release's: restore with the"
                f" release that made it, trace-svc {manifest.release}"
            )
    return None if manifest.steps else "the backup is of a database without a schema"


@attrs.define(eq=False)
class Target:
    """The database that is filled. All verbs raise `Outage`, `BackupRefused` and `BackupDamaged`."""

    database: Database
    #: Told of each table when it is there.
    told: Callable[[Relation], None] = lambda _relation: None

    async def claim(self) -> None:
        """See that it is empty, or was left by a restore that was cut off; then it is this one's."""
        await self.database.run(self._begin)
        # What a restore that was cut off left, a few tables at a time: each is many locks.
        while await self.database.run(_drop_some, timeout_s=LOAD_TIMEOUT_S):
            pass

    async def fill(self, manifest: Manifest, reader: Reader) -> int:
        """Everything of the backup, and the schema brought up to date. Returns how many rows there are."""
        await apply_to_empty(self.database, [step.number for step in manifest.steps])
        tables = {table.name: table for table in await self.database.run(relations, readonly=True)}
        await self._emptied(tables)
        days = [table for table in manifest.relations if _is_day(table, tables)]
        day_names = {table.name for table in days}
        other_tables = [table for table in manifest.relations if table.name not in day_names]
        missing = [
            table.name for table in other_tables if table.name not in tables and table.file is not None
        ]
        if missing:
            raise BackupRefused(
                f"the backup has tables that no step of this release makes: {', '.join(missing)};"
                " leave them out with --without NAME"
            )
        for table in days:
            await self._filled(table, reader, day=True)
        order = await self.database.run(_order, readonly=True)
        other_tables.sort(key=lambda table: order.get(table.name, -1))
        for table in other_tables:
            if table.name in tables and table.file is not None:
                _same_columns(table, tables[table.name].columns)
                await self._filled(table, reader, day=False)
        await self._counted(manifest)
        return sum(table.fingerprint.rows for table in manifest.relations)

    async def finish(self) -> list[int]:
        """Statistics for the planner, the newer steps; from now on it is a database like any other."""

        async def analyze(connection: Connection) -> None:
            # What the planner knows of each table; without it the first questions walk whole days.
            await connection.execute("analyze")

        async def open_up(connection: Connection) -> None:
            await connection.execute(f"drop table {RESTORING}")

        await self.database.run(analyze, transaction=False, timeout_s=_ANALYZE_TIMEOUT_S)
        applied = await migrate(self.database, restoring=True)
        await self.database.run(open_up)
        return applied

    async def _begin(self, connection: Connection) -> None:
        if await encoding(connection) != "UTF8":
            raise BackupRefused(
                f"the database {self.database.address.label()} is not in UTF8;"
                " make it with `create database … encoding 'UTF8' template template0`"
            )
        tables = {table.name for table in await relations(connection)}
        if tables and RESTORING not in tables:
            raise BackupRefused(
                f"the database {self.database.address.label()} is not empty ({len(tables)} tables);"
                " a restore wants an empty one: name another with --into, or move the data folder away"
            )
        # From here on it belongs to a restore.
        await connection.execute(f"create table if not exists {RESTORING} (begun_at timestamptz not null)")
        await connection.execute(f"insert into {RESTORING} values (now())")

    async def _emptied(self, tables: Mapping[str, Relation]) -> None:
        """Throw away what steps put into their tables: the backup has its own."""

        async def work(connection: Connection) -> None:
            names = [quoted(name) for name in tables if name not in (RESTORING, "schema_migration")]
            await connection.execute(f"truncate {', '.join(names)} cascade")

        await self.database.run(work)

    async def _filled(self, table: Relation, reader: Reader, *, day: bool) -> None:
        async def work(connection: Connection) -> None:
            if day:
                await _load_day(connection, table, reader)
            else:
                await _load(connection, table, reader)

        try:
            await self.database.run(work, timeout_s=LOAD_TIMEOUT_S)
        except (asyncpg.PostgresError, StoreRefused) as error:
            # The text of the server may quote a row.
            raise BackupDamaged(
                f"the rows of {table.label} are refused by the database ({type(error).__name__})"
            ) from None
        self.told(table)

    async def _counted(self, manifest: Manifest) -> None:
        async def work(connection: Connection) -> None:
            for sequence in manifest.sequences:
                if await connection.fetchval("select to_regclass($1)", quoted(sequence.name)) is not None:
                    # Where the next number comes from.
                    await connection.execute(
                        "select setval(to_regclass($1), $2, $3)",
                        quoted(sequence.name),
                        sequence.last_value,
                        sequence.is_called,
                    )

        await self.database.run(work)


def without(manifest: Manifest, names: Iterable[str]) -> Manifest:
    """The backup without some tables."""
    left_out = set(names)
    unknown = left_out - {table.name for table in manifest.relations}
    if unknown:
        raise BackupRefused(f"the backup has no table {', '.join(sorted(unknown))}")
    selection = tuple(table for table in manifest.relations if table.name not in left_out)
    return msgspec.structs.replace(manifest, relations=selection)


async def _drop_some(connection: Connection) -> bool:
    names = [table.name for table in await relations(connection) if table.name != RESTORING]
    # The partitioned ones, which stay behind when their days have gone, and what their triggers call.
    other_rows = await connection.fetch(
        "select format('table %I', relname) as thing from pg_class"
        " where relkind = 'p' and relnamespace = current_schema()::regnamespace"
        " union all select format('routine %s', p.oid::regprocedure) from pg_proc p"
        " where p.pronamespace = current_schema()::regnamespace and not exists ("
        "  select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid"
        "  and d.deptype = 'e')"
    )
    things = [f"table {quoted(name)}" for name in names[:50]] or [row["thing"] for row in other_rows]
    for thing in things:
        await connection.execute(f"drop {thing} cascade")
    return bool(things)


def _is_day(table: Relation, tables: Mapping[str, Relation]) -> bool:
    """Whether it is a day that the steps do not make, of a table that is kept by the day."""
    if table.day is None or table.parent not in DAILY or table.name in tables:
        return False
    return table.name == partition(table.parent, date.fromisoformat(table.day))


def _same_columns(table: Relation, columns: Sequence[ColumnType]) -> None:
    if set(table.columns) != set(columns):
        raise BackupRefused(
            f"the columns of {table.name} are not those of this release's schema; restore with the release"
            " that made the backup"
        )


async def _order(connection: Connection) -> dict[str, int]:
    """The place of each table that refers to others, or is referred to: those that are needed first."""
    rows = await connection.fetch(
        "select c.relname as name, f.relname as needs from pg_constraint k"
        " join pg_class c on c.oid = k.conrelid join pg_class f on f.oid = k.confrelid"
        " where k.contype = 'f' and c.oid <> f.oid"
    )
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for row in rows:
        sorter.add(row["name"], row["needs"])
    return {name: position for position, name in enumerate(sorter.static_order())}


async def _load_day(connection: Connection, table: Relation, reader: Reader) -> None:
    assert table.parent in DAILY
    assert table.day is not None
    low = midnight(date.fromisoformat(table.day))
    high = low + timedelta(days=1)
    name, parent = quoted(table.name), quoted(table.parent)
    # Its indexes are built when it is attached, which is sorting once and not a search for each row.
    await connection.execute(f"create table {name} (like {parent} including all excluding indexes)")
    day_table = {relation.name: relation for relation in await relations(connection)}[table.name]
    _same_columns(table, day_table.columns)
    if table.file is not None:
        # Nobody saw the table without these rows, so they are written as settled ones.
        await _copy(connection, table, reader, freeze=True)
    await connection.execute(
        f"alter table {parent} attach partition {name}"
        f" for values from ('{low.isoformat()}') to ('{high.isoformat()}')"
    )


async def _load(connection: Connection, table: Relation, reader: Reader) -> None:
    name = quoted(table.name)
    # What triggers would note stands in tables that are restored as well.
    await connection.execute(f"alter table {name} disable trigger user")
    await _copy(connection, table, reader)
    await connection.execute(f"alter table {name} enable trigger user")


async def _copy(connection: Connection, table: Relation, reader: Reader, *, freeze: bool = False) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for part in reader(table):
            yield part

    copied = await connection.copy_to_table(
        table.name,
        source=parts(),
        columns=[column.name for column in table.columns],
        format="binary",
        freeze=freeze,
    )
    rows = int(copied.rpartition(" ")[2])
    if rows != table.fingerprint.rows:
        raise BackupDamaged(f"{table.label} has {rows} rows, and the manifest says {table.fingerprint.rows}")
