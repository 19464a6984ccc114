"""What pages tell of cases beside their own rows: how many, what was measured, how far an analysis is.

The inbox, the page of a case and the page of a report read here; what moves anything is in the modules beside
this. Bounded like the page that asks: at most so many cases as it lists. Never holds a ruling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from svc.store.detection.cases.cases import TOP_FIRST
from svc.store.postgres.database import READ_TIMEOUT_S, Database
from svc.store.spans.availability import TRACE_AVAILABLE

#: Resolved cases that are counted; beyond it does not matter how many they are.
RESOLVED_COUNTED: Final = 1_000
#: Traces of one page that are looked up at once.
TRACES_LOOKED_UP: Final = 500

# The cases of each state, a mute that has ended among the open ones, and the findings nobody confirmed and no
# case lists.
_COUNTS: Final = f"""
select count(*) filter (where state = 'open' or muted_until <= $2) as open,
    count(*) filter (where state = 'muted' and (muted_until is null or muted_until > $2)) as muted,
    (select count(*) from (select from detection_case where project_id = $1 and state = 'resolved'
     limit {RESOLVED_COUNTED}) r) as resolved,
    (select count(*) from finding f where f.project_id = $1 and f.closed_at is null and not f.confirmed
     and not exists (select from case_finding l join detection_case c on c.project_id = l.project_id
         and c.id = l.case_id and c.state <> 'resolved'
         where l.project_id = f.project_id and l.finding_id = f.id)) as withheld
from detection_case where project_id = $1 and state in ('open', 'muted')
"""

# The first cause of each case with what its detector says, the effects listed beside it, its newest report,
# and what that says which stands on top.
_AROUND: Final = f"""
select c.id, f.evidence::text as evidence, f.trace_count, f.onset_low_at, f.onset_high_at, f.recovered_at,
    f.reference is not null as absorbable, r.id as rca_id, r.status as rca_status, r.engine as rca_engine,
    (select case when r.report -> 'sighting' = 'true' then 'sighting'
        else coalesce(r.report ->> 'change', r.report ->> 'verdict') end
     from rca_report r where r.project_id = c.project_id and r.case_id = c.id
     and r.status = 'done' order by {TOP_FIRST} limit 1) as verdict,
    r.failure as rca_failure, r.started_at as rca_started_at,
    (select count(*) from case_finding l where l.project_id = c.project_id and l.case_id = c.id
     and l.role = 'effect') as effects
from detection_case c
left join finding f on f.project_id = c.project_id and f.id = c.finding_id
left join lateral (select * from rca_report r where r.project_id = c.project_id and r.case_id = c.id
    order by r.started_at desc, r.id limit 1) r on true
where c.project_id = $1 and c.id = any($2::uuid[])
"""

# Those that are counted as withheld, newest first, with what was said of them last.
_WITHHELD: Final = """
select f.id, f.title, f.detector, f.onset_at, f.last_seen_at, f.triage_summary as why from finding f
where f.project_id = $1 and f.closed_at is null and not f.confirmed
  and not exists (select from case_finding l join detection_case c on c.project_id = l.project_id
      and c.id = l.case_id and c.state <> 'resolved'
      where l.project_id = f.project_id and l.finding_id = f.id)
order by f.last_seen_at desc, f.id limit $2
"""

# What is watched, and when anybody looked last.
_WATCHED: Final = """
select count(distinct regexp_replace(subject, '^(?:agent|rated):(.*) › .*$', 'site:\\1'))
        filter (where subject like any ('{site:%,agent:%,rated:%}')) as sites,
    count(distinct subject) filter (where subject like 'tool:%') as tools,
    (select max(judged_at) from judge_state where project_id = $1) as judged_at
from bucket_state where project_id = $1
"""


@attrs.frozen
class InboxCounts:
    """Cases by state (resolved ones up to `RESOLVED_COUNTED`), and unconfirmed findings without a case."""

    open: int
    muted: int
    resolved: int
    withheld: int


@attrs.frozen
class CaseAround:
    """What stands beside a case. `evidence` is what the detector of its first cause says; `rca` is how far
    its newest report is, `verdict` what that says which stands on top,
    or the change it says more closely.
    """

    evidence: Mapping[str, Any]
    trace_count: int
    onset_low_at: datetime | None
    onset_high_at: datetime | None
    recovered_at: datetime | None
    absorbable: bool
    effects: int
    rca_id: UUID | None
    rca: str | None
    rca_engine: str | None
    rca_failure: str | None
    rca_started_at: datetime | None
    verdict: str | None

    @property
    def bucket(self) -> tuple[str, str] | None:
        """The measure and subject that its numbers are of; None where nothing was counted."""
        measure, subject = self.evidence.get("measure"), self.evidence.get("subject")
        return (measure, subject) if isinstance(measure, str) and isinstance(subject, str) else None


@attrs.frozen
class WatchedSubjects:
    """How many call sites and tools are judged, and when that was last."""

    sites: int
    tools: int
    judged_at: datetime | None


@attrs.frozen
class CitedTrace:
    """A trace that something cites, as a line shows it."""

    name: str | None
    asked: str | None
    started_at: datetime
    ended_at: datetime | None


@attrs.define(eq=False)
class InboxReads:
    """All verbs raise `Outage`."""

    database: Database

    async def counts(self, project_id: int, now: datetime) -> InboxCounts:
        """How many cases stand in each state."""
        rows = await self.database.fetch(_COUNTS, project_id, now, timeout_s=READ_TIMEOUT_S)
        return InboxCounts(**dict(rows[0].items()))

    async def around(self, project_id: int, case_ids: Sequence[str]) -> dict[str, CaseAround]:
        """What stands beside each of these cases, by its id."""
        rows = await self.database.fetch(
            _AROUND, project_id, [UUID(case_id) for case_id in case_ids], timeout_s=READ_TIMEOUT_S
        )
        return {
            str(row["id"]): CaseAround(
                evidence=msgspec.json.decode(row["evidence"]) if row["evidence"] is not None else {},
                trace_count=row["trace_count"] or 0,
                onset_low_at=row["onset_low_at"],
                onset_high_at=row["onset_high_at"],
                recovered_at=row["recovered_at"],
                absorbable=bool(row["absorbable"]),
                effects=row["effects"],
                rca_id=row["rca_id"],
                rca=row["rca_status"],
                rca_engine=row["rca_engine"],
                rca_failure=row["rca_failure"],
                rca_started_at=row["rca_started_at"],
                verdict=row["verdict"],
            )
            for row in rows
        }

    async def withheld(self, project_id: int, limit: int) -> list[dict[str, Any]]:
        """Live findings that nobody confirmed and no unresolved case lists, newest first.

        Secrets: `why` is a ruling's summary, which MCP must not show.
        """
        rows = await self.database.fetch(_WITHHELD, project_id, limit, timeout_s=READ_TIMEOUT_S)
        return [dict(row.items()) for row in rows]

    async def watched(self, project_id: int) -> WatchedSubjects:
        """What the detectors of a project judge."""
        rows = await self.database.fetch(_WATCHED, project_id, timeout_s=READ_TIMEOUT_S)
        return WatchedSubjects(**dict(rows[0].items()))

    async def cited(self, project_id: int, trace_ids: Sequence[str]) -> dict[str, CitedTrace]:
        """Those of these traces that can still be opened, by their ids; at most `TRACES_LOOKED_UP`."""
        ids = [bytes.fromhex(trace_id) for trace_id in trace_ids[:TRACES_LOOKED_UP]]
        # Each by its key.
        rows = await self.database.fetch(
            "select trace_id, name, started_at, ended_at,"
            f" case when {TRACE_AVAILABLE} then input_preview end as input_preview"
            " from trace t where project_id = $1 and trace_id = any($2::bytea[])",
            project_id,
            ids,
            timeout_s=READ_TIMEOUT_S,
        )
        return {
            row["trace_id"].hex(): CitedTrace(
                row["name"], row["input_preview"], row["started_at"], row["ended_at"]
            )
            for row in rows
        }

    async def case_of(self, project_id: int, finding_id: UUID) -> tuple[str, bool] | None:
        """The reference of the case that lists a finding, and whether it is resolved."""
        # By the key of the list, and of the case.
        rows = await self.database.fetch(
            "select c.number, c.state from case_finding l join detection_case c"
            " on c.project_id = l.project_id and c.id = l.case_id"
            " where l.project_id = $1 and l.finding_id = $2",
            project_id,
            finding_id,
        )
        return (f"C-{rows[0]['number']}", rows[0]["state"] == "resolved") if rows else None

    async def report(self, project_id: int, report_id: UUID) -> dict[str, Any] | None:
        """A report, running, done or failed, with its case, and its run when an agent made it; else None."""
        rows = await self.database.fetch(
            # By its key; its run by the index of reports.
            "select r.id, r.case_id, r.engine, r.status, r.report ->> 'verdict' as verdict,"
            " r.report::text as report, r.failure, r.started_at, r.finished_at, r.attempts, c.number,"
            " c.title, c.finding_id, a.id as run_id from rca_report r"
            " join detection_case c on c.project_id = r.project_id and c.id = r.case_id"
            " left join agent_run a on a.project_id = r.project_id and a.report_id = r.id"
            " where r.project_id = $1 and r.id = $2",
            project_id,
            report_id,
            timeout_s=READ_TIMEOUT_S,
        )
        if not rows:
            return None
        report = None if rows[0]["report"] is None else msgspec.json.decode(rows[0]["report"])
        return {**dict(rows[0].items()), "report": report, "reference": f"C-{rows[0]['number']}"}
