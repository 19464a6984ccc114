"""What there is to copy: tables, columns, sequences, steps, and which database it is, all from the catalog.

Asked within the snapshot of a backup, and of the target of a restore. Everything in the schema that our
connections work in counts, whoever made it.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from protocol.backup import ColumnType, Fingerprint, Origin, Relation, SchemaStep, SequencePlace
from svc.store.postgres.database import Connection

_DAY: Final = re.compile(r"^(?P<parent>.+)_(?P<day>\d{8})$")

# Every table with rows of its own and its columns in their order; partitions with the table they are of.
_RELATIONS: Final = """
select c.relname as name, p.relname as parent,
    coalesce((select json_agg(json_build_object('name', a.attname,
                                                'type', format_type(a.atttypid, a.atttypmod))
                              order by a.attnum)
              from pg_attribute a
              where a.attrelid = coalesce(p.oid, c.oid) and a.attnum > 0 and not a.attisdropped
                and a.attgenerated = ''), '[]')::text as columns
from pg_class c
left join pg_inherits i on i.inhrelid = c.oid
left join pg_class p on p.oid = i.inhparent
where c.relkind = 'r' and c.relnamespace = current_schema()::regnamespace and c.relpersistence <> 't'
order by c.relname
"""

_COLUMNS: Final = msgspec.json.Decoder(tuple[ColumnType, ...])
NONE: Final = Fingerprint(rows=0, newest=0, versions="0")


def quoted(name: str) -> str:
    """An identifier in SQL: names come from the catalog or a manifest, and may hold anything."""
    return '"' + name.replace('"', '""') + '"'


async def relations(connection: Connection) -> list[Relation]:
    """All of them, without fingerprints."""
    return [_relation(row) for row in await connection.fetch(_RELATIONS)]


def _relation(row: Any) -> Relation:
    match = _DAY.match(row["name"])
    by_day = match is not None and match["parent"] == row["parent"]
    digits = match["day"] if match is not None and by_day else ""
    return Relation(
        name=row["name"],
        parent=row["parent"],
        day=f"{digits[:4]}-{digits[4:6]}-{digits[6:]}" if digits else None,
        columns=_COLUMNS.decode(row["columns"]),
        fingerprint=NONE,
    )


async def fingerprint(connection: Connection, name: str) -> Fingerprint:
    """What the rows of a table are like now."""
    # One walk over it: each version of a row has a place and a writer that no other has at the same time.
    row: Any = await connection.fetchrow(
        "select count(*) as rows, coalesce(max(xmin::text::bigint), 0) as newest,"
        " coalesce(sum(hashtidextended(ctid, xmin::text::bigint)), 0)::text as versions"
        f" from only {quoted(name)}"
    )
    return Fingerprint(rows=row["rows"], newest=row["newest"], versions=row["versions"])


async def sequences(connection: Connection) -> list[SequencePlace]:
    """How far each sequence has counted. Not part of a snapshot: never behind it."""
    names = await connection.fetch(
        "select relname from pg_class where relkind = 'S' and relnamespace = current_schema()::regnamespace"
        " and relpersistence <> 't' order by 1"
    )
    places = []
    for sequence in names:
        row: Any = await connection.fetchrow(
            f"select last_value, is_called from {quoted(sequence['relname'])}"
        )
        places.append(
            SequencePlace(name=sequence["relname"], last_value=row["last_value"], is_called=row["is_called"])
        )
    return places


async def steps(connection: Connection) -> list[SchemaStep]:
    """The migrations that the database has; none of a database without a schema."""
    if await connection.fetchval("select to_regclass('schema_migration')") is None:
        return []
    rows = await connection.fetch("select number, digest from schema_migration order by number")
    return [SchemaStep(number=row["number"], digest=row["digest"]) for row in rows]


async def origin(connection: Connection) -> Origin:
    """Which database this is, and the moment of the snapshot."""
    # The cluster by its number; the next transaction with its epoch.
    row: Any = await connection.fetchrow(
        "select (select system_identifier::text from pg_control_system()) as system_id,"
        " current_database() as database, current_setting('server_version') as server_version,"
        " now() as snapshot_at, pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next_xid,"
        " pg_database_size(current_database()) as size_bytes"
    )
    return Origin(**dict(row.items()))


async def encoding(connection: Connection) -> str:
    """How the database writes text."""
    name: str = await connection.fetchval("select current_setting('server_encoding')")
    return name
