"""Making closed findings live again: what was decided of them is taken back, and no reference moves for them.

Called by the verbs that take back what people decided of cases and of findings, inside their transactions and
in the project's turn. Never moves a case.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from svc.store.detection.cases.references import withdraw_moves
from svc.store.detection.cases.rejecting import take_back
from svc.store.postgres.database import Connection


async def superseded(connection: Connection, project_id: int, finding_ids: Sequence[UUID]) -> bool:
    """Whether the cause of one of these is live in another finding."""
    # By the index of live causes.
    live_elsewhere: bool = await connection.fetchval(
        "select exists (select from finding f join finding o on o.project_id = f.project_id"
        " and o.detector = f.detector and o.cause_kind = f.cause_kind and o.cause_key = f.cause_key"
        " and o.closed_at is null where f.project_id = $1 and f.id = any($2::uuid[]))",
        project_id,
        list(finding_ids),
    )
    return live_elsewhere


async def revive(connection: Connection, project_id: int, finding_ids: Sequence[UUID], now: datetime) -> None:
    """Have them live again, as confirmed as they were."""
    ids = list(finding_ids)
    await take_back(connection, project_id, ids)
    await connection.execute(
        "update finding set status = case when confirmed then 'confirmed' else 'withheld' end,"
        " closed_at = null, closed_by = null, closed_as = null"
        " where project_id = $1 and id = any($2::uuid[])",
        project_id,
        ids,
    )
    await withdraw_moves(connection, project_id, ids, now)
