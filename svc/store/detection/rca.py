"""Reports of root-cause analysis.

Owns the table `rca_report`. One runs for a case at a time.

Ordering: every verb takes its project's turn first (`svc.store.detection.trail`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import attrs
import msgspec

from svc.store.detection.trail import note
from svc.store.postgres.database import Connection, Database


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
