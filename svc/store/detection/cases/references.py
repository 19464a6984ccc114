"""References that are to move because people said that the present is normal, and the log of those that did.

Owns the table `reference_move`. Absorbing a case or expecting a finding asks for a move in its transaction;
the detector reads what is pending, waits until it has measured enough of the new normal, moves its reference
and says so. Never moves a reference itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import attrs

from protocol.detection import Author, ReferenceMove
from svc.store.postgres.database import Connection, Database

#: Pending moves that are read at once; a detector comes back for more.
MOVES_READ: Final = 1_000


async def ask_for_move(
    connection: Connection, project_id: int, finding_ids: Sequence[UUID], by: Author, now: datetime
) -> None:
    """Ask that the references of these findings move, where they have one; asked again, the last counts."""
    # One pending move a reference.
    await connection.execute(
        "insert into reference_move (project_id, detector, reference, from_at, finding_id, asked_by,"
        " asked_at)"
        " select distinct on (detector, reference) project_id, detector, reference, onset_at, id, $3, $4"
        " from finding where project_id = $1 and id = any($2::uuid[]) and reference is not null"
        " order by detector, reference, onset_at desc"
        " on conflict (project_id, detector, reference) where applied_at is null and withdrawn_at is null"
        " do update set from_at = excluded.from_at, finding_id = excluded.finding_id,"
        " asked_by = excluded.asked_by, asked_at = excluded.asked_at",
        project_id,
        list(finding_ids),
        by.name,
        now,
    )


async def withdraw_moves(
    connection: Connection, project_id: int, finding_ids: Sequence[UUID], now: datetime
) -> None:
    """Take back what was asked for these findings and is not done yet."""
    # The pending ones.
    await connection.execute(
        "update reference_move set withdrawn_at = $3 where project_id = $1"
        " and finding_id = any($2::uuid[]) and applied_at is null and withdrawn_at is null",
        project_id,
        list(finding_ids),
        now,
    )


@attrs.define(eq=False)
class ReferenceStore:
    """What detectors read and answer. All verbs raise `Outage`."""

    database: Database

    async def pending(self, project_id: int) -> list[ReferenceMove]:
        """The moves that are asked for and not done, the oldest first."""
        # Down the index of pending moves.
        rows = await self.database.fetch(
            "select id, detector, reference, from_at, asked_by, asked_at, finding_id from reference_move"
            " where project_id = $1 and applied_at is null and withdrawn_at is null"
            f" order by id limit {MOVES_READ}",
            project_id,
        )
        return [ReferenceMove(**dict(row.items())) for row in rows]

    async def applied(self, project_id: int, move: ReferenceMove, now: datetime) -> bool:
        """Note that a reference has moved as asked. False: another run was asked for meanwhile, or none."""
        # The very move that was read: asking again, or taking it back, changes it.
        rows = await self.database.fetch(
            "update reference_move set applied_at = $3 where project_id = $1 and id = $2"
            " and from_at = $4 and applied_at is null and withdrawn_at is null returning id",
            project_id,
            move.id,
            now,
            move.from_at,
        )
        return bool(rows)
