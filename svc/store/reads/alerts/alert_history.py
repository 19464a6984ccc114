"""What rules look at beside figures, and what history knows of it: cases, services, dead letters, digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import msgspec

from protocol.alerts import AlertFacts, RuleKind
from protocol.samples import SAMPLED, Sample
from svc.domain.alerts.params import CaseParams
from svc.domain.alerts.silence import Heard
from svc.domain.exporters.counters import DEMO_SCOPE
from svc.domain.quantities import count, counted, money
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

#: Instants that a backtest reads at most, and services that are watched.
INSTANTS_READ: Final = 10_000
SERVICES_WATCHED: Final = 500
#: Open cases that a digest names.
DIGEST_CASES: Final = 10
_STEPS: Final[Mapping[RuleKind, tuple[str, ...]]] = {
    "case.opened": ("opened",),
    "case.reopened": ("reopened",),
    "case.resolved": ("resolved", "absorbed", "rejected"),
}
_RANKS: Final = {"low": 1, "medium": 2, "high": 3}


@attrs.frozen
class WaitingLetters:
    """Spans that wait as dead letters, since when, and the reason that most of them have."""

    spans: int
    oldest_at: datetime | None
    reason: str | None


@attrs.define(eq=False)
class AlertHistory:
    """Reads one project at a time. Raises `Outage`."""

    database: Database

    async def case_steps(
        self, project_id: int, kind: RuleKind, params: CaseParams, since: datetime
    ) -> Sequence[datetime]:
        """When cases that a rule is for did what it tells of, ascending; by what cases are now."""
        # By the cases, of which there are few; each has a short trail.
        rows = await self.database.fetch(
            "select e.created_at from detection_case c join case_event e"
            " on e.project_id = c.project_id and e.case_id = c.id and e.kind = any($2::text[])"
            " where c.project_id = $1 and c.severity_rank >= $3"
            " and (cardinality($4::text[]) = 0 or c.detector = any($4)) and e.created_at >= $5"
            f" order by e.created_at limit {INSTANTS_READ}",
            project_id,
            list(_STEPS[kind]),
            _RANKS[params.least_severity],
            params.detectors,
            since,
            timeout_s=READ_TIMEOUT_S,
        )
        return [row["created_at"] for row in rows]

    async def heard(self, project_id: int) -> Mapping[str, Heard]:
        """The services that sent something, and on which days; what the demo sent is nobody's."""
        # A row an exporter and day, of thirty days at most.
        rows = await self.database.fetch(
            "select service, array_agg(distinct day) as days, max(last_seen_at) as last_at"
            " from exporter_day where project_id = $1 and scope <> $2 and service <> ''"
            f" group by service order by max(last_seen_at) desc limit {SERVICES_WATCHED}",
            project_id,
            DEMO_SCOPE,
            timeout_s=READ_TIMEOUT_S,
        )
        return {row["service"]: Heard(frozenset(row["days"]), row["last_at"]) for row in rows}

    async def letters(self, project_id: int) -> WaitingLetters:
        """The dead letters that wait."""
        # By the index of the project.
        rows = await self.database.fetch(
            "select reason, sum(spans)::bigint as spans, min(buried_at) as oldest_at from dead_letter"
            " where project_id = $1 group by reason order by 2 desc, 1 limit 1000",
            project_id,
            timeout_s=READ_TIMEOUT_S,
        )
        if not rows:
            return WaitingLetters(0, None, None)
        oldest = min(row["oldest_at"] for row in rows)
        return WaitingLetters(sum(row["spans"] for row in rows), oldest, rows[0]["reason"])

    async def buried(self, project_id: int, since: datetime) -> Sequence[tuple[datetime, int]]:
        """When the letters that still wait were buried, and their spans, ascending."""
        # By the index of the project, which grows with time.
        rows = await self.database.fetch(
            "select buried_at, spans from dead_letter where project_id = $1 and buried_at >= $2"
            f" order by id limit {INSTANTS_READ}",
            project_id,
            since,
            timeout_s=READ_TIMEOUT_S,
        )
        return [(row["buried_at"], row["spans"]) for row in rows]

    async def samples(self, kind: RuleKind, since: datetime) -> Sequence[tuple[datetime, Sample]]:
        """What was known of the instance once an hour, as far as rules of this kind judge it, ascending."""
        # A row an hour, by the key.
        rows = await self.database.fetch(
            "select taken_at, facts::text as facts from instance_sample where kind = $1 and hour >= $2"
            f" order by hour limit {INSTANTS_READ}",
            kind,
            since,
            timeout_s=READ_TIMEOUT_S,
        )
        return [(row["taken_at"], msgspec.json.decode(row["facts"], type=SAMPLED[kind])) for row in rows]

    async def digest(self, project_id: int, since: datetime, until: datetime) -> AlertFacts:
        """What happened in a period: what became of cases, traces; and what is open, the worst first."""

        async def work(connection: Connection) -> AlertFacts:
            # The steps of cases in the period.
            steps = await connection.fetch(
                "select e.kind, count(*) as n from detection_case c join case_event e"
                " on e.project_id = c.project_id and e.case_id = c.id"
                " where c.project_id = $1 and e.created_at >= $2 and e.created_at < $3"
                " and e.kind in ('opened', 'reopened', 'resolved', 'absorbed', 'rejected') group by 1",
                project_id,
                since,
                until,
            )
            # The worst that are open now, and how many there are.
            cases = await connection.fetch(
                "select number, title, severity, count(*) over () as n from detection_case"
                " where project_id = $1 and state = 'open'"
                " order by severity_rank desc, opened_at desc, id desc limit $2",
                project_id,
                DIGEST_CASES,
            )
            # Traces by the index of when they arrived.
            traces: Any = await connection.fetchrow(
                "select count(*) as n, count(*) filter (where status = 'error') as failed,"
                " sum(total_cost)::float8 as cost from trace"
                " where project_id = $1 and created_at >= $2 and created_at < $3",
                project_id,
                since,
                until,
            )
            return _digest({row["kind"]: row["n"] for row in steps}, cases, traces, until - since)

        return await self.database.run(work, readonly=True, timeout_s=READ_TIMEOUT_S)


def _digest(steps: Mapping[str, int], cases: Sequence[Any], traces: Any, period: timedelta) -> AlertFacts:
    opened, again = steps.get("opened", 0), steps.get("reopened", 0)
    over = sum(steps.get(name, 0) for name in ("resolved", "absorbed", "rejected"))
    still = cases[0]["n"] if cases else 0
    cost = f", {money(traces['cost'])}" if traces["cost"] else ""
    lines = [
        f"{counted(traces['n'], 'trace')}, {count(traces['failed'])} failed{cost}.",
        f"{opened} opened, {again} opened again, {over} resolved.",
        *(f"C-{row['number']} ({row['severity']}): {row['title'][:50]}" for row in cases),
    ]
    length = "a day" if period <= timedelta(days=1) else "a week"
    title = f"Digest of {length}: {still} {'case' if still == 1 else 'cases'} open"
    return AlertFacts(title=title, text="\n".join(lines), severity="info", path="/triage")
