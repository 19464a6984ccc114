"""Forward-only, numbered migrations under an advisory lock.

Owns the table `schema_migration` and the order of `migrations/NNNN_name.sql`. Called at every start and by
the command line; several processes may start at once. It never goes back and never edits data by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Final

import attrs

from protocol.operator import OperatorError
from svc.store.postgres.database import Connection, Database

#: Any constant will do as long as nobody else takes it.
_LOCK: Final = 0x7472_6163
STEP_TIMEOUT_S: Final = 600.0
#: The table that stands while a backup is restored (`svc.store.backup.loading`).
RESTORING: Final = "restore_under_way"


class SchemaTooNew(OperatorError):
    """The database was migrated by a newer release; this one must not touch it."""


class SchemaDiffers(OperatorError):
    """A step was applied whose text this release does not have: its schema cannot be relied on."""


class RestoreUnderWay(OperatorError):
    """A restore fills the database, or was cut off while it did: what is there is not whole."""


@attrs.frozen
class Migration:
    """One step: its number, its name, its SQL, and the digest by which an edit is noticed."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """SHA-256 of the statements, hex; what stands in comments and how lines are broken does not count."""
        said = " ".join(line for line in self.sql.split("\n") if not line.lstrip().startswith("--"))
        return sha256(" ".join(said.split()).encode()).hexdigest()


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


async def migrate(database: Database, *, up_to: int | None = None, restoring: bool = False) -> list[int]:
    """Bring the schema to the newest state (or `up_to`). Returns the numbers that were applied.

    Each step is a transaction of its own, so that one that is cut off leaves those before it done. Raises
    `SchemaTooNew` when the database knows steps that this release does not, `SchemaDiffers` when it was
    brought to a step by another text than this release has, `RestoreUnderWay` unless it is the restore that
    asks, `Outage` when it is away.
    """
    steps = [step for step in migrations() if up_to is None or step.number <= up_to]
    return await _applied(database, steps, restoring=restoring)


async def apply_to_empty(database: Database, numbers: Collection[int]) -> None:
    """Within a restore: make the schema as these steps make it, and no others."""
    steps = [step for step in migrations() if step.number in numbers]
    await _applied(database, steps, restoring=True)


async def _applied(database: Database, steps: Sequence[Migration], *, restoring: bool) -> list[int]:
    async def begin(connection: Connection) -> None:
        await _begin(connection, restoring=restoring)

    await database.run(begin)
    applied = []
    for step in steps:

        async def work(connection: Connection, step: Migration = step) -> bool:
            return await _apply(connection, step)

        if await database.run(work, timeout_s=STEP_TIMEOUT_S):
            applied.append(step.number)
    return applied


async def _begin(connection: Connection, *, restoring: bool) -> None:
    """Make the table of steps, and compare what was applied with what this release has."""
    await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
    # Whether somebody fills it from a backup.
    if not restoring and await connection.fetchval("select to_regclass($1)", RESTORING) is not None:
        raise RestoreUnderWay(
            "the database is being restored from a backup, or a restore was cut off: wait for it, or run"
            " `trace-svc restore` again"
        )
    await connection.execute(
        "create table if not exists schema_migration ("
        " number integer primary key, name text not null, digest text not null,"
        " applied_at timestamptz not null default now())"
    )
    # What was applied, and by which text.
    rows = await connection.fetch("select number, digest from schema_migration order by number")
    known = {step.number: step for step in migrations()}
    newest = max(known)
    for row in rows:
        step = known.get(row["number"])
        if row["number"] > newest:
            raise SchemaTooNew(
                f"the database is at step {rows[-1]['number']}, this release knows {newest}: a newer one"
                " migrated it; start that one"
            )
        if step is not None and step.digest != row["digest"]:
            raise SchemaDiffers(
                f"step {step.number} ({step.name}) of the database was applied with another text than this"
                " release has: bring back the release that made it, or restore a backup"
            )


async def _apply(connection: Connection, step: Migration) -> bool:
    """Do one step, unless another process has done it meanwhile."""
    # One migrating process at a time; the lock ends with the transaction.
    await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
    if await connection.fetchval(
        "select exists (select from schema_migration where number = $1)", step.number
    ):
        return False
    await connection.execute(step.sql)
    await connection.execute(
        "insert into schema_migration (number, name, digest) values ($1, $2, $3)",
        step.number,
        step.name,
        step.digest,
    )
    return True
