"""What a case lists: it is opened for a confirmed finding, and others join it as causes or effects.

Owns the table `case_finding`, the rows of `detection_case` as they are opened and opened again, and the
references `C-1`, `C-2`, …, which have neither gaps nor races. The rule, agents and people have cases opened,
the detectors have findings joined.

Ordering: every verb takes its project's turn first (`trail`), so that two who see the
same thing open one case.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import attrs

from protocol.detection import REOPENS_WITHIN, Author, CausalRole, NotOpened, Opened
from svc.domain.detect.findings.severity import band
from svc.store.detection.cases.trail import note, take_turn
from svc.store.postgres.database import Connection, Database

#: When a cause began, in SQL, of the case `c` and its finding `f`: what a case lists of one cause is one
#: story, and what was taken for over once did not begin anew.
FIRST_ONSET: Final = (
    "least(f.onset_at, (select min(o.onset_at) from case_finding l"
    " join finding o on o.project_id = l.project_id and o.id = l.finding_id"
    " where l.project_id = c.project_id and l.case_id = c.id and o.detector = f.detector"
    " and o.cause_kind = f.cause_kind and o.cause_key = f.cause_key))"
)


@attrs.define(eq=False)
class CaseFindings:
    """All verbs raise `Outage`; each may be called again after one, and does nothing twice."""

    database: Database

    async def open(self, project_id: int, finding_id: UUID, by: Author, now: datetime) -> Opened | NotOpened:
        """The case of a confirmed, live finding: the one that lists it, else the one its cause had, else new.

        A cause that comes back within seven days after its case was resolved reopens it, unless that was
        absorbed or rejected. A mute that has not ended holds on.
        """

        return await self.database.run(
            lambda connection: opened_in(connection, project_id, finding_id, by, now)
        )

    async def join(
        self,
        project_id: int,
        case_id: UUID,
        finding_id: UUID,
        role: CausalRole,
        explained_share: float | None,
        by: Author,
        now: datetime,
    ) -> bool:
        """List a live finding under an unresolved case, as another cause or as an effect with its share.

        Joined already, role and share are renewed. False: one of both does not live, or
        the finding stands in another unresolved case.
        """

        async def work(connection: Connection) -> bool:
            await take_turn(connection, project_id)
            # Both, if they live, and where the finding stands now.
            finding = await connection.fetchrow(
                "select f.title, l.case_id, exists (select from detection_case o where l.case_id <> c.id"
                " and o.project_id = l.project_id and o.id = l.case_id and o.state <> 'resolved')"
                " as elsewhere from detection_case c"
                " join finding f on f.project_id = c.project_id and f.id = $3 and f.closed_at is null"
                " left join case_finding l on l.project_id = f.project_id and l.finding_id = f.id"
                " where c.project_id = $1 and c.id = $2 and c.state <> 'resolved'",
                project_id,
                case_id,
                finding_id,
            )
            if finding is None or finding["elsewhere"]:
                return False
            await _list(connection, project_id, case_id, finding_id, role, explained_share, now)
            if finding["case_id"] != case_id:
                await note(connection, project_id, case_id, "joined", by.name, finding["title"], now)
            return True

        return await self.database.run(work)


async def opened_in(
    connection: Connection, project_id: int, finding_id: UUID, by: Author, now: datetime
) -> Opened | NotOpened:
    """`CaseFindings.open` within the caller's transaction."""
    last_number = await take_turn(connection, project_id)
    # The finding, and the case that lists it.
    finding = await connection.fetchrow(
        "select f.*, l.role, c.id as case_id, c.number, c.state from finding f"
        " left join case_finding l on l.project_id = f.project_id and l.finding_id = f.id"
        " left join detection_case c on c.project_id = l.project_id and c.id = l.case_id"
        " where f.project_id = $1 and f.id = $2",
        project_id,
        finding_id,
    )
    if finding is None:
        return NotOpened("NOT_FOUND")
    if finding["case_id"] is not None and finding["state"] != "resolved":
        return Opened(finding["case_id"], f"C-{finding['number']}", "known")
    if finding["status"] != "confirmed":
        return NotOpened("CLOSED" if finding["closed_at"] is not None else "NOT_CONFIRMED")
    earlier = await _earlier(connection, project_id, finding)
    outcome: Literal["opened", "reopened", "known"] = "opened"
    if earlier is None:
        number = last_number + 1
        case_id = await _insert(connection, project_id, number, finding, now)
    else:
        case_id, number = earlier["id"], earlier["number"]
        outcome = "reopened" if earlier["state"] == "resolved" else "known"
        await _return(connection, project_id, case_id, finding, outcome == "reopened", now)
    await _list(connection, project_id, case_id, finding_id, "cause", None, now)
    if outcome != "known":
        await note(connection, project_id, case_id, outcome, by.name, finding["title"], now)
    return Opened(case_id, f"C-{number}", outcome)


async def _earlier(connection: Connection, project_id: int, finding: Any) -> Any:
    """The newest case that listed the cause before and is this one's too, or None."""
    # Through the findings that the cause had; a finding knows its cause by four columns.
    return await connection.fetchrow(
        "select c.id, c.number, c.state from finding f"
        " join case_finding l on l.project_id = f.project_id and l.finding_id = f.id and l.role = 'cause'"
        " join detection_case c on c.project_id = l.project_id and c.id = l.case_id"
        " where f.project_id = $1 and f.detector = $2 and f.cause_kind = $3 and f.cause_key = $4"
        " and f.id <> $5 and (c.state <> 'resolved' or (c.resolved_at >= $6::timestamptz"
        " and c.resolution in ('resolved', 'recovered')))"
        " order by f.last_seen_at desc, c.number desc limit 1",
        project_id,
        finding["detector"],
        finding["cause_kind"],
        finding["cause_key"],
        finding["id"],
        finding["onset_at"] - REOPENS_WITHIN,
    )


async def _insert(connection: Connection, project_id: int, number: int, finding: Any, now: datetime) -> UUID:
    await connection.execute(
        "update case_counter set last_number = $2 where project_id = $1", project_id, number
    )
    # A new case, open, about what its finding is about.
    case_id: UUID = await connection.fetchval(
        "insert into detection_case (project_id, number, detector, subject_kind, subject_id, subject_label,"
        " call_site_id, metric, title, basis, severity, severity_score, severity_told, onset_at,"
        " current_value, baseline_value, delta, opened_at, last_seen_at, finding_id)"
        " select project_id, $3, detector, subject_kind, subject_id, subject_label, call_site_id,"
        " coalesce(metric, ''), title, basis, $4, severity, severity, onset_at, current_value,"
        " baseline_value, delta, $5, last_seen_at, id from finding where project_id = $1 and id = $2"
        " returning id",
        project_id,
        finding["id"],
        number,
        band(finding["severity"]),
        now,
    )
    return case_id


async def _return(
    connection: Connection, project_id: int, case_id: UUID, finding: Any, reopened: bool, now: datetime
) -> None:
    """Make a finding the first cause of a case that its cause had before, and open it if it was resolved."""
    # Its words and values are those of the cause as it is now.
    await connection.execute(
        "update detection_case c set finding_id = f.id, title = f.title, basis = f.basis,"
        f" onset_at = {FIRST_ONSET}, current_value = f.current_value, baseline_value = f.baseline_value,"
        " delta = f.delta, severity = $4, severity_score = f.severity, severity_told = f.severity,"
        " last_seen_at = greatest(c.last_seen_at, f.last_seen_at)"
        " from finding f where c.project_id = $1 and c.id = $2"
        " and f.project_id = c.project_id and f.id = $3",
        project_id,
        case_id,
        finding["id"],
        band(finding["severity"]),
    )
    if reopened:
        await unresolve(connection, project_id, case_id, now)


async def unresolve(connection: Connection, project_id: int, case_id: UUID, now: datetime) -> None:
    """Open a resolved case, or mute it again while its mute has not ended. In the project's turn."""
    # As it was before it was resolved, but for the rule, which is to look at it anew.
    await connection.execute(
        "update detection_case set rule_report_due = true, rule_report_tries = 0, rule_report_after = null,"
        " rule_report_traces = null, resolved_at = null, resolution = null,"
        " resolution_reason = null, resolved_by = null, state = case when muted_at is not null"
        " and (muted_until is null or muted_until > $3) then 'muted' else 'open' end"
        " where project_id = $1 and id = $2",
        project_id,
        case_id,
        now,
    )


async def _list(
    connection: Connection,
    project_id: int,
    case_id: UUID,
    finding_id: UUID,
    role: CausalRole,
    explained_share: float | None,
    now: datetime,
) -> None:
    # One row a finding: what it stood in before was resolved, or is left for this.
    await connection.execute(
        "insert into case_finding (project_id, finding_id, case_id, role, explained_share, joined_at)"
        " values ($1, $2, $3, $4, $5, $6) on conflict (project_id, finding_id) do update"
        " set case_id = excluded.case_id, role = excluded.role, explained_share = excluded.explained_share,"
        " joined_at = case when case_finding.case_id = excluded.case_id then case_finding.joined_at"
        " else excluded.joined_at end",
        project_id,
        finding_id,
        case_id,
        role,
        explained_share,
        now,
    )
