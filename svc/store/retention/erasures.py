"""What was asked to be erased, and how far that is: asked, listed, checked.

Owns the table `erasure`. People ask over REST and on pages, operators by `trace-svc erase`; `Erasing`
(`svc.store.retention.erasing`) does it in portions. Whoever asks puts the tombstones in the same transaction,
so that nothing new of it is stored from then on.

Secrets: whom an erasure is about stands in its row until it is done, and in no audit row and no log line;
what stays is a keyed digest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.storage import Erasable, ErasedNote
from svc.store.accounts.audit import record
from svc.store.accounts.projects import lock_project
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.tombstones import digest_of, salt_of

#: How long what was erased is refused: longer than any spool or broker keeps what is on its way.
TOMBSTONE_TERM: Final = timedelta(days=30)
#: Erasures that a page lists, and that may wait in one project.
LISTED: Final = 50
MOST_WAITING: Final = 1_000

_FIELDS: Final = "project_id, id, kind, subject, digest, asked_by, asked_at, phase, counts::text, finished_at"


@attrs.frozen
class Erasure:
    """One erasure. `subject` is None once it is done."""

    project_id: int
    id: UUID
    kind: Erasable
    subject: str | None = attrs.field(repr=False)
    digest: bytes
    asked_by: str
    asked_at: datetime
    phase: str
    counts: Mapping[str, int]
    finished_at: datetime | None


def erasure_of(row: Any) -> Erasure:
    """An erasure from its row."""
    return Erasure(**{**dict(row.items()), "counts": msgspec.json.decode(row["counts"])})


@attrs.define(eq=False)
class ErasureStore:
    """All verbs raise `Outage`."""

    database: Database

    async def ask(
        self,
        project_id: int,
        kind: Erasable,
        subject: str,
        *,
        actor: str,
        now: datetime,
        noted_at: datetime | None = None,
    ) -> Erasure | None:
        """Note that this is to be erased; one that waits already is the same. None: too many wait.

        `noted_at` says that it is written down outside of the database already.
        """

        async def work(connection: Connection) -> Erasure | None:
            digest = digest_of(await salt_of(connection), kind, subject)
            # One after the other, by the project's row.
            await lock_project(connection, project_id)
            waiting = await connection.fetch(
                f"select {_FIELDS} from erasure where project_id = $1 and finished_at is null"
                " order by asked_at",
                project_id,
            )
            pending = [row for row in waiting if row["digest"] == digest and row["phase"] == "finding"]
            if pending:
                return erasure_of(pending[0])
            if len(waiting) >= MOST_WAITING:
                return None
            row = await connection.fetchrow(
                "insert into erasure (project_id, kind, subject, digest, asked_by, asked_at, noted_at)"
                f" values ($1, $2, $3, $4, $5, $6, $7) returning {_FIELDS}",
                *(project_id, kind, subject, digest, actor, now, noted_at),
            )
            erasure = erasure_of(row)
            if kind == "trace":
                await bury(connection, project_id, erasure.id, [bytes.fromhex(subject)], now)
            else:
                await connection.execute(
                    "insert into erased_subject (project_id, digest, before, until) values ($1, $2, $3, $4)"
                    " on conflict (project_id, digest) do update set before = excluded.before,"
                    " until = excluded.until",
                    *(project_id, digest, now, now + TOMBSTONE_TERM),
                )
            # That, and by whom; never what.
            await record(
                connection,
                "data.erase",
                actor=actor,
                project_id=project_id,
                subject=(kind, digest.hex()),
                details={"erasure": str(erasure.id)},
            )
            return erasure

        return await self.database.run(work)

    async def recent(self, project_id: int, kind: Erasable | None = None) -> Sequence[Erasure]:
        """The newest erasures of a project."""
        rows = await self.database.fetch(
            f"select {_FIELDS} from erasure where project_id = $1 and ($2::text is null or kind = $2)"
            " order by asked_at desc, id desc limit $3",
            *(project_id, kind, LISTED),
        )
        return [erasure_of(row) for row in rows]

    async def one(self, project_id: int, erasure_id: UUID) -> Erasure | None:
        """An erasure by its id."""
        rows = await self.database.fetch(
            f"select {_FIELDS} from erasure where project_id = $1 and id = $2", project_id, erasure_id
        )
        return erasure_of(rows[0]) if rows else None

    async def earlier(self, project_id: int, kind: Erasable, subject: str) -> Sequence[Erasure]:
        """When this very id was erased before, the newest first."""

        async def work(connection: Connection) -> Sequence[Erasure]:
            digest = digest_of(await salt_of(connection), kind, subject)
            rows = await connection.fetch(
                f"select {_FIELDS} from erasure where project_id = $1 and digest = $2"
                f" order by asked_at desc limit {LISTED}",
                *(project_id, digest),
            )
            return [erasure_of(row) for row in rows]

        return await self.database.run(work)

    async def unnoted(self) -> Sequence[tuple[UUID, ErasedNote]]:
        """Erasures that nobody has written down outside of the database yet."""
        rows = await self.database.fetch(
            "select e.id, o.slug || '/' || p.slug as project, e.kind, f.value as salt,"
            " encode(e.digest, 'hex') as digest, e.asked_at from erasure e"
            " join project p on p.id = e.project_id join organization o on o.id = p.org_id"
            " join instance_fact f on f.name = 'erasure_salt' where e.noted_at is null"
            f" order by e.asked_at limit {MOST_WAITING}"
        )
        return [(row["id"], ErasedNote(**{k: v for k, v in row.items() if k != "id"})) for row in rows]

    async def noted(self, ids: Sequence[UUID], now: datetime) -> None:
        """They are written down."""
        await self.database.fetch("update erasure set noted_at = $2 where id = any($1::uuid[])", ids, now)

    async def drop_expired(self, now: datetime) -> None:
        """Forget tombstones whose term is over."""
        for table in ("erased_trace", "erased_subject"):
            # By the index on its term; those of an erasure that runs are younger.
            await self.database.fetch(f"delete from {table} where until < $1", now)


async def bury(
    connection: Connection, project_id: int, erasure_id: UUID, trace_ids: Sequence[bytes], now: datetime
) -> int:
    """Put tombstones for these traces, which the erasure deletes next. Returns how many are new to it."""
    rows = await connection.fetch(
        "insert into erased_trace as e (project_id, trace_id, erasure_id, until)"
        " select $1, t, $2, $4 from unnest($3::bytea[]) as named (t) order by t"
        " on conflict (project_id, trace_id) do update set erasure_id = excluded.erasure_id, gone = false,"
        " until = excluded.until where e.erasure_id <> excluded.erasure_id or e.gone returning trace_id",
        *(project_id, erasure_id, sorted(trace_ids), now + TOMBSTONE_TERM),
    )
    return len(rows)
