"""Forward-only, numbered migrations under an advisory lock.

Owns the table `schema_migration` and the order of `migrations/NNNN_name.sql`. Called at every start and by
the command line; several processes may start at once. It never goes back and never edits data by itself.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import Final

import attrs

from protocol.operator import OperatorError
from svc.store.postgres.database import Connection, Database

#: Any constant will do as long as nobody else takes it.
_LOCK: Final = 0x7472_6163


class SchemaTooNew(OperatorError):
    """The database was migrated by a newer release; this one must not touch it."""


@attrs.frozen
class Migration:
    """One step: its number, its name, its SQL, and the digest by which an edit is noticed."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """SHA-256 of the SQL text, hex."""
        return sha256(self.sql.encode()).hexdigest()


def migrations() -> list[Migration]:
    """All steps, in order. Each has a number of its own; numbers may be left out."""
    steps = []
    for file in files("svc.store.postgres").joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            steps.append(Migration(int(number), name, file.read_text(encoding="utf-8")))
    steps.sort(key=lambda step: step.number)
    assert len({step.number for step in steps}) == len(steps), "two migrations have one number"
    return steps


async def migrate(database: Database, *, up_to: int | None = None) -> list[int]:
    """Bring the schema to the newest state (or `up_to`). Returns the numbers that were applied.

    Raises `SchemaTooNew` when the database knows steps that this release does not, `Outage` when it is away.
    """
    steps = migrations()

    async def work(connection: Connection) -> list[int]:
        # One migrating process at a time; the lock ends with the transaction.
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(
            "create table if not exists schema_migration ("
            " number integer primary key, name text not null, digest text not null,"
            " applied_at timestamptz not null default now())"
        )
        rows = await connection.fetch("select number, digest from schema_migration order by number")
        done = {row["number"]: row["digest"] for row in rows}
        newest = steps[-1].number
        if done and max(done) > newest:
            raise SchemaTooNew(f"the database is at step {max(done)}, this release knows {newest}")
        applied = []
        for step in steps:
            if step.number in done or (up_to is not None and step.number > up_to):
                continue
            await connection.execute(step.sql)
            await connection.execute(
                "insert into schema_migration (number, name, digest) values ($1, $2, $3)",
                step.number,
                step.name,
                step.digest,
            )
            applied.append(step.number)
        return applied

    return await database.run(work, timeout_s=600)
