"""What the case keeper goes by: the findings of a project as they stand, and what their traces share.

Owns reads of findings for confirming and joining, and which case a finding leads. Called by the case keeper.
Never decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.detection import EVIDENCE_ROLES, Cause, EvidenceRole
from svc.domain.detect.findings.bucket import Watched
from svc.store.detection.cases.case_findings import FIRST_ONSET
from svc.store.detection.cases.trail import take_turn
from svc.store.detection.counting.tallies import unpacked
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

#: Findings that one look reads at most; more than these no project has for long.
FINDINGS_READ: Final = 2_000
#: A finding that closed explains others for so long.
EXPLAINS_FOR: Final = timedelta(days=3)
#: Traces of a finding that are compared with those of others, newest last.
TRACES_READ: Final = 20_000
#: Traces whose call sites are those of a tool.
SITES_OF: Final = 500
PROJECTS: Final = 1_000

# Where something is live.
_WAITING: Final = """
select distinct f.project_id as id from finding f
where f.closed_at is null
  and not exists (select from project p where p.id = f.project_id and p.deleted_at is not null)
limit $1
"""

# Slots that some detector is still to judge, of those that another has judged. One that waits for a
# case is as far as it can be; one that raised and one that is switched off hold nobody else up.
_BEHIND: Final = """
select exists (
    select from tally_due d where d.project_id = $1 and d.detector = any($2::text[])
    and not exists (select from judge_state w
                    where w.project_id = $1 and w.detector = d.detector
                    and (w.waits or w.failure is not null))
    and not exists (select from detector_setting s
                    where s.project_id = $1 and s.detector = d.detector and not s.enabled)
    and d.from_slot < (select max(until_slot) from judge_state s
                       where s.project_id = $1 and s.detector = any($2::text[]))
) as behind
"""

# Live findings, and those that closed lately but were not rejected.
_STANDING: Final = f"""
select f.id, f.detector, f.cause_kind, f.cause_key, f.status, f.onset_at, f.onset_low_at, f.onset_high_at,
    f.first_seen_at, f.last_seen_at, f.recovered_at, f.closed_at, f.harmful, f.subject_kind, f.subject_id,
    f.title, f.triage_summary, f.reference, f.evidence::text as payload, f.confirmed,
    case when f.triage_verdict <> 'unclear' then f.ruled_by_kind end as decided_by,
    c.id as case_id, c.state as case_state, c.finding_id as leader, l.role, l.explained_share
from finding f
left join case_finding l on l.project_id = f.project_id and l.finding_id = f.id
left join detection_case c on c.project_id = l.project_id and c.id = l.case_id
where f.project_id = $1 and (f.closed_at is null
    or (f.confirmed and f.closed_as <> 'rejected' and f.last_seen_at > $2))
order by f.first_seen_at, f.id limit {FINDINGS_READ}
"""

# Its traces in one role, as they were written.
_TRACES: Final = f"""
select distinct trace_id from (
    select trace_id from finding_evidence
    where project_id = $1 and finding_id = $2 and role = $3 and trace_id is not null
    order by position desc limit {TRACES_READ}
) e
"""

# The call sites of some traces.
_SITES: Final = """
select distinct call_site_id as id from trace
where project_id = $1 and trace_id = any($2::bytea[]) and call_site_id is not null limit 200
"""

# What some traces were counted as.
_FOLDED: Final = """
select body from trace_fold where project_id = $1 and trace_id = any($2::bytea[]) and slot >= $3
"""


@attrs.frozen(eq=False)
class Standing:
    """A finding as it stands, with the case that lists it. `payload` is what its detector wrote."""

    id: UUID
    cause: Cause
    status: str
    confirmed: bool
    decided_by: str | None
    summary: str | None
    title: str
    subject: str
    onset_at: datetime
    onset_low_at: datetime
    onset_high_at: datetime
    last_seen_at: datetime
    recovered_at: datetime | None
    closed: bool
    harmful: bool
    reference: str | None
    payload: Mapping[str, Any]
    case_id: UUID | None
    case_open: bool
    leads: bool
    role: str | None
    explained_share: float | None


@attrs.frozen(eq=False)
class StandingFindings:
    """The findings of a project in the order in which they were detected.

    `mark` is an integer, the same in this process as long as nothing of them changes, nor of what lists them.
    """

    findings: Sequence[Standing]
    mark: int


@attrs.define(eq=False)
class CaseworkStore:
    """All verbs raise `Outage`."""

    database: Database

    async def waiting(self) -> Sequence[int]:
        """Projects with live findings."""
        return [row["id"] for row in await self.database.fetch(_WAITING, PROJECTS)]

    async def behind(self, project_id: int, detectors: Collection[str]) -> bool:
        """Whether some of these detectors have not judged what others have."""
        [row] = await self.database.fetch(_BEHIND, project_id, sorted(detectors))
        return bool(row["behind"])

    async def standing(self, project_id: int, now: datetime) -> StandingFindings:
        """Live findings, and those that closed lately."""
        rows = await self.database.fetch(_STANDING, project_id, now - EXPLAINS_FOR, timeout_s=READ_TIMEOUT_S)
        return StandingFindings([_standing(row) for row in rows], hash(tuple(map(tuple, rows))))

    async def traces(self, project_id: int, finding_id: UUID, role: EvidenceRole) -> frozenset[bytes]:
        """The traces that stand in a role of a finding's evidence, at most `TRACES_READ`."""
        rows = await self.database.fetch(
            _TRACES, project_id, finding_id, EVIDENCE_ROLES.index(role) + 1, timeout_s=READ_TIMEOUT_S
        )
        return frozenset(row["trace_id"] for row in rows)

    async def sites(self, project_id: int, traces: Collection[bytes]) -> frozenset[str]:
        """The call sites of traces, by the first `SITES_OF` of them."""
        rows = await self.database.fetch(_SITES, project_id, sorted(traces)[:SITES_OF])
        return frozenset(row["id"] for row in rows)

    async def counted(
        self, project_id: int, bucket: Watched, traces: Collection[bytes], first: int
    ) -> Sequence[tuple[int, int, int]]:
        """What these traces were counted as in a bucket: bin, units and failures of each count."""
        rows = await self.database.fetch(
            "select id from tally_bucket where project_id = $1 and measure = $2 and subject = $3",
            project_id,
            bucket.measure,
            bucket.subject,
        )
        ids = {row["id"] for row in rows}
        tallied = await self.database.fetch(
            _FOLDED, project_id, sorted(traces), first, timeout_s=READ_TIMEOUT_S
        )
        return [entry[2:] for row in tallied for entry in unpacked(row["body"]) if entry[0] in ids]

    async def lead(self, project_id: int, case_id: UUID, finding_id: UUID) -> None:
        """Have an unresolved case say what this finding of it says: it is its first cause."""

        async def work(connection: Connection) -> None:
            await take_turn(connection, project_id)
            # Its words, values and subject are those of the first cause.
            await connection.execute(
                "update detection_case c set finding_id = f.id, title = f.title, basis = f.basis,"
                " detector = f.detector, subject_kind = f.subject_kind, subject_id = f.subject_id,"
                " subject_label = f.subject_label, call_site_id = f.call_site_id, metric = f.metric,"
                f" onset_at = {FIRST_ONSET}, current_value = f.current_value,"
                " baseline_value = f.baseline_value, delta = f.delta from finding f"
                " where c.project_id = $1 and c.id = $2 and c.state <> 'resolved'"
                " and f.project_id = c.project_id and f.id = $3 and c.finding_id <> f.id",
                project_id,
                case_id,
                finding_id,
            )

        await self.database.run(work)


def _standing(row: Any) -> Standing:
    payload = msgspec.json.decode(row["payload"])
    return Standing(
        id=row["id"],
        cause=Cause(row["detector"], row["cause_kind"], row["cause_key"]),
        status=row["status"],
        confirmed=row["confirmed"],
        decided_by=row["decided_by"],
        summary=row["triage_summary"],
        title=row["title"],
        subject=f"{'tool' if row['subject_kind'] == 'tool' else 'site'}:{row['subject_id']}",
        onset_at=row["onset_at"],
        onset_low_at=row["onset_low_at"] or row["onset_at"],
        onset_high_at=row["onset_high_at"] or row["onset_at"],
        last_seen_at=row["last_seen_at"],
        recovered_at=row["recovered_at"],
        closed=row["closed_at"] is not None,
        harmful=row["harmful"],
        reference=row["reference"],
        payload=payload,
        case_id=row["case_id"],
        case_open=row["case_state"] not in (None, "resolved"),
        leads=row["leader"] == row["id"],
        role=row["role"],
        explained_share=row["explained_share"],
    )
