"""What becomes of a case when its findings move: it follows the values of its first cause, it escalates, it
is resolved with its last cause.

Called by the verbs of findings and cases, in their transactions and in their project's turn.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from protocol.detection import ESCALATES_BY, SYSTEM, Author, Detection, Resolution
from svc.domain.detect.findings.severity import band
from svc.domain.quantities import count
from svc.store.detection.cases.trail import note
from svc.store.postgres.database import Connection

#: Severities are sums of halves and roots: a rise of exactly the bound may come out a little below it.
_ROUNDING: Final = 1e-9


async def escalate(
    connection: Connection, project_id: int, case_id: UUID, finding_id: UUID, detection: Detection
) -> None:
    """Bring an unresolved case up to date with a firing of one of its findings; say when it grew worse."""
    # What it was, and how bad the worst of its live findings is now.
    case = await connection.fetchrow(
        "select c.finding_id, c.severity_told, (select max(f.severity) from case_finding l"
        " join finding f on f.project_id = l.project_id and f.id = l.finding_id and f.closed_at is null"
        " where l.project_id = c.project_id and l.case_id = c.id) as worst from detection_case c"
        " where c.project_id = $1 and c.id = $2 and c.state <> 'resolved'",
        project_id,
        case_id,
    )
    if case is None:
        return
    worst: float = case["worst"]
    worse = worst - case["severity_told"] >= ESCALATES_BY - _ROUNDING
    # How bad it is, and when it was seen.
    await connection.execute(
        "update detection_case set last_seen_at = greatest(last_seen_at, $3), severity_score = $4,"
        " severity = $5, severity_told = case when $6 then $4 else severity_told end"
        " where project_id = $1 and id = $2",
        project_id,
        case_id,
        detection.seen_at or detection.detected_at,
        worst,
        band(worst),
        worse,
    )
    if case["finding_id"] == finding_id:
        # Its words and values are those of its first cause.
        await connection.execute(
            "update detection_case set title = $3, basis = $4, current_value = $5, baseline_value = $6,"
            " delta = $7 where project_id = $1 and id = $2",
            project_id,
            case_id,
            detection.title,
            detection.basis,
            detection.current_value,
            detection.baseline_value,
            detection.delta,
        )
    if worse:
        summary = f"severity {count(case['severity_told'])} to {count(worst)}"
        await note(
            connection,
            project_id,
            case_id,
            "escalated",
            detection.cause.detector,
            summary,
            detection.detected_at,
        )


async def settle(
    connection: Connection,
    project_id: int,
    case_id: UUID | None,
    resolution: Resolution,
    by: Author,
    now: datetime,
) -> None:
    """Resolve a case of which no cause is live any more. None: the finding stands in no case."""
    if case_id is None:
        return
    # Whether it is unresolved, and a cause of it lives.
    lives: bool | None = await connection.fetchval(
        "select exists (select from case_finding l"
        " join finding f on f.project_id = l.project_id and f.id = l.finding_id and f.closed_at is null"
        " where l.project_id = c.project_id and l.case_id = c.id and l.role = 'cause')"
        " from detection_case c where c.project_id = $1 and c.id = $2 and c.state <> 'resolved'",
        project_id,
        case_id,
    )
    if lives is False:
        # What recovered closed itself.
        actor = SYSTEM if resolution == "recovered" else by
        await resolve(connection, project_id, case_id, resolution, None, actor, now)


async def resolve(
    connection: Connection,
    project_id: int,
    case_id: UUID,
    resolution: Resolution,
    reason: str | None,
    by: Author,
    now: datetime,
) -> None:
    """Resolve an unresolved case. A mute outlives all but what a person does: then it is over."""
    # Resolved, with who did it and why.
    await connection.execute(
        "update detection_case set state = 'resolved', resolved_at = $3, resolution = $4,"
        " resolution_reason = $5, resolved_by = $6,"
        " muted_at = case when $7 then null else muted_at end,"
        " muted_by = case when $7 then null else muted_by end,"
        " muted_until = case when $7 then null else muted_until end where project_id = $1 and id = $2",
        project_id,
        case_id,
        now,
        resolution,
        reason,
        by.name,
        by.kind == "person",
    )
    kind = resolution if resolution in ("absorbed", "rejected") else "resolved"
    await note(connection, project_id, case_id, kind, by.name, reason or resolution, now)
