"""The claim of a run: which is free, what of its budget is left, who holds it from now on.

`PostgresRunStore` calls `claimed_in` within its transaction. Looks into all projects, so it takes no
project's turn: what is not to go on is handed back, to be ended in a transaction that does.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any, Final, Literal
from uuid import UUID

import attrs
import msgspec

from protocol.agents import ATTEMPTS, LEASE_S, REFUNDS, AgentSettings, RunLease, Spent
from svc.store.agents.settings import settings_of
from svc.store.postgres.database import Connection

# A run that nobody holds and that is due, or whose holder is gone; one that is being claimed is passed over.
FREE: Final = (
    "select r.*, r.limits::text as said_limits, r.request::text as said_request, r.spent::text as said_spent,"
    " r.spent_before::text as said_before from agent_run r"
    " where ((r.state in ('queued', 'parked') and r.due_at <= now())"
    " or (r.state = 'running' and r.lease_until <= now()))"
    " and not exists (select from project p where p.id = r.project_id and p.deleted_at is not null)"
    " order by r.due_at limit 1 for update skip locked"
)

# What was spent since a moment, and what the runs under way may still spend, but for one of them.
_DAY: Final = (
    "select coalesce(sum(spent_usd) filter (where state <> 'running'"
    " and (started_at >= $2 or finished_at >= $2)), 0)"
    " + coalesce(sum(greatest(coalesce((spent_before ->> 'usd')::float8, 0) + (limits ->> 'usd')::float8,"
    " spent_usd)) filter (where state = 'running'), 0)"
    " from agent_run where project_id = $1 and id <> $3 and (state = 'running' or requested_at >= $2"
    " or started_at >= $2 or finished_at >= $2)"
)


@attrs.frozen
class RunOver:
    """A run that is not to go on. It is ended in a transaction of its own: a turn is taken before a run."""

    project_id: int
    run_id: UUID
    claims: int
    state: Literal["failed", "cancelled"]
    said: str
    #: Whether a runner may still have it: its holder died.
    begun: bool


def _over(run: Any) -> RunOver | None:
    is_running = run["state"] == "running"
    over = partial(RunOver, run["project_id"], run["id"], run["claims"], begun=is_running)
    if run["cancel_asked_by"] is not None:
        return over("cancelled", f"cancelled by {run['cancel_asked_by']}")
    if run["refunds"] >= REFUNDS:
        return over("failed", f"begun anew {run['refunds']} times and never ended")
    if run["state"] != "running" and run["attempt"] >= ATTEMPTS:
        return over("failed", run["failure"] or f"none of {ATTEMPTS} attempts came to an end")
    return None


async def claimed_in(connection: Connection, run: Any, now: datetime) -> RunLease | RunOver | bool:
    """The lease; True: the run was parked, look again."""
    project_id, run_id = run["project_id"], run["id"]
    taken_over = run["state"] == "running"
    if (over := _over(run)) is not None:
        return over
    settings = await settings_of(connection, project_id)
    total = msgspec.json.decode(run["said_spent"], type=Spent)
    spent = msgspec.json.decode(run["said_before"], type=Spent) if taken_over else total
    limits = settings.limits(run["kind"])
    left_usd = max(0.0, limits.usd - (spent.usd or 0.0))
    limits = msgspec.structs.replace(limits, usd=left_usd, tokens=max(0, limits.tokens - spent.tokens))
    if not taken_over and await _too_much(connection, run, settings, (spent.usd or 0.0) + left_usd, now):
        return True
    # A token that nobody had before; a claim of its own unless the work is taken over.
    row: Any = await connection.fetchrow(
        "update agent_run set state = 'running', reason = null, lease_token = gen_random_uuid(),"
        " lease_until = now() + $3 * interval '1 second', started_at = coalesce(started_at, $4),"
        " limits = $5::text::jsonb, attempt = attempt + $6, claims = claims + $6,"
        " refunds = refunds + 1 - $6, spent_before = case when $6 = 1 then spent else spent_before end"
        " where project_id = $1 and id = $2 returning lease_token, attempt, claims",
        project_id,
        run_id,
        LEASE_S,
        now,
        msgspec.json.encode(limits).decode(),
        0 if taken_over else 1,
    )
    if run["kind"] == "triage":
        await set_status(connection, project_id, run["subject_id"], "pending", "in_flight")
    request = run["said_request"] if taken_over else None
    return RunLease(
        project_id=project_id,
        run_id=run_id,
        kind=run["kind"],
        subject_id=run["subject_id"],
        token=row["lease_token"],
        attempt=row["attempt"],
        claim=row["claims"],
        limits=limits,
        settings=settings,
        spent=spent,
        used=total.less(spent),
        taken_over=taken_over,
        request=None if request is None else msgspec.json.decode(request),
        key_id=None if run["key_id"] is None else str(run["key_id"]),
        requested_by=run["requested_by"],
    )


async def _too_much(
    connection: Connection, run: Any, settings: AgentSettings, usd: float, now: datetime
) -> bool:
    """Whether the day's budget has no room for so much more; then the run is parked."""
    project_id, run_id = run["project_id"], run["id"]
    # One after the other: what both would see left is spent once.
    await connection.execute("select pg_advisory_xact_lock(hashtextextended('svc agents', $1))", project_id)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    day = await connection.fetchval(_DAY, project_id, midnight, run_id)
    if day + usd <= settings.day_usd:
        return False
    # Until the day is over, or somebody sets another budget.
    await connection.execute(
        "update agent_run set state = 'parked', reason = 'day_budget',"
        " due_at = now() + $3 * interval '1 second' where project_id = $1 and id = $2",
        project_id,
        run_id,
        86_400 - (now - midnight).total_seconds(),
    )
    return True


async def set_status(
    connection: Connection, project_id: int, finding_id: UUID, before: str | None, after: str
) -> None:
    """Say how far a finding's triage is, within the caller's transaction, if it says `before`."""
    # What the finding says of its triage; a decision made meanwhile stays.
    await connection.execute(
        "update finding set triage_status = $4 where project_id = $1 and id = $2"
        " and ($3::text is null or triage_status = $3)",
        project_id,
        finding_id,
        before,
        after,
    )
