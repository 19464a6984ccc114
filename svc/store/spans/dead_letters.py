"""Dead letters: what the database refused or what could not be decoded, kept with its reason until somebody
replays or drops it.

Owns the table `dead_letter`. Drainers bury; what people do with letters is in
`svc.store.spans.dead_letter_requests`. Replaying is idempotent: a span that is stored already counts as a
duplicate by the identity rule, and the letter goes. What was erased is buried no more than it is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime

import attrs

from protocol.inflate import Unreadable
from protocol.otlp.reading import read_clean
from protocol.storage import Batch, Letter, Outage, StoreRefused, Written
from svc.domain.intake.masking import Masker
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.tombstones import erased_among, hold
from svc.store.spans.dead_letter_erasing import named_in, remains_of
from svc.store.spans.masking import MaskingStore


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


@attrs.define(eq=False)
class DeadLetterStore:
    """The table and its verbs. All raise `Outage`."""

    database: Database

    async def bury(self, letters: Sequence[Letter]) -> None:
        """Keep what could not be stored, with the reason."""
        letters = await self._masked(letters)

        async def work(connection: Connection) -> None:
            storable = await _without_erased(connection, letters)
            # The letters, one row each.
            await connection.execute(
                "insert into dead_letter (project_id, reason, spans, received_at, body) select * from"
                " unnest($1::bigint[], $2::text[], $3::integer[], $4::timestamptz[], $5::bytea[])",
                [letter.project_id for letter in storable],
                [letter.reason for letter in storable],
                [letter.spans for letter in storable],
                [letter.received_at for letter in storable],
                [letter.body for letter in storable],
            )

        await self.database.run(work)

    async def _masked(self, letters: Sequence[Letter]) -> Sequence[Letter]:
        """The letters as their projects have them stored; what cannot be read stays as it came."""
        rules = await MaskingStore(self.database).every_rule()
        if not rules.keys() & {letter.project_id for letter in letters}:
            return letters
        masker = Masker()
        masker.adopt(rules)
        masked_letters = []
        for letter in letters:
            body = letter.body
            with suppress(Unreadable):
                request = read_clean(body)
                masker.mask(letter.project_id, request)
                body = request.SerializeToString()
            masked_letters.append(attrs.evolve(letter, body=body))
        return masked_letters

    async def count_spans(self) -> int:
        """How many spans lie here."""
        # All spans buried and neither replayed nor dropped since.
        rows = await self.database.fetch("select coalesce(sum(spans), 0)::bigint as spans from dead_letter")
        span_count: int = rows[0]["spans"]
        return span_count


async def _without_erased(connection: Connection, letters: Sequence[Letter]) -> Sequence[Letter]:
    """The letters without spans that were erased; none that holds nothing else."""
    state = await hold(connection, {letter.project_id for letter in letters})
    if not state.marked:
        return letters
    storable = []
    for letter in letters:
        mentions = named_in(letter.body) if letter.project_id in state.marked else None
        erased = await erased_among(
            connection, state, ((letter.project_id, *ids[:3]) for ids in mentions or ())
        )
        remains = None if erased is None else remains_of(letter.project_id, letter.body, erased)
        if remains is None:
            storable.append(letter)
        elif remains.spans:
            storable.append(attrs.evolve(letter, body=remains.body, spans=remains.spans))
    return storable


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
