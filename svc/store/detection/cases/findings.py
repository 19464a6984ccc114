"""Findings as they are read: what a detector goes on with, and the lists and rows of the fronts.

Owns the columns of the table `finding` that are shown. `finding_states` writes it. A
finding read here holds its triage ruling, which the MCP front takes out.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.detection import TRIAGE_SOURCES, Cause, LiveFinding
from svc.domain.detect.findings.severity import band
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.rows import plain

#: Findings that a listing shows of each triage source (spec, "Limits").
FINDINGS_SHOWN: Final = 200
#: Live findings that detectors go on with; more than these no project has for long.
LIVE_READ: Final = 10_000

#: Stored columns and the names they are shown under.
_HEADLINE: Final = {
    "id": "id",
    "title": "title",
    "detector": "detector",
    "cause_kind": "cause_kind",
    "cause_key": "cause_key",
    "call_site_id": "call_site_id",
    "status": "status",
    "basis": "basis",
    "onset_at": "onset_at",
    "first_seen_at": "first_seen_at",
    "last_seen_at": "last_seen_at",
    "closed_at": "closed_at",
    "closed_as": "closed_as",
    "trace_count": "trace_count",
    "recurrences": "recurrences",
    "triage_status": "triageStatus",
    "triage_verdict": "triageVerdict",
    "triage_action": "triageAction",
    "triage_summary": "triageSummary",
    "triaged_at": "triagedAt",
}
#: What a finding tells beside its headline.
_MEASURED: Final = (
    "onset_low_at",
    "onset_high_at",
    "metric",
    "current_value",
    "baseline_value",
    "delta",
)
_COLUMNS: Final = ", ".join((*_HEADLINE, "severity", "harmful", "triage_citations::text"))


@attrs.define(eq=False)
class FindingStore:
    """Reads for detectors and the fronts. All verbs raise `Outage`."""

    database: Database

    async def live(self, project_id: int) -> list[LiveFinding]:
        """The findings that are not closed, each with the unresolved case that lists it, oldest first."""
        # Down the index of live causes; a project has a handful.
        rows = await self.database.fetch(
            "select f.id, f.detector, f.cause_kind, f.cause_key, f.status, f.onset_at, f.last_seen_at,"
            " f.severity, f.reference, f.recovered_at, f.recurrences,"
            " case when f.triage_verdict <> 'unclear' then f.ruled_by_kind end as decided_by,"
            " c.id as case_id, case when c.id is not null then l.role end as role"
            " from finding f left join case_finding l on l.project_id = f.project_id and l.finding_id = f.id"
            " left join detection_case c on c.project_id = l.project_id and c.id = l.case_id"
            " and c.state <> 'resolved'"
            " where f.project_id = $1 and f.closed_at is null"
            f" order by f.first_seen_at, f.id limit {LIVE_READ}",
            project_id,
            timeout_s=READ_TIMEOUT_S,
        )
        return [
            LiveFinding(
                id=row["id"],
                cause=Cause(row["detector"], row["cause_kind"], row["cause_key"]),
                status=row["status"],
                onset_at=row["onset_at"],
                last_seen_at=row["last_seen_at"],
                severity=row["severity"],
                reference=row["reference"],
                decided_by=row["decided_by"],
                recovered_at=row["recovered_at"],
                case_id=row["case_id"],
                role=row["role"],
                recurrences=row["recurrences"],
            )
            for row in rows
        ]

    async def first_onset(
        self, project_id: int, detector: str, reference: str, since: datetime, until: datetime
    ) -> datetime | None:
        """When the first fault began that a detector found of a subject between two moments, None without
        one; what people took back or call normal is none. The earliest moment at which it may have begun.
        """
        # Along the index of causes.
        rows = await self.database.fetch(
            "select min(onset_low_at) as at from finding where project_id = $1 and detector = $2"
            " and reference = $3 and harmful and onset_at > $4 and onset_at < $5"
            " and (closed_as is null or closed_as not in ('rejected', 'absorbed'))",
            project_id,
            detector,
            reference,
            since,
            until,
            timeout_s=READ_TIMEOUT_S,
        )
        at: datetime | None = rows[0]["at"]
        return at

    async def list(
        self,
        project_id: int,
        *,
        status: str | None,
        call_site_id: str | None,
        detector: str | None,
        confirmed_only: bool,
    ) -> dict[str, Any]:
        """`{findings, withheld}`, newest first: at most 200 of each triage source, without a marker.

        `withheld` counts the findings that match but are not confirmed, when only confirmed ones are shown.
        Secrets: rows hold the triage ruling, which MCP must not show.
        """
        where = Where.of(project_id)
        where.equal("status", status)
        where.equal("call_site_id", call_site_id)
        where.equal("detector", detector)
        condition = f"{where.sql()} and confirmed" if confirmed_only else where.sql()

        async def work(connection: Connection) -> tuple[list[Any], int]:
            rows: list[Any] = []
            for source in TRIAGE_SOURCES:
                # The newest of one source, down its index.
                rows += await connection.fetch(
                    f"select {_COLUMNS} from finding where {condition} and triage_source = '{source}'"
                    f" order by last_seen_at desc, id desc limit {FINDINGS_SHOWN}",
                    *where.values,
                )
            if not confirmed_only:
                return rows, 0
            # What the same question would show beside these.
            withheld = await connection.fetchval(
                f"select count(*) from finding where {where.sql()} and not confirmed"
                " and triage_source in ('rule', 'agent')",
                *where.values,
            )
            return rows, withheld

        rows, withheld = await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
        rows.sort(key=lambda row: (row["last_seen_at"], row["id"]), reverse=True)
        return {"findings": [_finding_row(row) for row in rows], "withheld": withheld}

    async def one(self, project_id: int, finding_id: UUID) -> dict[str, Any] | None:
        """A finding with its evidence parsed, or None.

        Secrets: it holds the triage ruling, which MCP must not show.
        """
        rows = await self.database.fetch(
            f"select {_COLUMNS}, {', '.join(_MEASURED)}, evidence::text from finding"
            " where project_id = $1 and id = $2",
            project_id,
            finding_id,
            timeout_s=READ_TIMEOUT_S,
        )
        if not rows:
            return None
        return {
            **_finding_row(rows[0]),
            **{name: plain(rows[0][name]) for name in _MEASURED},
            "evidence": msgspec.json.decode(rows[0]["evidence"]),
        }


def _finding_row(row: Any) -> dict[str, Any]:
    citations = row["triage_citations"]
    return {
        **{name: plain(row[column]) for column, name in _HEADLINE.items()},
        "severity": band(row["severity"], harmful=row["harmful"]),
        "triageCitations": None if citations is None else msgspec.json.decode(citations),
    }
