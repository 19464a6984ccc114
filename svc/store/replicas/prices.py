"""The operator's price file on its way from the copy that was told to read it to all others.

Owns the table `own_prices` and the channel `prices`. A start reads its own file; only what is read anew while
copies run goes this way. Never looks into the text.
"""

from __future__ import annotations

from typing import Final

import attrs

from svc.store.postgres.database import Connection, Database

CHANNEL: Final = "prices"


@attrs.frozen
class SharedText:
    """A file as it was read by one of the copies; `version` counts the times."""

    version: int
    path: str
    text: bytes = attrs.field(repr=False)


@attrs.frozen
class OwnPricesStore:
    """The last text."""

    database: Database

    async def publish(self, path: str, text: bytes) -> int:
        """Let every copy have it. Returns its version."""

        async def work(connection: Connection) -> int:
            # The newest stands, and says that it is newer.
            version: int = await connection.fetchval(
                "insert into own_prices (version, path, text) values (1, $1, $2)"
                " on conflict (only_one) do update set version = own_prices.version + 1,"
                " path = excluded.path, text = excluded.text, changed_at = now() returning version",
                path,
                text,
            )
            # Heard when the transaction is committed.
            await connection.execute("select pg_notify($1, '')", CHANNEL)
            return version

        return await self.database.run(work)

    async def last(self) -> SharedText | None:
        """What was published last, None when nothing ever was."""
        # One row at most.
        rows = await self.database.fetch("select version, path, text from own_prices")
        return SharedText(rows[0]["version"], rows[0]["path"], rows[0]["text"]) if rows else None
