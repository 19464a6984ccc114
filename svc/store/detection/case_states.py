"""How a case moves between its states, and what triage and root-cause analysis write to it.

Written by detectors, by triage and over REST; no MCP tool comes here. Each verb adds a step to the trail in
the transaction of what it tells, and answers False when the case is not there or not in a state for it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from svc.store.detection.cases import note
from svc.store.postgres.database import Connection, Database

#: The states that a verb takes a case from. A resolved case stays: what comes back is a new one.
_LIVING: Final = ("open", "muted")


@attrs.define(eq=False)
class CaseStates:
    """All verbs raise `Outage`."""

    database: Database

    async def mute(self, project_id: int, case_id: UUID, actor: str, now: datetime) -> bool:
        """Open to muted."""
        return await self._move(
            project_id,
            case_id,
            ("open",),
            "state = 'muted', muted_at = $4",
            (now,),
            ("muted", actor, "", now),
        )

    async def unmute(self, project_id: int, case_id: UUID, actor: str, now: datetime) -> bool:
        """Muted to open."""
        return await self._move(
            project_id,
            case_id,
            ("muted",),
            "state = 'open', muted_at = null",
            (),
            ("unmuted", actor, "", now),
        )

    async def resolve(
        self, project_id: int, case_id: UUID, resolution: str, reason: str, actor: str, now: datetime
    ) -> bool:
        """Open or muted to resolved, for good."""
        return await self._move(
            project_id,
            case_id,
            _LIVING,
            "state = 'resolved', resolved_at = $4, resolution = $5, resolution_reason = $6",
            (now, resolution, reason),
            ("resolved", actor, resolution, now),
        )

    async def absorb(self, project_id: int, case_id: UUID, into: str, actor: str, now: datetime) -> bool:
        """Resolve a case because another one, named by its reference, tells the same."""
        return await self.resolve(project_id, case_id, "absorbed", f"absorbed by {into}", actor, now)

    async def rule(
        self, project_id: int, case_id: UUID, ruling: dict[str, Any], actor: str, now: datetime
    ) -> bool:
        """Keep what triage decided, in any state. Secrets: the ruling stands in no step of the trail."""
        return await self._move(
            project_id,
            case_id,
            (*_LIVING, "resolved"),
            "ruling = $4::text::jsonb",
            (msgspec.json.encode(ruling).decode(),),
            ("ruled", actor, "", now),
        )

    async def _move(
        self,
        project_id: int,
        case_id: UUID,
        states: tuple[str, ...],
        changes: str,
        values: tuple[Any, ...],
        step: tuple[str, str, str, datetime],
    ) -> bool:
        async def work(connection: Connection) -> bool:
            # The case, if it is in one of these states; `changes` is SQL of ours.
            moved = await connection.fetchval(
                f"update detection_case set {changes} where project_id = $1 and id = $2"
                " and state = any($3::text[]) returning true",
                project_id,
                case_id,
                list(states),
                *values,
            )
            if moved:
                await note(connection, project_id, case_id, *step)
            return bool(moved)

        return await self.database.run(work)


@attrs.define(eq=False)
class RcaStore:
    """Reports of root-cause analysis: one runs for a case at a time. All verbs raise `Outage`."""

    database: Database

    async def start(self, project_id: int, case_id: UUID, actor: str, now: datetime) -> UUID | None:
        """Begin a report and name it on the case; None while another one runs, or without the case."""

        async def work(connection: Connection) -> UUID | None:
            # The case, locked, so that two do not begin at once; what the other wrote is read behind it.
            case = await connection.fetchrow(
                "select rca_report_id from detection_case where project_id = $1 and id = $2 for update",
                project_id,
                case_id,
            )
            if case is None:
                return None
            # Whether its report runs.
            running = await connection.fetchval(
                "select status = 'running' from rca_report where project_id = $1 and id = $2",
                project_id,
                case["rca_report_id"],
            )
            if running:
                return None
            # The report, and its name on the case.
            report_id: UUID = await connection.fetchval(
                "with report as (insert into rca_report (project_id, case_id, status, started_at)"
                " values ($1, $2, 'running', $3) returning id)"
                " update detection_case c set rca_report_id = report.id from report"
                " where c.project_id = $1 and c.id = $2 returning report.id",
                project_id,
                case_id,
                now,
            )
            await note(connection, project_id, case_id, "rca_started", actor, "", now)
            return report_id

        return await self.database.run(work)

    async def finish(
        self, project_id: int, report_id: UUID, report: dict[str, Any] | None, actor: str, now: datetime
    ) -> bool:
        """End a report that runs: with what it says, or with None when it failed."""

        async def work(connection: Connection) -> bool:
            # The report, if it still runs.
            case_id = await connection.fetchval(
                "update rca_report set status = $3::text, report = $4::text::jsonb, finished_at = $5"
                " where project_id = $1 and id = $2 and status = 'running' returning case_id",
                project_id,
                report_id,
                "failed" if report is None else "done",
                None if report is None else msgspec.json.encode(report).decode(),
                now,
            )
            if case_id is None:
                return False
            kind = "rca_failed" if report is None else "rca_done"
            await note(connection, project_id, case_id, kind, actor, "", now)
            return True

        return await self.database.run(work)
