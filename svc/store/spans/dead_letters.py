"""Dead letters: what the database refused or what could not be decoded, kept with its reason until somebody
replays or drops it.

Owns the table `dead_letter`. Drainers bury, the command line lists, shows, replays and drops. Replaying is
idempotent: a span that is stored already counts as a duplicate by the identity rule, and the letter goes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from protocol.storage import Batch, Letter, Outage, StoreRefused, Written
from svc.store.postgres.database import Connection, Database

REPLAY_PAGE: Final = 100


@attrs.frozen
class LetterRow:
    """A letter as it lies in the table."""

    id: int
    project_id: int
    reason: str
    spans: int
    received_at: datetime
    buried_at: datetime
    body: bytes = attrs.field(repr=False)


@attrs.frozen
class Replayed:
    """What became of a replay: letters written, spans stored anew, letters refused once more."""

    letters: int
    stored: int
    refused: int


@attrs.define(eq=False)
class DeadLetterStore:
    """The table and its verbs. All raise `Outage`."""

    database: Database

    async def bury(self, letters: Sequence[Letter]) -> None:
        """Keep what could not be stored, with the reason."""

        async def work(connection: Connection) -> None:
            # The letters, one row each.
            await connection.executemany(
                "insert into dead_letter (project_id, reason, spans, received_at, body)"
                " values ($1, $2, $3, $4, $5)",
                [
                    (letter.project_id, letter.reason, letter.spans, letter.received_at, letter.body)
                    for letter in letters
                ],
            )

        await self.database.run(work)

    async def count_spans(self) -> int:
        """How many spans lie here."""

        async def work(connection: Connection) -> int:
            # All spans buried and neither replayed nor dropped since.
            found: int = await connection.fetchval("select coalesce(sum(spans), 0)::bigint from dead_letter")
            return found

        return await self.database.run(work, readonly=True)

    async def page(self, after: int, limit: int, ids: Sequence[int] | None = None) -> list[LetterRow]:
        """Letters in the order of their burial, behind an id; `ids` picks some of them."""

        async def work(connection: Connection) -> list[Any]:
            # A page by key.
            return await connection.fetch(
                "select id, project_id, reason, spans, received_at, buried_at, body from dead_letter"
                " where id > $1 and ($3::bigint[] is null or id = any($3)) order by id limit $2",
                after,
                limit,
                ids,
            )

        rows = await self.database.run(work, readonly=True)
        return [LetterRow(**dict(row.items())) for row in rows]

    async def drop(self, ids: Sequence[int] | None) -> int:
        """Delete letters for good, or all of them. Returns how many there were."""

        async def work(connection: Connection) -> int:
            # The letters, counted as they go.
            found: int = await connection.fetchval(
                "with gone as (delete from dead_letter where $1::bigint[] is null or id = any($1)"
                " returning 1) select count(*) from gone",
                ids,
            )
            return found

        return await self.database.run(work)

    async def replay(
        self, ids: Sequence[int] | None, write: Callable[[Batch], Awaitable[Written]]
    ) -> Replayed:
        """Write letters again, oldest first; those that are refused once more stay, with the new reason.

        A crash between writing and deleting leaves a letter whose spans are stored; replaying it again
        stores nothing twice.
        """
        after, written, stored, refused = 0, 0, 0, 0
        while letters := await self.page(after, REPLAY_PAGE, ids):
            for letter in letters:
                after = letter.id
                again = await written_again(letter, write)
                if isinstance(again, str):
                    refused += 1
                    await self._note(letter.id, again)
                else:
                    written, stored = written + 1, stored + again
                    await self.drop([letter.id])
        return Replayed(written, stored, refused)

    async def _note(self, letter_id: int, reason: str) -> None:
        # Why it was refused this time.
        await self.database.run(
            lambda connection: connection.execute(
                "update dead_letter set reason = $2 where id = $1", letter_id, reason
            )
        )


async def written_again(letter: LetterRow, write: Callable[[Batch], Awaitable[Written]]) -> int | str:
    """How many spans of a letter were stored, or why it is refused once more. Raises `Outage`."""
    batch = Batch(letter.project_id, letter.body, letter.spans, letter.received_at, 0.0)
    try:
        return (await write(batch)).stored
    except Outage:
        raise
    except Exception as error:
        return reason_of(error)


def reason_of(error: Exception) -> str:
    """Why a letter was refused once more."""
    return str(error) if isinstance(error, StoreRefused) else f"{type(error).__name__}: {error}"[:500]
