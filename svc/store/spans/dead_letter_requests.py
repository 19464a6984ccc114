"""Dead letters as people deal with them: by reason, one by one, replayed or discarded.

Called by pages and the REST API for one project, and by the command line for each project that has letters.
A replay or a discarding is recorded in the audit with how many letters it was about. The table is that of
`svc.store.spans.dead_letters`.

Ordering: the audit row of a replay is written before the first letter is tried, so that none is tried without
it; a letter goes only after its spans are stored, and a crash between the two stores nothing twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from math import inf
from typing import Any, Final

import attrs
import trio

from protocol.storage import Batch, Written
from svc.store.accounts.audit import Action, record
from svc.store.postgres.database import Connection, Database
from svc.store.spans.dead_letters import LetterRow, written_again

REASONS_SHOWN: Final = 50
#: Bodies up to this size come with a page of letters, so that it can say whose they are.
BODY_WITH_PAGE_BYTES: Final = 64 * 1024
_MINE: Final = (
    "project_id = $1 and ($2::bigint[] is null or id = any($2)) and ($3::text is null or reason = $3)"
)


@attrs.frozen
class Chosen:
    """Which letters of a project: these, those of a reason, or all."""

    ids: Sequence[int] | None = None
    reason: str | None = None


@attrs.frozen
class Bound:
    """How many letters are replayed at once at the most, and how long that may take."""

    letters: float = 1_000
    seconds: float = 20.0


#: What one press of a button or one request replays; and the command line, which may take its time.
ONE_PRESS: Final = Bound()
NO_BOUND: Final = Bound(inf, inf)


@attrs.frozen
class Dealt:
    """What became of letters: how many went and their spans, spans stored anew, letters refused once more,
    and how many of those chosen nobody came to.
    """

    letters: int = 0
    spans: int = 0
    stored: int = 0
    refused: int = 0
    left: int = 0


@attrs.frozen
class ReasonRow:
    """The letters of one reason."""

    reason: str
    letters: int
    spans: int
    bytes: int
    newest_at: datetime


@attrs.frozen
class LetterHead:
    """A letter of a list. `body` is None when it is too large to come along."""

    id: int
    reason: str
    spans: int
    size: int
    received_at: datetime
    buried_at: datetime
    body: bytes | None = attrs.field(repr=False)


@attrs.frozen
class AuditScope:
    """Who deals with letters: the project and its organization, and the actor of the audit.

    Without an organization, as of letters that nobody can read a project from, there is no audit.
    """

    project_id: int
    org_id: int | None
    actor: str


@attrs.define(eq=False)
class DeadLetterRequests:
    """All verbs raise `Outage`."""

    database: Database

    async def reasons(self, project_id: int) -> list[ReasonRow]:
        """Why letters lie here, the most frequent reason first."""
        # The letters of a project, without their bodies.
        rows = await self.database.fetch(
            "select reason, count(*) as letters, sum(spans)::bigint as spans,"
            " sum(octet_length(body))::bigint as bytes, max(buried_at) as newest_at from dead_letter"
            f" where project_id = $1 group by reason order by 2 desc, 1 limit {REASONS_SHOWN}",
            project_id,
        )
        return [ReasonRow(**dict(row.items())) for row in rows]

    async def page(
        self, project_id: int, reason: str | None, before: int | None, limit: int
    ) -> list[LetterHead]:
        """Letters, the newest first, older than one of them."""
        # Down the key.
        rows = await self.database.fetch(
            "select id, reason, spans, octet_length(body) as size, received_at, buried_at,"
            " case when octet_length(body) <= $5 then body end as body from dead_letter"
            " where project_id = $1 and ($2::text is null or reason = $2) and ($3::bigint is null or id < $3)"
            " order by id desc limit $4",
            project_id,
            reason,
            before,
            limit,
            BODY_WITH_PAGE_BYTES,
        )
        return [LetterHead(**dict(row.items())) for row in rows]

    async def one(self, project_id: int, letter_id: int) -> LetterRow | None:
        """One letter, whole."""
        # By its key.
        rows = await self.database.fetch(
            "select id, project_id, reason, spans, received_at, buried_at, body from dead_letter"
            " where project_id = $1 and id = $2",
            project_id,
            letter_id,
        )
        return LetterRow(**dict(rows[0].items())) if rows else None

    async def everywhere(self, after: int, limit: int) -> list[LetterRow]:
        """Letters of all projects in the order of their burial, behind an id; for the command line."""
        # Up the key.
        rows = await self.database.fetch(
            "select id, project_id, reason, spans, received_at, buried_at, body from dead_letter"
            " where id > $1 order by id limit $2",
            after,
            limit,
        )
        return [LetterRow(**dict(row.items())) for row in rows]

    async def scopes(self, ids: Sequence[int] | None, actor: str) -> list[AuditScope]:
        """A scope for each project that has letters, or some of these; for the command line."""
        # The projects of the letters, by the key.
        rows = await self.database.fetch(
            "select letters.project_id, project.org_id from (select distinct project_id from dead_letter"
            " where $1::bigint[] is null or id = any($1)) as letters"
            " left join project on project.id = letters.project_id order by 1",
            ids,
        )
        return [AuditScope(row["project_id"], row["org_id"], actor) for row in rows]

    async def count(self, project_id: int, chosen: Chosen) -> int:
        """How many letters are meant."""
        # Down the key.
        rows = await self.database.fetch(
            f"select count(*) as n from dead_letter where {_MINE}", project_id, chosen.ids, chosen.reason
        )
        count: int = rows[0]["n"]
        return count

    async def discard(self, scope: AuditScope, chosen: Chosen) -> Dealt:
        """Delete letters for good."""

        async def work(connection: Connection) -> Dealt:
            # The letters, counted as they go.
            row: Any = await connection.fetchrow(
                f"with gone as (delete from dead_letter where {_MINE} returning spans)"
                " select count(*) as n, coalesce(sum(spans), 0)::bigint as spans from gone",
                scope.project_id,
                chosen.ids,
                chosen.reason,
            )
            if row["n"]:
                await _told(connection, "dead_letter.discard", scope, chosen, row["n"])
            return Dealt(row["n"], row["spans"])

        return await self.database.run(work)

    async def replay(
        self,
        scope: AuditScope,
        chosen: Chosen,
        write: Callable[[Batch], Awaitable[Written]],
        bound: Bound = ONE_PRESS,
    ) -> Dealt:
        """Write letters again, the oldest first, within a bound; refused ones stay, with why.

        Cancellation: between two letters; what was written stays written.
        """
        count = await self.count(scope.project_id, chosen)
        if not count:
            return Dealt()
        await self.database.run(
            lambda connection: _told(connection, "dead_letter.replay", scope, chosen, count)
        )
        after_id, until_s = 0, trio.current_time() + bound.seconds
        written = spans = stored = refused = 0
        while written + refused < bound.letters and trio.current_time() < until_s:
            letter = await self._next(scope.project_id, chosen, after_id)
            if letter is None:
                break
            after_id = letter.id
            again = await written_again(letter, write)
            if isinstance(again, str):
                refused += 1
                await self._refused(letter.id, again)
            else:
                written, spans, stored = written + 1, spans + letter.spans, stored + again
                await self._gone(letter.id)
        return Dealt(written, spans, stored, refused, max(count - written - refused, 0))

    async def _next(self, project_id: int, chosen: Chosen, after: int) -> LetterRow | None:
        # One letter, by the key: bodies may be large.
        rows: Sequence[Any] = await self.database.fetch(
            "select id, project_id, reason, spans, received_at, buried_at, body from dead_letter"
            f" where {_MINE} and id > $4 order by id limit 1",
            project_id,
            chosen.ids,
            chosen.reason,
            after,
        )
        return LetterRow(**dict(rows[0].items())) if rows else None

    async def _gone(self, letter_id: int) -> None:
        # Its spans are stored.
        await self.database.fetch("delete from dead_letter where id = $1", letter_id)

    async def _refused(self, letter_id: int, reason: str) -> None:
        # Why it was refused this time.
        await self.database.fetch("update dead_letter set reason = $2 where id = $1", letter_id, reason)


async def _told(
    connection: Connection, action: Action, scope: AuditScope, chosen: Chosen, letters: int
) -> None:
    if scope.org_id is None:
        return
    ids = chosen.ids
    subject = "all" if ids is None else str(ids[0]) if len(ids) == 1 else "several"
    await record(
        connection,
        action,
        actor=scope.actor,
        org_id=scope.org_id,
        project_id=scope.project_id,
        subject=("dead_letter", subject),
        details={"letters": letters} | ({} if chosen.reason is None else {"reason": chosen.reason[:200]}),
    )
