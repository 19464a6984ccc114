"""How a run ends: with what it decided, with what it found, or with why it did neither.

The launcher ends runs here, by `finish` and `fail`. State, spend, ruling or report and audit are one
transaction, which the holder of the lease alone can write; whoever lost it writes nothing.

Ordering: the project's turn first, then the run, then what it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import attrs
import msgspec

from protocol.agents import ATTEMPTS, FAILURE_CHARS, RunKind, RunLease, Spent, pause_s
from protocol.detection import Author, FindingRefusal, Triage
from svc.store.accounts.audit import record
from svc.store.detection.cases.case_findings import opened_in
from svc.store.detection.cases.finding_states import ruled_in
from svc.store.detection.cases.trail import take_turn
from svc.store.detection.rca.reports import ended_in
from svc.store.postgres.database import Connection, Database

#: Who an agent is in trails and rulings, by what it does.
AGENTS: Final[Mapping[RunKind, Author]] = {
    "triage": Author("agent", "triage agent"),
    "rca": Author("agent", "root-cause agent"),
}

_ACTIONS: Final = {"positive": "confirm", "negative": "reject", "unclear": "wait"}


@attrs.define(eq=False)
class OutcomeStore:
    """All verbs raise `Outage`; each may be called again after one, and does nothing twice."""

    database: Database

    async def finish(self, lease: RunLease, answer: Mapping[str, Any], spent: Spent, now: datetime) -> bool:
        """Keep what a run came to, with all that follows of it. False: it was lost.

        A ruling of triage confirms, rejects or leaves a finding; somebody who decided meanwhile stays.
        """

        async def work(connection: Connection) -> bool:
            await take_turn(connection, lease.project_id)
            if not await held_in(connection, lease, spent):
                return False
            if lease.kind == "triage":
                summary = await _rule(connection, lease, answer, now)
            else:
                summary = await _report(connection, lease, answer, now)
            await end_in(connection, lease.project_id, lease.run_id, "done", summary, now)
            return True

        return await self.database.run(work)

    async def fail(self, lease: RunLease, why: str, spent: Spent, now: datetime, *, final: bool) -> bool:
        """An attempt came to nothing: try again after a pause, or no more. False: it was lost."""

        async def work(connection: Connection) -> bool:
            await take_turn(connection, lease.project_id)
            if not await held_in(connection, lease, spent):
                return False
            if final or lease.attempt >= ATTEMPTS:
                await end_in(connection, lease.project_id, lease.run_id, "failed", why, now)
                return True
            # Released until its pause is over.
            await connection.execute(
                "update agent_run set state = 'queued', lease_token = null, lease_until = null,"
                " request = null, failure = $3, spent_before = spent,"
                " due_at = now() + $4 * interval '1 second' where project_id = $1 and id = $2",
                lease.project_id,
                lease.run_id,
                why[:FAILURE_CHARS],
                pause_s(lease.attempt),
            )
            if lease.kind == "triage":
                await connection.execute(
                    "update finding set triage_status = 'pending' where project_id = $1 and id = $2"
                    " and triage_status = 'in_flight'",
                    lease.project_id,
                    lease.subject_id,
                )
            return True

        return await self.database.run(work)

    async def cancelled(self, lease: RunLease, spent: Spent, now: datetime) -> bool:
        """A run has ended because somebody wanted it to. False: it was lost."""

        async def work(connection: Connection) -> bool:
            await take_turn(connection, lease.project_id)
            if not await held_in(connection, lease, spent):
                return False
            # Who asked for it.
            actor = await connection.fetchval(
                "select cancel_asked_by from agent_run where project_id = $1 and id = $2",
                lease.project_id,
                lease.run_id,
            )
            reason = f"cancelled by {actor}" if actor else "cancelled"
            await end_in(connection, lease.project_id, lease.run_id, "cancelled", reason, now)
            return True

        return await self.database.run(work)


async def held_in(connection: Connection, lease: RunLease, spent: Spent) -> bool:
    """Book what a run has used in this claim, within the caller's transaction. False: it is lost."""
    total = lease.spent.plus(spent)
    # The run, if it is still this one's; what it used is used, whatever it comes to.
    status = await connection.execute(
        "update agent_run set spent = $4::text::jsonb, spent_usd = $5"
        " where project_id = $1 and id = $2 and lease_token = $3",
        lease.project_id,
        lease.run_id,
        lease.token,
        msgspec.json.encode(total).decode(),
        total.usd or 0.0,
    )
    return status == "UPDATE 1"


async def end_in(
    connection: Connection,
    project_id: int,
    run_id: UUID,
    state: Literal["done", "failed", "cancelled"],
    summary: str,
    now: datetime,
) -> None:
    """End a run within the caller's transaction, in the project's turn, and tell what it was about."""
    summary = summary[:FAILURE_CHARS]
    # The end releases the lease.
    row: Any = await connection.fetchrow(
        "update agent_run set state = $3, reason = null, lease_token = null, lease_until = null,"
        " request = null, finished_at = $4, failure = case when $3 = 'done' then null else $5 end,"
        " outcome = case when $3 = 'done' then $5 end where project_id = $1 and id = $2"
        " returning kind, subject_id, report_id, attempt, model, spent::text as spent, requested_by",
        project_id,
        run_id,
        state,
        now,
        summary,
    )
    if row["kind"] == "triage" and state != "done":
        # A decision of somebody else's stays what it says.
        await connection.execute(
            "update finding set triage_status = case when $3 = 'failed' then 'failed'"
            " when triage_verdict is not null then 'done' else 'none' end"
            " where project_id = $1 and id = $2 and triage_status in ('pending', 'in_flight')",
            project_id,
            row["subject_id"],
            state,
        )
    if row["report_id"] is not None and state != "done":
        await ended_in(connection, project_id, row["report_id"], summary, AGENTS["rca"], now)
    org_id = await connection.fetchval("select org_id from project where id = $1", project_id)
    if org_id is not None:
        await record(
            connection,
            "agent_run.end",
            actor=AGENTS[row["kind"]].name,
            org_id=org_id,
            project_id=project_id,
            subject=("agent_run", str(run_id)),
            details={
                "state": state,
                "said": summary,
                "model": row["model"],
                "attempt": row["attempt"],
                "spent": msgspec.json.decode(row["spent"]),
            },
        )


async def _rule(connection: Connection, lease: RunLease, answer: Mapping[str, Any], now: datetime) -> str:
    author = AGENTS["triage"]
    verdict = answer["verdict"]
    citations = [
        f"{citation['kind']} {citation['id']}: {citation['note']}" for citation in answer["citations"]
    ]
    ruling = Triage(verdict, _ACTIONS[verdict], answer["summary"], citations)
    ruled = await ruled_in(connection, lease.project_id, lease.subject_id, ruling, author, now)
    if isinstance(ruled, FindingRefusal):
        # Closed or decided by a person meanwhile; nothing is left to wait for.
        await connection.execute(
            "update finding set triage_status = case when triage_verdict is null then 'none' else 'done' end"
            " where project_id = $1 and id = $2 and triage_status in ('pending', 'in_flight')",
            lease.project_id,
            lease.subject_id,
        )
        return f"{verdict}, which came too late: {ruled.by or 'somebody'} had decided"
    if verdict == "positive":
        await opened_in(connection, lease.project_id, lease.subject_id, author, now)
    # The case that lists the finding holds the ruling.
    await connection.execute(
        "update detection_case c set ruling = $3::text::jsonb from case_finding l"
        " where l.project_id = $1 and l.finding_id = $2 and c.project_id = l.project_id and c.id = l.case_id",
        lease.project_id,
        lease.subject_id,
        msgspec.json.encode(
            {"run_id": str(lease.run_id), "finding_id": str(lease.subject_id), **answer}
        ).decode(),
    )
    return f"{verdict}: {answer['summary']}"


async def _report(connection: Connection, lease: RunLease, answer: Mapping[str, Any], now: datetime) -> str:
    row: Any = await connection.fetchrow(
        "select report_id, model from agent_run where project_id = $1 and id = $2",
        lease.project_id,
        lease.run_id,
    )
    report = {"engine": "agent", "run_id": str(lease.run_id), "model": row["model"], **answer}
    await ended_in(connection, lease.project_id, row["report_id"], report, AGENTS["rca"], now)
    return f"{answer['verdict']}: {answer['summary']}"
