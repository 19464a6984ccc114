"""Runs of agents as the fronts show them: pages, one with its events, those of a finding or a case.

Never holds a ruling: what a triage decided stands in its finding, which MCP cuts. `outcome` repeats it, so
whoever shows runs over MCP must not show that.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.agents import EVENTS_KEPT, RUN_KINDS
from svc.store.agents.settings import settings_of
from svc.store.detection.cases.cases import reports_in
from svc.store.detection.cases.inbox import InboxReads
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.keyset import Keyset
from svc.store.postgres.rows import shown

_SHOWN: Final = (
    "id",
    "kind",
    "subject_id",
    "report_id",
    "state",
    "reason",
    "requested_by",
    "requested_at",
    "due_at",
    "attempt",
    "refunds",
    "model",
    "integration_id",
    "tool",
    "failure",
    "outcome",
    "started_at",
    "finished_at",
)
_COLUMNS: Final = (
    ", ".join(f"r.{name}" for name in _SHOWN)
    + ", r.limits::text as limits, r.spent::text as spent, r.cancel_asked_by is not null as cancelling"
)
_NEWEST: Final = Keyset("agent runs", (("requested_at", "moment"), ("id", "uuid")))


@attrs.define(eq=False)
class RunReads:
    """All verbs raise `Outage`."""

    database: Database

    async def page(
        self, project_id: int, *, kind: str | None, state: str | None, limit: int, cursor: str | None
    ) -> dict[str, Any]:
        """`{runs, next_cursor}`, newest first."""
        where = Where.of(project_id, "r.")
        where.equal("r.kind", kind)
        where.equal("r.state", state)
        where.after(["r.requested_at", "r.id"], _NEWEST.place(cursor))
        # One page and one row more, down the index of this order.
        rows = await self.database.fetch(
            f"select {_COLUMNS} from agent_run r where {where.sql()}"
            f" order by r.requested_at desc, r.id desc limit {where.value(limit + 1)}",
            *where.values,
            timeout_s=READ_TIMEOUT_S,
        )
        page, next_cursor = _NEWEST.page(rows, limit)
        return {"runs": [_row(row) for row in page], "next_cursor": next_cursor}

    async def one(self, project_id: int, run_id: UUID) -> dict[str, Any] | None:
        """A run with its events, those of earlier claims first; None when there is none."""

        async def work(connection: Connection) -> dict[str, Any] | None:
            row = await connection.fetchrow(
                f"select {_COLUMNS} from agent_run r where r.project_id = $1 and r.id = $2",
                project_id,
                run_id,
            )
            if row is None:
                return None
            # The newest events, oldest first.
            events = await connection.fetch(
                "select claim, seq, at, kind, details::text as details from (select * from agent_event"
                " where project_id = $1 and run_id = $2 order by claim desc, seq desc limit $3) e"
                " order by claim, seq",
                project_id,
                run_id,
                EVENTS_KEPT,
            )
            event_rows = [
                {**shown(e, ("claim", "seq", "at", "kind")), "details": msgspec.json.decode(e["details"])}
                for e in events
            ]
            return {**_row(row), "events": event_rows}

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)

    async def latest(self, project_id: int, subject_id: UUID) -> dict[str, Any] | None:
        """The newest run about a finding or a case."""
        # Down the index of subjects.
        rows = await self.database.fetch(
            f"select {_COLUMNS} from agent_run r where r.project_id = $1 and r.subject_id = $2"
            " order by r.requested_at desc, r.id desc limit 1",
            project_id,
            subject_id,
            timeout_s=READ_TIMEOUT_S,
        )
        return _row(rows[0]) if rows else None

    async def case_of_report(self, project_id: int, report_id: UUID) -> UUID | None:
        """The case that a report is about."""
        rows = await self.database.fetch(
            "select case_id from rca_report where project_id = $1 and id = $2", project_id, report_id
        )
        return rows[0]["case_id"] if rows else None

    async def reports(self, project_id: int, limit: int) -> list[dict[str, Any]]:
        """The newest reports of the project, by rule and by agents, with their cases."""
        # A bounded page of a table that has a handful of rows for each case.
        rows = await self.database.fetch(
            "select r.id, r.case_id, r.engine, r.status, r.report ->> 'verdict' as verdict, r.failure,"
            " r.started_at, r.finished_at, c.number from rca_report r join detection_case c"
            " on c.project_id = r.project_id and c.id = r.case_id where r.project_id = $1"
            " order by r.started_at desc, r.id limit $2",
            project_id,
            limit,
            timeout_s=READ_TIMEOUT_S,
        )
        return [_report(row) for row in rows]

    async def report(self, project_id: int, report_id: UUID) -> dict[str, Any] | None:
        """One report with what it says, and its run when an agent made it."""
        report = await InboxReads(self.database).report(project_id, report_id)
        if report is None:
            return None
        return {**_report(report), **shown(report, ("run_id",)), "report": report["report"]}

    async def both_reports(self, project_id: int, case_id: UUID) -> dict[str, dict[str, Any]]:
        """By engine the report that says most of a case; the first is the one that stands on top."""
        rows = await self.database.run(
            lambda connection: reports_in(connection, project_id, case_id),
            readonly=True,
            timeout_s=READ_TIMEOUT_S,
        )
        return {row["engine"]: {**row, "id": str(row["id"])} for row in rows}

    async def judge_runtime(self, project_id: int, ambient: str | None) -> dict[str, Any] | None:
        """By kind of run: model, provider and budgets; null where none is set, and of all when neither is.

        `ambient` is the provider that the install has by itself.
        """

        async def work(connection: Connection) -> dict[str, Any] | None:
            settings = await settings_of(connection, project_id)
            ids = [choice.integration_id for choice in settings.models.values()]
            # The providers that the project chose.
            rows = await connection.fetch(
                "select i.id, i.provider from integration i join project p on p.org_id = i.org_id"
                " where p.id = $1 and i.id = any($2::uuid[])",
                project_id,
                ids,
            )
            providers = {row["id"]: row["provider"] for row in rows}
            lanes: dict[str, Any] = {}
            for kind in RUN_KINDS:
                choice = settings.models.get(kind)
                provider = ambient if choice is None else providers.get(choice.integration_id)
                lanes[kind] = (
                    None
                    if provider is None
                    else {
                        "provider": provider,
                        "model": None if choice is None else choice.model,
                        "run_usd": settings.limits(kind).usd,
                        "day_usd": settings.day_usd,
                    }
                )
            return lanes if any(lanes.values()) else None

        return await self.database.run(work, readonly=True, timeout_s=READ_TIMEOUT_S)

    async def tally(self, now: datetime) -> dict[str, int]:
        """How many runs are in each live state, in all projects, for health."""
        # Over the partial indexes of what is live.
        rows = await self.database.fetch(
            "select state, count(*) as n from agent_run where state in ('queued', 'parked', 'running')"
            " group by state"
        )
        return {"queued": 0, "parked": 0, "running": 0, **{row["state"]: row["n"] for row in rows}}


def _row(row: Any) -> dict[str, Any]:
    return {
        **shown(row, _SHOWN),
        "limits": None if row["limits"] is None else msgspec.json.decode(row["limits"]),
        "spent": msgspec.json.decode(row["spent"]),
        "cancelling": row["cancelling"],
    }


def _report(row: Any) -> dict[str, Any]:
    names = ("id", "case_id", "engine", "status", "verdict", "failure", "started_at", "finished_at")
    return {**shown(row, names), "case": f"C-{row['number']}"}
