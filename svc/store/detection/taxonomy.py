"""The taxonomy of a project: packs, chains, call-site intents, failure modes.

Owns their four tables. An import replaces all of them in one transaction, so that a project's taxonomy is
what the last file said, and the same file twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import msgspec

from protocol.taxonomy import Taxonomy
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.rows import shown

#: Failure modes that a listing shows.
MODES_SHOWN: Final = 2_000

_MODE_COLUMNS: Final = (
    "id",
    "name",
    "description",
    "severity",
    "scope",
    "call_site_id",
    "chain_id",
    "layer",
    "pack_id",
    "compliance_tags",
)
_PACK_COLUMNS: Final = ("id", "name", "version", "description")
_CHAIN_COLUMNS: Final = ("id", "name", "description", "call_site_ids")
#: Each table: its columns, and the fields of an entry that fill them.
_TABLES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "pack": (_PACK_COLUMNS, _PACK_COLUMNS),
    "chain": (_CHAIN_COLUMNS, _CHAIN_COLUMNS),
    "call_site_intent": (
        ("call_site_id", "intent", "shape", "output_schema"),
        ("id", "intent", "shape", "output_schema"),
    ),
    "failure_mode": (_MODE_COLUMNS, _MODE_COLUMNS),
}


#: The list of a file that each table holds.
_LISTS: Final = {
    "pack": "packs",
    "chain": "chains",
    "call_site_intent": "call_sites",
    "failure_mode": "failure_modes",
}


@attrs.frozen
class ModeFilter:
    """What a listing of failure modes is narrowed to; None asks for nothing."""

    call_site_id: str | None = None
    chain_id: str | None = None
    scope: str | None = None
    severity: str | None = None
    layer: str | None = None
    pack_id: str | None = None
    compliance_tag: str | None = None


@attrs.define(eq=False)
class TaxonomyStore:
    """Writes for whoever imports, reads for the fronts. All verbs raise `Outage`."""

    database: Database

    async def replace(
        self,
        project_id: int,
        taxonomy: Taxonomy,
        noted: Callable[[Connection], Awaitable[None]] | None = None,
        instead_of: Taxonomy | None = None,
    ) -> bool:
        """Make the project's taxonomy what the file says; `noted` records it in the same transaction.

        False, and nothing is done, when it is not `instead_of` any more.
        """
        entries: dict[str, list[Any]] = {
            "pack": [*taxonomy.packs],
            "chain": [*taxonomy.chains],
            "call_site_intent": [*taxonomy.call_sites],
            "failure_mode": [*taxonomy.failure_modes],
        }

        async def work(connection: Connection) -> bool:
            # Two imports take turns.
            await connection.execute("select from project where id = $1 for no key update", project_id)
            if instead_of is not None and await _read_taxonomy(connection, project_id) != instead_of:
                return False
            for table, (columns, fields) in _TABLES.items():
                # The old entries; the table name comes from the closed list.
                await connection.execute(f"delete from {table} where project_id = $1", project_id)
                await connection.copy_records_to_table(
                    table,
                    columns=("project_id", *columns),
                    records=[
                        (project_id, *(_stored(getattr(entry, field)) for field in fields))
                        for entry in entries[table]
                    ],
                )
            if noted is not None:
                await noted(connection)
            return True

        return await self.database.run(work)

    async def whole(self, project_id: int) -> Taxonomy:
        """The project's taxonomy as a file would say it, each list by id."""
        return await self.database.run(
            lambda connection: _read_taxonomy(connection, project_id), readonly=True, snapshot=True
        )

    async def failure_modes(self, project_id: int, asked: ModeFilter) -> list[dict[str, Any]]:
        """The failure modes that match, worst first, then by id."""
        where = Where.of(project_id)
        for column, value in attrs.asdict(asked).items():
            if column != "compliance_tag":
                where.equal(column, value)
        if asked.compliance_tag is not None:
            where.add(f"{where.value(asked.compliance_tag)} = any(compliance_tags)")
        # A taxonomy is written by hand: one project's rows, by the key.
        sql = (
            f"select {', '.join(_MODE_COLUMNS)} from failure_mode where {where.sql()}"
            " order by case severity when 'high' then 1 when 'medium' then 2 else 3 end, id"
            f" limit {MODES_SHOWN}"
        )
        rows = await self.database.fetch(sql, *where.values, timeout_s=READ_TIMEOUT_S)
        return [shown(row, _MODE_COLUMNS) for row in rows]


async def _read_taxonomy(connection: Connection, project_id: int) -> Taxonomy:
    lists: dict[str, list[dict[str, Any]]] = {}
    for table, (columns, fields) in _TABLES.items():
        # The entries of one kind; a taxonomy is written by hand.
        rows = await connection.fetch(
            f"select {', '.join(columns)} from {table} where project_id = $1 order by {columns[0]}",
            project_id,
        )
        lists[_LISTS[table]] = [dict(zip(fields, row, strict=True)) for row in rows]
    for site in lists["call_sites"]:
        if site["output_schema"] is not None:
            site["output_schema"] = msgspec.json.decode(site["output_schema"])
    return msgspec.convert(lists, Taxonomy)


def _stored(value: Any) -> Any:
    """A field as its column takes it: a schema is JSON."""
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else value
