"""What a run is about, as its brief is made of it, and what of an answer can be looked up.

Reads only. Owns nothing; the requests of the launcher call it at each claim and for each answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.agents import RunLease
from protocol.detection import EVIDENCE_ROLES
from svc.store.accounts.integrations import Integration, IntegrationStore
from svc.store.detection.cases.evidence import EvidenceStore
from svc.store.detection.cases.findings import FindingStore
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

#: References of a finding that its claim names.
REFS_TOLD: Final = 60
#: References that an answer is held against.
REFS_READ: Final = 20_000


@attrs.frozen
class ClaimFacts:
    """A finding with the first of its evidence, and the last report by rule on its case."""

    finding: Mapping[str, Any]
    refs: Sequence[Mapping[str, Any]]
    rule_report: Mapping[str, Any] | None


@attrs.frozen
class LookedUp:
    """Ids that exist in the project; those of the finding's evidence; those of before its onset."""

    existing: frozenset[str]
    evidence: frozenset[str]
    before: frozenset[str]


@attrs.define(eq=False)
class ClaimReads:
    """All verbs raise `Outage`."""

    database: Database

    async def facts(self, lease: RunLease) -> ClaimFacts | None:
        """What the run is about; None: it is gone."""
        finding_id = await self._finding(lease)
        finding = (
            None
            if finding_id is None
            else await FindingStore(self.database).one(lease.project_id, finding_id)
        )
        if finding is None or finding_id is None:
            return None
        page = await EvidenceStore(self.database).page(
            lease.project_id, finding_id, role=None, count_only=False, limit=REFS_TOLD, cursor=None
        )
        report = None
        if lease.kind == "rca":
            # The last that the rule found; never an agent's.
            rows = await self.database.fetch(
                "select report::text as said from rca_report where project_id = $1 and case_id = $2"
                " and engine = 'rule' and status = 'done' order by finished_at desc limit 1",
                lease.project_id,
                lease.subject_id,
            )
            report = msgspec.json.decode(rows[0]["said"]) if rows else None
        return ClaimFacts(finding, [] if page is None else page["refs"], report)

    async def integration(self, lease: RunLease, integration_id: UUID) -> Integration | None:
        """One of the integrations of the project's organization."""
        rows = await self.database.fetch("select org_id from project where id = $1", lease.project_id)
        if not rows:
            return None
        return await IntegrationStore(self.database).one(rows[0]["org_id"], integration_id)

    async def look_up(self, lease: RunLease, ids: Collection[str]) -> LookedUp:
        """Which of these ids of traces and spans exist, and which are evidence or baseline."""
        finding_id = await self._finding(lease)
        traces = [bytes.fromhex(trace_id) for trace_id in ids if len(trace_id) == 32]
        spans = [bytes.fromhex(span_id) for span_id in ids if len(span_id) == 16]

        async def work(connection: Connection) -> LookedUp:
            trace_rows = await connection.fetch(
                "select t.trace_id, t.started_at < f.onset_at as earlier from trace t"
                " left join finding f on f.project_id = t.project_id and f.id = $3"
                " where t.project_id = $1 and t.trace_id = any($2::bytea[])",
                lease.project_id,
                traces,
                finding_id,
            )
            # The spans of the traces that are cited beside them, or of the evidence.
            span_rows = await connection.fetch(
                "select distinct span_id from span where project_id = $1 and trace_id = any($2::bytea[])"
                " and span_id = any($3::bytea[])",
                lease.project_id,
                traces,
                spans,
            )
            # The evidence, and what of it was compared with.
            refs = await connection.fetch(
                "select trace_id, role from finding_evidence where project_id = $1 and finding_id = $2"
                " and trace_id is not null order by role, position limit $3",
                lease.project_id,
                finding_id,
                REFS_READ,
            )
            baseline = EVIDENCE_ROLES.index("baseline") + 1
            return LookedUp(
                frozenset(
                    [row["trace_id"].hex() for row in trace_rows]
                    + [row["span_id"].hex() for row in span_rows]
                ),
                frozenset(row["trace_id"].hex() for row in refs),
                frozenset(
                    [row["trace_id"].hex() for row in refs if row["role"] == baseline]
                    + [row["trace_id"].hex() for row in trace_rows if row["earlier"]]
                ),
            )

        return await self.database.run(work, readonly=True, timeout_s=READ_TIMEOUT_S)

    async def _finding(self, lease: RunLease) -> UUID | None:
        if lease.kind == "triage":
            return lease.subject_id
        # The first cause of the case.
        rows = await self.database.fetch(
            "select finding_id from detection_case where project_id = $1 and id = $2",
            lease.project_id,
            lease.subject_id,
        )
        finding_id: UUID | None = rows[0]["finding_id"] if rows else None
        return finding_id
