"""Forward-only, numbered migrations under an advisory lock, beside the release before.

Owns the table `schema_migration` and the order of `migrations/NNNN_name.sql`. Called at every start and by
the command line; several processes may start at once. It never goes back and never edits data by itself.

Line one of a step says its kind. `-- expand` adds what the release before does not mind. `-- backfill` fills
it in. `-- contract` takes away what no code from some step on needs: `-- contract 110` says that the code of
step 110 can live with it, without a number only that of the step itself. A release that meets newer steps
starts while its own code can live with all of them, so rolling back is starting the release before.

Line two may say `-- concurrently`: the step makes nothing but indexes, outside of a transaction, while rows
come in (`svc.store.postgres.concurrent_indexes`). To a release that does not know the word it is a comment.

No step waits for a lock longer than `LOCK_TIMEOUT_S`: whoever wants the table after it would wait as well. It
gives way and tries again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from hashlib import sha256
from importlib.resources import files
from math import inf
from typing import Final, Literal, cast

import asyncpg
import attrs
import trio

from protocol.operator import OperatorError
from protocol.storage import Outage
from svc.store.postgres.concurrent_indexes import Index, build
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.statements import statements

#: Any constants will do as long as nobody else takes them. Who builds indexes has a lock of its own, which
#: others do not wait for within the database: the build would wait for their snapshots, and both for ever.
_LOCK: Final = 0x7472_6163
_BUILD_LOCK: Final = 0x7472_6164
LOCK_TIMEOUT_S: Final = 2.0
#: How long a step goes on trying for its locks, and how long it rests between two tries.
PATIENCE_S: Final = 600.0
_REST_S: Final = 1.0

Kind = Literal["expand", "backfill", "contract"]
_HEAD: Final = re.compile(r"-- (?:(expand|backfill)|(contract)(?: (\d{1,6}))?)")
_CONCURRENTLY: Final = "-- concurrently"

#: The table that stands while a backup is restored (`svc.store.backup.loading`).
RESTORING: Final = "restore_under_way"

log = logging.getLogger(__name__)


class SchemaTooNew(OperatorError):
    """The database was migrated by a newer release; this one must not touch it."""


class SchemaDiffers(OperatorError):
    """A step was applied whose text this release does not have: its schema cannot be relied on."""


class SchemaBusy(OperatorError):
    """A step did not get its locks for as long as it tried; nothing of it was done."""


class RestoreUnderWay(OperatorError):
    """A restore fills the database, or was cut off while it did: what is there is not whole."""


@attrs.frozen
class Migration:
    """One step: its number, its name, its SQL, and the digest by which an edit is noticed."""

    number: int
    name: str
    sql: str

    @property
    def kind(self) -> Kind:
        """What it does to the release before. Raises `ValueError` for a step that does not say."""
        return cast(Kind, self._head()[0])

    @property
    def reads_from(self) -> int:
        """The oldest step whose code can live with the schema that this one leaves."""
        kind, least = self._head()
        return 0 if kind != "contract" else self.number if least is None else least

    @property
    def concurrent(self) -> bool:
        """Whether it builds its indexes while rows come in."""
        return self.sql.split("\n", 2)[1:2] == [_CONCURRENTLY]

    def indexes(self) -> list[Index]:
        """What a step builds that is `concurrent`. Raises `ValueError` when it does anything else."""
        return [Index.of(statement) for statement in statements(self.sql)]

    def _head(self) -> tuple[str, int | None]:
        match = _HEAD.fullmatch(self.sql.partition("\n")[0].rstrip())
        if match is None:
            raise ValueError(f"step {self.number} ({self.name}) does not say its kind on line one")
        return match[1] or match[2], None if match[3] is None else int(match[3])

    @property
    def digest(self) -> str:
        """SHA-256 of the statements, hex; what stands in comments and how lines are broken does not count."""
        code = " ".join(line for line in self.sql.split("\n") if not line.lstrip().startswith("--"))
        return sha256(" ".join(code.split()).encode()).hexdigest()


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

    Each step is a transaction of its own, so that one that is cut off leaves those before it done, and takes
    as long as it takes. Raises `SchemaTooNew` when the database knows steps that this release cannot live
    with, `SchemaDiffers` when it was brought to a step by another text than this release has, `SchemaBusy`
    when a lock was not to be had, `RestoreUnderWay` unless it is the restore that asks, `Outage` when the
    database is away.
    """
    steps = [step for step in migrations() if up_to is None or step.number <= up_to]
    return await _applied(database, steps, restoring=restoring)


async def apply_to_empty(database: Database, numbers: Collection[int]) -> None:
    """Within a restore: make the schema as these steps make it, and no others."""
    steps = [step for step in migrations() if step.number in numbers]
    await _applied(database, steps, restoring=True)


async def _applied(database: Database, steps: Sequence[Migration], *, restoring: bool) -> list[int]:
    async def begin(connection: Connection) -> list[int]:
        return await _begin(connection, restoring=restoring)

    existing = set(await database.run(begin))
    return [step.number for step in steps if step.number not in existing and await _patiently(database, step)]


async def _patiently(database: Database, step: Migration) -> bool:
    """Do one step, giving way to whoever holds what it wants. Returns whether it was done here."""
    give_up_s = trio.current_time() + PATIENCE_S
    is_logged = False
    while True:
        try:
            applied = await _apply_step(database, step)
        except Outage as outage:
            if not isinstance(outage.__cause__, asyncpg.LockNotAvailableError):
                raise
            if trio.current_time() > give_up_s:
                raise SchemaBusy(
                    f"step {step.number} ({step.name}) of the schema did not get its locks within "
                    f"{PATIENCE_S:.0f} s; end what runs long on the database and start again"
                ) from None
        else:
            if applied is not None:
                return applied
        if not is_logged:
            is_logged = True
            log.warning("step %d (%s) of the schema waits for a lock", step.number, step.name)
        await trio.sleep(_REST_S)


async def _apply_step(database: Database, step: Migration) -> bool | None:
    """Do it. Returns whether it was done here, None while another process builds the indexes of one."""
    if not step.concurrent:
        return await database.run(lambda connection: _apply(connection, step), timeout_s=inf)
    return await database.run(lambda connection: _build(connection, step), transaction=False, timeout_s=inf)


async def _begin(connection: Connection, *, restoring: bool) -> list[int]:
    """Make the table of steps, and compare what was applied with what this release has; what was applied."""
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
        " applied_at timestamptz not null default now(), reads_from integer)"
    )
    if not await _knows_kinds(connection):
        await connection.execute("alter table schema_migration add column reads_from integer")
    return await _applied_steps(connection)


async def _knows_kinds(connection: Connection) -> bool:
    # Whether the table of steps was made since there are kinds of them.
    knows: bool = await connection.fetchval(
        "select exists (select from pg_attribute where attrelid = 'schema_migration'::regclass"
        " and attname = 'reads_from')"
    )
    return knows


async def steps_ahead(database: Database) -> tuple[list[int], list[Migration]]:
    """The numbers of the steps that the database has, and the steps of this release that it has not.

    Changes nothing. Raises as `migrate` does, and `SchemaDiffers` for tables like ours without a table of
    steps; an empty database has no steps.
    """

    async def work(connection: Connection) -> list[int]:
        # Whether there is a table of steps, and tables that every release had.
        [(steps, tables)] = await connection.fetch(
            "select to_regclass('schema_migration') is not null, coalesce(to_regclass('span'),"
            " to_regclass('trace')) is not null"
        )
        if steps:
            return await _applied_steps(connection)
        if tables:
            raise SchemaDiffers(
                "the database has tables of spans or traces and no table of the steps that made them"
                " (schema_migration), so no release can upgrade it: restore a backup of it into an empty"
                " database, or name another database"
            )
        return []

    applied = await database.run(work, readonly=True)
    return applied, [step for step in migrations() if step.number not in applied]


async def _applied_steps(connection: Connection) -> list[int]:
    """What was applied. Raises `SchemaTooNew` and `SchemaDiffers`."""
    # By which text, and who can live with it; who does not say, with nobody older.
    least = "coalesce(reads_from, number)" if await _knows_kinds(connection) else "number"
    rows = await connection.fetch(
        f"select number, digest, {least} as reads_from from schema_migration order by number"
    )
    by_number = {step.number: step for step in migrations()}
    newest = max(by_number)
    for row in rows:
        step = by_number.get(row["number"])
        if row["number"] > newest and row["reads_from"] > newest:
            raise SchemaTooNew(
                f"the database is at step {rows[-1]['number']}, this release knows {newest} and cannot live"
                f" with step {row['number']}: a newer one migrated it; start that one"
            )
        if step is not None and step.digest != row["digest"]:
            raise SchemaDiffers(
                f"step {step.number} ({step.name}) of the database was applied with another text than this"
                " release has: bring back the release that made it, or restore a backup"
            )
    return [row["number"] for row in rows]


async def _apply(connection: Connection, step: Migration) -> bool:
    """Do one step, unless another process has done it meanwhile."""
    # One migrating process at a time; the lock ends with the transaction.
    await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
    if await _is_done(connection, step):
        return False
    await connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT_S:.0f}s'")
    await connection.execute(step.sql)
    await note_step(connection, step)
    return True


async def _build(connection: Connection, step: Migration) -> bool | None:
    """Build the indexes of a step, unless another process has, or is at it: then None.

    The lock is the session's: it ends with it, and not before a build that its killed process left behind.
    """
    if not await connection.fetchval("select pg_try_advisory_lock($1)", _BUILD_LOCK):
        return None
    is_done = await _is_done(connection, step)
    if not is_done:
        await build_indexes(connection, step)
    await connection.execute("select pg_advisory_unlock($1)", _BUILD_LOCK)
    return not is_done


async def build_indexes(connection: Connection, step: Migration) -> None:
    """Do a step that is `concurrent`, outside of a transaction, and write down that it was done."""
    for index in step.indexes():
        await build(connection, index, lock_timeout_s=LOCK_TIMEOUT_S, patience_s=PATIENCE_S)
    await note_step(connection, step)


async def _is_done(connection: Connection, step: Migration) -> bool:
    # Whether the step is in the table of steps.
    exists: bool = await connection.fetchval(
        "select exists (select from schema_migration where number = $1)", step.number
    )
    return exists


async def note_step(connection: Connection, step: Migration) -> None:
    """Write down that it was done, in the transaction that did it."""
    await connection.execute(
        "insert into schema_migration (number, name, digest, reads_from) values ($1, $2, $3, $4)",
        step.number,
        step.name,
        step.digest,
        step.reads_from,
    )
