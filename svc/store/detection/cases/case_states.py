"""How people move a case between its states, and what triage writes to it.

Written over REST and by triage; no MCP tool comes here. Each verb adds a step to the trail and, when a person
acts, a row to the audit, in the transaction of what it tells. Two who act on one case at once take turns, and
the second hears who was first; whoever calls a verb again after an outage hears that it is done.

Ordering: every verb takes its project's turn first (`trail`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.detection import SYSTEM, Author, CaseMoved, CaseRefusal, Resolution
from svc.store.accounts.audit import Action
from svc.store.detection.cases.case_findings import unresolve
from svc.store.detection.cases.references import ask_for_move
from svc.store.detection.cases.rejecting import reject
from svc.store.detection.cases.reviving import revive, superseded
from svc.store.detection.cases.settling import resolve
from svc.store.detection.cases.trail import audit, note, take_turn
from svc.store.postgres.database import Connection, Database

#: Mutes that are ended in one transaction.
MUTES_ENDED: Final = 500

Moved = CaseMoved | CaseRefusal


@attrs.define(eq=False)
class CaseStates:
    """All verbs raise `Outage`."""

    database: Database

    async def mute(
        self, project_id: int, case_id: UUID, by: Author, now: datetime, until: datetime | None = None
    ) -> Moved:
        """Mute an open case until somebody unmutes it, or until a moment."""
        summary = "" if until is None else f"until {until:%Y-%m-%d %H:%M} UTC"

        async def work(connection: Connection, case: Any) -> Moved:
            if case["state"] == "resolved":
                return _resolved(case)
            if case["state"] == "muted":
                if _same(case, "muted", by, summary):
                    return _moved(case, "muted")
                return CaseRefusal("ALREADY_MUTED", case["muted_by"], case["muted_at"])
            await connection.execute(
                "update detection_case set state = 'muted', muted_at = $3, muted_by = $4, muted_until = $5"
                " where project_id = $1 and id = $2",
                project_id,
                case_id,
                now,
                by.name,
                until,
            )
            await _note_and_audit(connection, project_id, case_id, "muted", "case.mute", by, summary, now)
            return _moved(case, "muted")

        return await self._act(project_id, case_id, now, work)

    async def unmute(self, project_id: int, case_id: UUID, by: Author, now: datetime) -> Moved:
        """Unmute a case: it is open again."""

        async def work(connection: Connection, case: Any) -> Moved:
            if case["state"] != "muted":
                if case["state"] == "open" and _same(case, "unmuted", by, ""):
                    return _moved(case, "open")
                return _resolved(case) if case["state"] == "resolved" else CaseRefusal("NOT_MUTED")
            await _unmute(connection, project_id, [case_id])
            await _note_and_audit(connection, project_id, case_id, "unmuted", "case.unmute", by, "", now)
            return _moved(case, "open")

        return await self._act(project_id, case_id, now, work)

    async def end_mutes(self, project_id: int, now: datetime) -> int:
        """Write down mutes that have ended, at most `MUTES_ENDED`. Returns how many; reads knew before."""

        async def work(connection: Connection) -> int:
            # Without a turn when there is nothing to do, as nearly always.
            if not await connection.fetchval(
                "select exists (select from detection_case where project_id = $1 and state = 'muted'"
                " and muted_until <= $2)",
                project_id,
                now,
            ):
                return 0
            await take_turn(connection, project_id)
            # Those that have ended, the first first.
            rows = await connection.fetch(
                "select id, muted_until from detection_case where project_id = $1 and state = 'muted'"
                " and muted_until <= $2 order by muted_until limit $3",
                project_id,
                now,
                MUTES_ENDED,
            )
            await _unmute(connection, project_id, [row["id"] for row in rows])
            for row in rows:
                await note(
                    connection, project_id, row["id"], "unmuted", SYSTEM.name, "its time was over",
                    row["muted_until"],
                )  # fmt: skip
            return len(rows)

        return await self.database.run(work)

    async def resolve(self, project_id: int, case_id: UUID, reason: str, by: Author, now: datetime) -> Moved:
        """Open or muted to resolved, because somebody says why; its live findings close with it."""
        reason = reason.strip()
        if not reason:
            return CaseRefusal("REASON_REQUIRED")

        async def work(connection: Connection, case: Any) -> Moved:
            if case["state"] == "resolved":
                repeated = _same(case, "resolved", by, reason)
                return _moved(case, "resolved") if repeated else _resolved(case)
            await _end(connection, project_id, case_id, "resolved", reason, by, now)
            await audit(connection, "case.resolve", project_id, ("case", case_id), by, {"reason": reason})
            return _moved(case, "resolved")

        return await self._act(project_id, case_id, now, work)

    async def absorb(self, project_id: int, case_id: UUID, reason: str, by: Author, now: datetime) -> Moved:
        """Resolve a case because what it tells is the new normal: its detectors' references have to move."""
        reason = reason.strip()

        async def work(connection: Connection, case: Any) -> Moved:
            if case["state"] == "resolved":
                repeated = _same(case, "absorbed", by, reason or "absorbed")
                return _moved(case, "resolved") if repeated else _resolved(case)
            live = await _live(connection, project_id, case_id)
            movable = [row["id"] for row in live if row["reference"] is not None]
            if not movable:
                return CaseRefusal("NOT_ABSORBABLE")
            await ask_for_move(connection, project_id, movable, by, now)
            await _end(connection, project_id, case_id, "absorbed", reason or None, by, now)
            await audit(connection, "case.absorb", project_id, ("case", case_id), by, {"reason": reason})
            return _moved(case, "resolved")

        return await self._act(project_id, case_id, now, work)

    async def reject(self, project_id: int, case_id: UUID, reason: str, by: Author, now: datetime) -> Moved:
        """Resolve a case because nothing is wrong; its live findings are rejected, and compare as before."""
        reason = reason.strip()
        if not reason:
            return CaseRefusal("REASON_REQUIRED")

        async def work(connection: Connection, case: Any) -> Moved:
            if case["state"] == "resolved":
                repeated = _same(case, "rejected", by, reason)
                return _moved(case, "resolved") if repeated else _resolved(case)
            live = [row["id"] for row in await _live(connection, project_id, case_id)]
            await reject(connection, project_id, live, reason, by, now)
            await resolve(connection, project_id, case_id, "rejected", reason, by, now)
            await audit(connection, "case.reject", project_id, ("case", case_id), by, {"reason": reason})
            return _moved(case, "resolved")

        return await self._act(project_id, case_id, now, work)

    async def reopen(self, project_id: int, case_id: UUID, by: Author, now: datetime) -> Moved:
        """Take back a resolution: the case is open again, and live again is what closed with it.

        References that were to move stay where they are, as far as they have not moved.
        """

        async def work(connection: Connection, case: Any) -> Moved:
            if case["state"] != "resolved":
                repeated = _same(case, "reopened", by, "")
                return _moved(case, case["state"]) if repeated else CaseRefusal("NOT_RESOLVED")
            # The findings that closed with it.
            closed = await connection.fetch(
                "select f.id from case_finding l"
                " join finding f on f.project_id = l.project_id and f.id = l.finding_id"
                " where l.project_id = $1 and l.case_id = $2 and f.closed_at = $3 and f.closed_as = $4",
                project_id,
                case_id,
                case["resolved_at"],
                case["resolution"],
            )
            ids = [row["id"] for row in closed]
            if await superseded(connection, project_id, ids):
                return CaseRefusal("SUPERSEDED")
            await revive(connection, project_id, ids, now)
            await unresolve(connection, project_id, case_id, now)
            await _unmute(connection, project_id, [case_id])
            await _note_and_audit(connection, project_id, case_id, "reopened", "case.reopen", by, "", now)
            return _moved(case, "open")

        return await self._act(project_id, case_id, now, work)

    async def rule(
        self, project_id: int, case_id: UUID, ruling: dict[str, Any], by: Author, now: datetime
    ) -> Moved:
        """Keep what triage decided, in any state. Secrets: the ruling stands in no step of the trail."""

        async def work(connection: Connection, case: Any) -> Moved:
            # The ruling, in the place of an earlier one.
            await connection.execute(
                "update detection_case set ruling = $3::text::jsonb where project_id = $1 and id = $2",
                project_id,
                case_id,
                msgspec.json.encode(ruling).decode(),
            )
            await note(connection, project_id, case_id, "ruled", by.name, "", now)
            return _moved(case, case["state"])

        return await self._act(project_id, case_id, now, work)

    async def _act(
        self,
        project_id: int,
        case_id: UUID,
        now: datetime,
        work: Callable[[Connection, Any], Awaitable[Moved]],
    ) -> Moved:
        async def turn(connection: Connection) -> Moved:
            await take_turn(connection, project_id)
            # The case as it stands, its ended mute seen through, and the newest step of its trail.
            case = await connection.fetchrow(
                "select c.number, c.resolved_at, c.resolved_by, c.resolution, c.muted_at, c.muted_by,"
                " case when c.state = 'muted' and c.muted_until <= $3 then 'open' else c.state end as state,"
                " e.kind, e.actor, e.summary from detection_case c left join lateral"
                " (select kind, actor, summary from case_event where project_id = c.project_id"
                " and case_id = c.id and kind in ('opened', 'reopened', 'muted', 'unmuted', 'resolved',"
                " 'absorbed', 'rejected') order by id desc limit 1) e on true"
                " where c.project_id = $1 and c.id = $2",
                project_id,
                case_id,
                now,
            )
            return CaseRefusal("NOT_FOUND") if case is None else await work(connection, case)

        return await self.database.run(turn)


def _moved(case: Any, state: Any) -> CaseMoved:
    return CaseMoved(f"C-{case['number']}", state)


def _resolved(case: Any) -> CaseRefusal:
    return CaseRefusal("ALREADY_RESOLVED", case["resolved_by"], case["resolved_at"])


def _same(case: Any, kind: str, by: Author, summary: str) -> bool:
    """Whether the last move of a case was this very one: then the verb is called again after an outage."""
    return (case["kind"], case["actor"], case["summary"]) == (kind, by.name, summary)


async def _note_and_audit(
    connection: Connection,
    project_id: int,
    case_id: UUID,
    kind: str,
    action: Action,
    by: Author,
    summary: str,
    now: datetime,
) -> None:
    await note(connection, project_id, case_id, kind, by.name, summary, now)
    await audit(connection, action, project_id, ("case", case_id), by, {"said": summary} if summary else {})


async def _unmute(connection: Connection, project_id: int, case_ids: list[UUID]) -> None:
    await connection.execute(
        "update detection_case set state = 'open', muted_at = null, muted_by = null, muted_until = null"
        " where project_id = $1 and id = any($2::uuid[])",
        project_id,
        case_ids,
    )


async def _live(connection: Connection, project_id: int, case_id: UUID) -> list[Any]:
    # What the case lists and is not closed.
    rows: list[Any] = await connection.fetch(
        "select f.id, f.reference from case_finding l"
        " join finding f on f.project_id = l.project_id and f.id = l.finding_id and f.closed_at is null"
        " where l.project_id = $1 and l.case_id = $2",
        project_id,
        case_id,
    )
    return rows


async def _end(
    connection: Connection,
    project_id: int,
    case_id: UUID,
    resolution: Resolution,
    reason: str | None,
    by: Author,
    now: datetime,
) -> None:
    """Resolve a case together with all its live findings."""
    live = await _live(connection, project_id, case_id)
    # They keep what they were confirmed by.
    await connection.execute(
        "update finding set status = 'closed', closed_at = $3, closed_by = $4, closed_as = $5"
        " where project_id = $1 and id = any($2::uuid[])",
        project_id,
        [row["id"] for row in live],
        now,
        by.name,
        resolution,
    )
    await resolve(connection, project_id, case_id, resolution, reason, by, now)
