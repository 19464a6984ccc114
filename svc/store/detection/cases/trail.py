"""What every verb of detection does beside its own: it waits for its turn, adds to a trail, tells the audit.

Owns the tables `case_counter` and `case_event`. Called by the stores beside this, inside their transactions.

Ordering: whoever writes findings, cases or reports of a project takes its turn first, by locking the
project's row of `case_counter` until the commit. So two replicas, or a person and a detector, act one after
the other, each sees what the one before did, and no two of their locks can be taken in two orders.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from protocol.detection import Author
from svc.store.accounts.audit import Action, record
from svc.store.alerts.outbox import tell_of_case
from svc.store.postgres.database import Connection


async def take_turn(connection: Connection, project_id: int) -> int:
    """Wait until nobody else writes detections of the project. Returns the last number of its cases."""
    # The row, once.
    await connection.execute(
        "insert into case_counter (project_id, last_number) values ($1, 0) on conflict do nothing", project_id
    )
    # Locked until the commit.
    last_number: int = await connection.fetchval(
        "select last_number from case_counter where project_id = $1 for update", project_id
    )
    return last_number


async def note(
    connection: Connection,
    project_id: int,
    case_id: UUID,
    kind: str,
    actor: str,
    summary: str,
    now: datetime,
) -> None:
    """Add a step to the trail of a case, in the transaction of what it tells. Never the text of a ruling.

    Rules of alerts hear of it in the same transaction.
    """
    # One step.
    step_id = await connection.fetchval(
        "insert into case_event (project_id, case_id, kind, actor, summary, created_at)"
        " values ($1, $2, $3, $4, $5, $6) returning id",
        project_id,
        case_id,
        kind,
        actor,
        summary,
        now,
    )
    await tell_of_case(connection, project_id, case_id, kind, step_id, now)


async def audit(
    connection: Connection,
    action: Action,
    project_id: int,
    subject: tuple[str, UUID],
    by: Author,
    details: Mapping[str, Any],
) -> None:
    """Record what a person did, in the transaction of it; what detectors and agents do is no matter of it."""
    if by.kind != "person":
        return
    kind, subject_id = subject
    await record(
        connection,
        action,
        actor=by.name,
        project_id=project_id,
        subject=(kind, str(subject_id)),
        details=details,
    )
