"""Reading a whole database in one snapshot, table by table, as binary COPY.

Called by `svc.backup`, which says where the bytes go and which tables it has already. Never writes: the
transaction is read-only, and what it locks keeps tables from being dropped and nothing else.

Ordering: the snapshot, then a lock on every table of its catalog. One that was dropped in between makes the
whole begin anew; from then on none can go, and what is made later is not of the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import asyncpg
import attrs
import msgspec

from protocol.backup import BackupRefused, Origin, Relation, SchemaStep, SequencePlace, StoredFile
from protocol.storage import Outage
from svc.store.backup.catalog import fingerprint, origin, quoted, relations, sequences, steps
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.migrate import RESTORING

#: A snapshot that is held for longer would keep the database from tidying up after itself.
SNAPSHOT_TIMEOUT_S: Final = 6 * 3600.0
_TRIES: Final = 10
#: The steps stand in the manifest.
NOT_COPIED: Final = ("schema_migration", RESTORING)


class TableWriter(Protocol):
    """Where the bytes of one table go."""

    def write(self, data: bytes) -> None: ...

    def done(self) -> StoredFile: ...


class BackupSink(Protocol):
    """What takes a backup in."""

    def begun(self, source: Origin, size: int) -> None:
        """Hear which database it is, and of how many tables."""
        ...

    def kept(self, relation: Relation) -> StoredFile | None:
        """The file of this very state of the table, if there is one already."""
        ...

    def writer(self, relation: Relation) -> TableWriter: ...


@attrs.frozen
class Contents:
    """What the database held at the snapshot."""

    origin: Origin
    steps: tuple[SchemaStep, ...]
    relations: tuple[Relation, ...]
    sequences: tuple[SequencePlace, ...]


async def read_database(
    database: Database, destination: BackupSink, *, locked: Callable[[], None] = lambda: None
) -> Contents:
    """Read everything into `destination`. Raises `Outage`, and what the destination raises.

    `locked` is called once the snapshot stands and no table of it can go.
    """

    async def work(connection: Connection) -> Contents:
        return await _contents(connection, destination, locked)

    for _ in range(_TRIES):
        try:
            return await database.run(work, readonly=True, snapshot=True, timeout_s=SNAPSHOT_TIMEOUT_S)
        except asyncpg.UndefinedTableError:
            continue
    raise Outage("tables came and went faster than a backup could begin")


async def _contents(connection: Connection, destination: BackupSink, locked: Callable[[], None]) -> Contents:
    # Two reads of an unchanged table are to give the same bytes; a lock that does not come is an outage.
    await connection.execute("set local synchronize_seqscans = off; set local lock_timeout = '60s'")
    source = await origin(connection)
    tables = [table for table in await relations(connection) if table.name not in NOT_COPIED]
    applied_steps = await steps(connection)
    if not applied_steps or await connection.fetchval("select to_regclass($1)", RESTORING) is not None:
        raise BackupRefused(
            "there is no whole database to back up: it has no schema yet, or a restore of it was cut off"
        )
    if tables:
        # Nobody drops or changes them until the end of this transaction.
        names = ", ".join(f"only {quoted(table.name)}" for table in tables)
        await connection.execute(f"lock table {names} in access share mode")
    locked()
    destination.begun(source, len(tables))
    copies = [await _copied(connection, table, destination) for table in tables]
    return Contents(source, tuple(applied_steps), tuple(copies), tuple(await sequences(connection)))


async def _copied(connection: Connection, table: Relation, destination: BackupSink) -> Relation:
    state = await fingerprint(connection, table.name)
    table = msgspec.structs.replace(table, fingerprint=state)
    if not state.rows:
        return table
    file = destination.kept(table)
    if file is not None:
        return msgspec.structs.replace(table, file=file)
    writer = destination.writer(table)

    async def take(data: bytes) -> None:
        writer.write(data)

    # All its rows, in the form that any PostgreSQL reads.
    columns = ", ".join(quoted(column.name) for column in table.columns)
    await connection.copy_from_query(
        f"select {columns} from only {quoted(table.name)}", output=take, format="binary"
    )
    return msgspec.structs.replace(table, file=writer.done())
