"""Where a text stands in a database: every column of every table, opened as the product opens it.

What is looked for may stand in a text, in JSON, as plain bytes, inside zstd, or as UTF-16 or base64 nowhere:
the product writes none. Used by tests that erase.
"""

from __future__ import annotations

from typing import Any

import zstandard

from protocol.inflate import Unreadable
from svc.store.postgres.database import Connection, Database

_COLUMNS = (
    "select c.relname as table, a.attname as column, format_type(a.atttypid, a.atttypmod) as type"
    " from pg_class c join pg_namespace n on n.oid = c.relnamespace and n.nspname = current_schema()"
    " join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped"
    " where c.relkind = 'r' order by 1, 2"
)


async def where_stands(database: Database, *texts: str) -> list[str]:
    """`table.column` of each place where one of these texts stands."""

    async def work(connection: Connection) -> list[str]:
        places = set()
        for column in await connection.fetch(_COLUMNS):
            table, name = column["table"], column["column"]
            if column["type"] in ("bytea", "bytea[]"):
                rows = await connection.fetch(f'select "{name}" as value from "{table}"')
                values = [row["value"] for row in rows if row["value"] is not None]
                if any(_holds(value, texts) for value in values):
                    places.add(f"{table}.{name}")
            else:
                # Everything else has a text in which it stands: numbers, arrays and JSON, too.
                for text in texts:
                    if await connection.fetchval(
                        f'select exists (select from "{table}" where strpos("{name}"::text, $1) > 0)', text
                    ):
                        places.add(f"{table}.{name}")
        return sorted(places)

    return await database.run(work, readonly=True)


def _holds(value: Any, texts: tuple[str, ...]) -> bool:
    if isinstance(value, list):
        return any(_holds(part, texts) for part in value)
    return any(text.encode() in opened for opened in (value, _inflated(value)) for text in texts)


def _inflated(value: bytes) -> bytes:
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(value)
    except (zstandard.ZstdError, Unreadable):
        return b""
