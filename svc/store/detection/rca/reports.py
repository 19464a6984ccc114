"""Reports of root-cause analysis: begun on a case, held by a lease while they run, ended once.

Owns the table `rca_report`. The fronts call `start`, whoever analyses the other verbs. One report of an
engine runs for a case at a time. The case names an agent's while that runs, else the one that stands on top:
one that explains before one that found no cause, an agent's before the rule's, the newest. Whoever claims a
report holds it for `LEASE_S`, renews it in time, and loses it otherwise: the next claim takes it over, and
what the loser writes then is dropped.

Ordering: `start` and `finish` take the project's turn first (`svc.store.detection.cases`). A claim does not,
because it looks for work in all projects; it locks one report, waits for nobody and is waited for by the
holder of that report only. Leases are told by the database's clock, the only one that all replicas share.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.detection import SYSTEM, Author, DueCase, RcaEngine, RcaLease, RcaStarted
from svc.domain.rca.cohort import LEAST_UNITS
from svc.store.detection.cases.cases import TOP_FIRST
from svc.store.detection.cases.trail import audit, note, take_turn
from svc.store.postgres.database import Connection, Database

#: A lease, unless it is renewed; three renewals fit into it.
LEASE_S: Final = 60.0
#: A report that was claimed so often and never ended is given up.
ATTEMPTS: Final = 5
#: The longest reason of a failure that is kept.
FAILURE_CHARS: Final = 500
#: Cases that are found due at a time.
DUE_CASES: Final = 50

#: A report for which there was too little traffic is made anew so often, each time after a longer wait.
AGAIN: Final = 4
AGAIN_HOURS: Final = 1

# Cases for which the rule has begun nothing since they opened, those that recovered meanwhile too, and those
# of which more traces came since it found too few; what it failed at it leaves.
_DUE: Final = (
    "select c.project_id, c.id as case_id from detection_case c where c.rule_report_due"
    " and (c.state <> 'resolved' or c.resolution = 'recovered')"
    " and (c.rule_report_after is null or (c.rule_report_after <= now() and exists (select from finding f"
    " where f.project_id = c.project_id and f.id = c.finding_id"
    " and f.trace_count > c.rule_report_traces)))"
    " and not exists (select from project p where p.id = c.project_id and p.deleted_at is not null)"
    f" order by c.opened_at limit {DUE_CASES}"
)

# To be made anew once there are more traces, each time after a longer wait.
_AGAIN: Final = (
    "update detection_case c set rule_report_due = true, rule_report_tries = c.rule_report_tries + 1,"
    " rule_report_traces = f.trace_count,"
    f" rule_report_after = now() + interval '{AGAIN_HOURS} hour' * power(4, c.rule_report_tries)"
    " from finding f where c.project_id = $1 and c.id = $2 and c.state <> 'resolved'"
    f" and c.rule_report_tries < {AGAIN} and f.project_id = c.project_id and f.id = c.finding_id"
)


def _too_few(report: dict[str, Any] | None) -> bool:
    """Whether a report by rule came to nothing for want of traces."""
    if report is None or report.get("verdict") != "inconclusive" or "populations" not in report:
        return False
    sides: list[int] = [side["traces"] for side in report["populations"].values()]
    return min(sides) < LEAST_UNITS


@attrs.define(eq=False)
class RcaStore:
    """All verbs raise `Outage`."""

    database: Database

    async def due(self) -> list[DueCase]:
        """Cases, open, muted or recovered, without a report by rule since they opened, or with one that had
        too little traffic; the oldest first.
        """
        rows = await self.database.fetch(_DUE)
        return [DueCase(row["project_id"], row["case_id"]) for row in rows]

    async def start(
        self,
        project_id: int,
        case_id: UUID,
        by: Author,
        now: datetime,
        *,
        engine: RcaEngine = "rule",
        if_due: bool = False,
    ) -> RcaStarted | None:
        """Begin a report and name it on the case, or name the one that runs; None: there is no such case, or,
        with `if_due`, the rule has begun one since it opened.
        """

        return await self.database.run(
            lambda connection: started_in(
                connection, project_id, case_id, by, now, engine=engine, if_due=if_due
            )
        )

    async def claim(self, now: datetime, *, engine: RcaEngine = "rule") -> RcaLease | None:
        """Hold the engine's report that waits longest and that nobody holds, or nobody in time, if any does.

        One that was claimed too often is failed on the way, with the reason.
        """

        async def work(connection: Connection) -> RcaLease | None:
            while True:
                # The oldest that is free; one that somebody is claiming right now is passed over.
                report = await connection.fetchrow(
                    "select r.project_id, r.id, r.case_id, r.attempts from rca_report r"
                    " where r.status = 'running' and r.engine = $1"
                    " and (r.lease_until is null or r.lease_until <= now())"
                    " and not exists (select from project p where p.id = r.project_id"
                    " and p.deleted_at is not null) order by r.started_at limit 1 for update skip locked",
                    engine,
                )
                if report is None:
                    return None
                if report["attempts"] < ATTEMPTS:
                    return await _hold(connection, report)
                await _give_up(connection, report, now)

        return await self.database.run(work)

    async def renew(self, lease: RcaLease) -> RcaLease | None:
        """Hold on to a report for another `LEASE_S`; None: it is lost or ended, its work is for nothing."""
        # While the token is the same, even late, no other process has taken over.
        rows = await self.database.fetch(
            "update rca_report set lease_until = now() + $4 * interval '1 second'"
            " where project_id = $1 and id = $2 and lease_token = $3 and status = 'running'"
            " returning lease_until",
            lease.project_id,
            lease.report_id,
            lease.token,
            LEASE_S,
        )
        return attrs.evolve(lease, until=rows[0]["lease_until"]) if rows else None

    async def release(self, lease: RcaLease, *, refund: bool) -> bool:
        """Let go of a report, for the next to claim; `refund` gives the attempt back. False: it was lost."""
        # Released, if this token holds it.
        rows = await self.database.fetch(
            "update rca_report set lease_token = null, lease_until = null,"
            " attempts = attempts - case when $4 then 1 else 0 end"
            " where project_id = $1 and id = $2 and lease_token = $3 and status = 'running' returning id",
            lease.project_id,
            lease.report_id,
            lease.token,
            refund,
        )
        return bool(rows)

    async def finish(self, lease: RcaLease, outcome: dict[str, Any] | str, by: Author, now: datetime) -> bool:
        """End a report: with what it says, or with the reason why it failed. False: it was lost.

        The first outcome stays; whoever wrote it hears True again.
        """
        report, failure = (None, outcome) if isinstance(outcome, str) else (outcome, None)

        async def work(connection: Connection) -> bool:
            await take_turn(connection, lease.project_id)
            # The report, if it still runs and is still held by this one.
            case_id = await connection.fetchval(
                "update rca_report set status = $4::text, report = $5::text::jsonb, failure = $6,"
                " finished_at = $7"
                " where project_id = $1 and id = $2 and lease_token = $3 and status = 'running'"
                " returning case_id",
                lease.project_id,
                lease.report_id,
                lease.token,
                "done" if failure is None else "failed",
                None if report is None else msgspec.json.encode(report).decode(),
                None if failure is None else failure[:FAILURE_CHARS],
                now,
            )
            if case_id is None:
                # Ended by this very lease before: the token stays with the outcome.
                return bool(
                    await connection.fetchval(
                        "select true from rca_report where project_id = $1 and id = $2 and lease_token = $3",
                        lease.project_id,
                        lease.report_id,
                        lease.token,
                    )
                )
            await _told_end(connection, lease.project_id, case_id, failure, by, now)
            if report is not None and _too_few(report):
                await connection.execute(_AGAIN, lease.project_id, case_id)
            return True

        return await self.database.run(work)


async def started_in(
    connection: Connection,
    project_id: int,
    case_id: UUID,
    by: Author,
    now: datetime,
    *,
    engine: RcaEngine,
    if_due: bool = False,
) -> RcaStarted | None:
    """`RcaStore.start` within the caller's transaction."""
    await take_turn(connection, project_id)
    # The case, whether the rule has still to look, and its report of this engine while that runs.
    case = await connection.fetchrow(
        "select c.rule_report_due as due, (select r.id from rca_report r"
        " where r.project_id = c.project_id and r.case_id = c.id and r.status = 'running'"
        " and r.engine = $3 limit 1) as running"
        " from detection_case c where c.project_id = $1 and c.id = $2",
        project_id,
        case_id,
        engine,
    )
    if case is None or (if_due and not case["due"]):
        return None
    if engine == "rule":
        # Whoever begins it, the rule looks at the case.
        await connection.execute(
            "update detection_case set rule_report_due = false where project_id = $1 and id = $2",
            project_id,
            case_id,
        )
    if case["running"] is not None:
        return RcaStarted(case["running"], new=False)
    # The report, without a lease.
    report_id: UUID = await connection.fetchval(
        "insert into rca_report (project_id, case_id, status, started_at, engine)"
        " values ($1, $2, 'running', $3, $4) returning id",
        project_id,
        case_id,
        now,
        engine,
    )
    await _name(connection, project_id, case_id, report_id, instead_of_agents=engine == "agent")
    await note(connection, project_id, case_id, "rca_started", by.name, "", now)
    await audit(connection, "case.rca", project_id, ("case", case_id), by, {})
    return RcaStarted(report_id, new=True)


async def ended_in(
    connection: Connection,
    project_id: int,
    report_id: UUID,
    outcome: dict[str, Any] | str,
    by: Author,
    now: datetime,
) -> bool:
    """End a report that no lease holds: an agent's, in the transaction that ends its run, in the project's
    turn. False: it does not run.
    """
    report, failure = (None, outcome) if isinstance(outcome, str) else (outcome, None)
    # The report, if it runs.
    case_id = await connection.fetchval(
        "update rca_report set status = $3::text, report = $4::text::jsonb, failure = $5, finished_at = $6"
        " where project_id = $1 and id = $2 and status = 'running' and engine = 'agent' returning case_id",
        project_id,
        report_id,
        "done" if failure is None else "failed",
        None if report is None else msgspec.json.encode(report).decode(),
        None if failure is None else failure[:FAILURE_CHARS],
        now,
    )
    if case_id is None:
        return False
    await _told_end(connection, project_id, case_id, failure, by, now)
    return True


async def _told_end(
    connection: Connection,
    project_id: int,
    case_id: UUID,
    failure: str | None,
    by: Author,
    now: datetime,
) -> None:
    """The case names what explains it best; its trail says how the report ended."""
    await _name_top(connection, project_id, case_id)
    kind = "rca_done" if failure is None else "rca_failed"
    await note(connection, project_id, case_id, kind, by.name, (failure or "")[:FAILURE_CHARS], now)


async def _name(
    connection: Connection, project_id: int, case_id: UUID, report_id: UUID, *, instead_of_agents: bool
) -> None:
    # The case's report while it runs, unless an agent's that runs or is done is to stay.
    await connection.execute(
        "update detection_case c set rca_report_id = $3 where c.project_id = $1 and c.id = $2"
        " and ($4 or not exists (select from rca_report r where r.project_id = c.project_id"
        " and r.id = c.rca_report_id and r.id <> $3 and r.status in ('running', 'done')"
        " and r.engine = 'agent'))",
        project_id,
        case_id,
        report_id,
        instead_of_agents,
    )


async def _name_top(connection: Connection, project_id: int, case_id: UUID) -> None:
    # What stands on top of all that were done, unless an agent's is named that runs.
    await connection.execute(
        "update detection_case c set rca_report_id = coalesce((select r.id from rca_report r"
        " where r.project_id = c.project_id and r.case_id = c.id and r.status = 'done'"
        f" order by {TOP_FIRST} limit 1), c.rca_report_id) where c.project_id = $1 and c.id = $2"
        " and not exists (select from rca_report n where n.project_id = c.project_id"
        " and n.id = c.rca_report_id and n.status = 'running' and n.engine = 'agent')",
        project_id,
        case_id,
    )


async def _hold(connection: Connection, report: Any) -> RcaLease:
    # A token that nobody had before.
    row: Any = await connection.fetchrow(
        "update rca_report set lease_token = gen_random_uuid(), attempts = attempts + 1,"
        " lease_until = now() + $3 * interval '1 second' where project_id = $1 and id = $2"
        " returning lease_token, lease_until, attempts",
        report["project_id"],
        report["id"],
        LEASE_S,
    )
    return RcaLease(
        project_id=report["project_id"],
        report_id=report["id"],
        case_id=report["case_id"],
        token=row["lease_token"],
        until=row["lease_until"],
        attempt=row["attempts"],
    )


async def _give_up(connection: Connection, report: Any, now: datetime) -> None:
    failure = f"given up after {report['attempts']} attempts, none of which came to an end"
    # Failed; whoever held it last writes nothing any more.
    await connection.execute(
        "update rca_report set status = 'failed', failure = $3, finished_at = $4, lease_token = null,"
        " lease_until = null where project_id = $1 and id = $2",
        report["project_id"],
        report["id"],
        failure,
        now,
    )
    await _name_top(connection, report["project_id"], report["case_id"])
    await note(connection, report["project_id"], report["case_id"], "rca_failed", SYSTEM.name, failure, now)
