"""Runs of agents as they move: pressed, claimed, renewed, parked, given back, cancelled.

Owns the tables `agent_run` and `agent_event`, but for the end of a run, which is in `outcomes.py`. People,
the command line and automatic triage press; a launcher in each replica claims. A run that somebody holds is
theirs while their token stands in its row; whoever lost it changes nothing any more.

Ordering: a press takes its project's turn (`detection.cases.trail`), then the run, then what it is about.
A claim looks into all projects, so it locks one run that nobody else is claiming, then the day's budget of
its project. Leases are told by the database's clock, the only one that all replicas share.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.agents import (
    EVENTS_KEPT,
    LEASE_S,
    PARKED_S,
    PURPOSES,
    REFUNDS,
    NotPressed,
    ParkedFor,
    Pressed,
    RunAbandoned,
    RunHeld,
    RunKind,
    RunLease,
    Spent,
    run_name,
)
from protocol.detection import Author
from svc.store.accounts.audit import SYSTEM
from svc.store.accounts.keys import revoked_in
from svc.store.agents.claiming import FREE, RunOver, claimed_in, set_status
from svc.store.agents.outcomes import end_in, held_in
from svc.store.detection.cases.trail import audit, take_turn
from svc.store.detection.rca.reports import started_in
from svc.store.postgres.database import Connection, Database

CHANNEL: Final = "svc_agents"
#: Findings that are pressed by themselves at a time, and how old they may be.
AUTOMATIC: Final = 20


@attrs.define(eq=False)
class PostgresRunStore:
    """All verbs raise `Outage`."""

    database: Database

    async def press(
        self, project_id: int, kind: RunKind, subject_id: UUID, by: Author, now: datetime
    ) -> Pressed | NotPressed:
        """Have an agent run, or name the run that is live."""

        async def work(connection: Connection) -> Pressed | NotPressed:
            await take_turn(connection, project_id)
            return await _pressed(connection, project_id, kind, subject_id, by, now)

        return await self.database.run(work)

    async def press_automatic(self, by: Author, now: datetime) -> int:
        """Have every finding triaged that nobody has looked at, in projects that want it. How many were."""
        # Live, not decided of, and never tried; the newest first.
        rows = await self.database.fetch(
            "select f.project_id, f.id from agent_setting s join finding f on f.project_id = s.project_id"
            " where s.triage_automatic and f.closed_at is null and f.status = 'withheld'"
            " and f.triage_status = 'none' and not exists (select from agent_run r"
            " where r.project_id = f.project_id and r.subject_id = f.id)"
            f" order by f.last_seen_at desc limit {AUTOMATIC}"
        )
        pressed = 0
        for row in rows:
            press = await self.press(row["project_id"], "triage", row["id"], by, now)
            pressed += isinstance(press, Pressed) and not press.coalesced
        return pressed

    async def claim(self, now: datetime) -> RunLease | RunAbandoned | None:
        """Hold the run that is due longest, if any is; one whose holder died is taken over where it stands.

        What cannot go on is ended or parked on the way; one that a runner may still have is named then.
        """

        async def work(connection: Connection) -> RunLease | RunOver | bool:
            run: Any = await connection.fetchrow(FREE)
            if run is None:
                return False
            return await claimed_in(connection, run, now)

        while True:
            lease = await self.database.run(work)
            if isinstance(lease, RunLease):
                return lease
            if isinstance(lease, RunOver):
                if await self._end(lease, now) and lease.begun:
                    return RunAbandoned(run_name(lease.run_id, lease.claims))
            elif not lease:
                return None

    async def _end(self, over: RunOver, now: datetime) -> bool:
        """End what cannot be claimed, in its project's turn. False: it stands as it was found no more."""

        async def work(connection: Connection) -> bool:
            await take_turn(connection, over.project_id)
            # As it was found: held by nobody, and not claimed since.
            still: Any = await connection.fetchrow(
                "select kind, key_id from agent_run where project_id = $1 and id = $2 and claims = $3"
                " and state in ('queued', 'parked', 'running')"
                " and (lease_until is null or lease_until <= now()) for update",
                over.project_id,
                over.run_id,
                over.claims,
            )
            if still is None:
                return False
            await end_in(connection, over.project_id, over.run_id, over.state, over.said, now)
            if still["key_id"] is not None:
                # Whoever held it died before they could.
                purpose = PURPOSES[still["kind"]]
                key_id = str(still["key_id"])
                await revoked_in(connection, over.project_id, key_id, actor=SYSTEM, purpose=purpose)
            return True

        return await self.database.run(work)

    async def renew(self, lease: RunLease) -> RunHeld | None:
        """Hold on for another `LEASE_S`; None: it is lost or over."""
        # As long as the token is known, even late: nobody has taken over.
        rows = await self.database.fetch(
            "update agent_run set lease_until = now() + $4 * interval '1 second'"
            " where project_id = $1 and id = $2 and lease_token = $3"
            " returning cancel_asked_by is not null as cancelled",
            lease.project_id,
            lease.run_id,
            lease.token,
            LEASE_S,
        )
        return RunHeld(rows[0]["cancelled"]) if rows else None

    async def asked_with(self, lease: RunLease, request: Mapping[str, Any], model: str | None) -> bool:
        """Keep what the runner is asked, less its secrets: whoever takes over asks the same."""
        return await self._set(
            lease,
            "request = $4::text::jsonb, model = $5, integration_id = $6",
            msgspec.json.encode(request).decode(),
            model,
            lease.integration_id,
        )

    async def ran_on(self, lease: RunLease, model: str) -> bool:
        """Name the model that did it, which the runner's environment may have chosen."""
        return await self._set(lease, "model = $4", model)

    async def holds_key(self, lease: RunLease, key_id: str) -> bool:
        """Name the key of the run, so that whoever takes over can revoke it."""
        return await self._set(lease, "key_id = $4", UUID(key_id))

    async def progress(self, lease: RunLease, spent: Spent, events: Sequence[Mapping[str, Any]]) -> bool:
        """Keep what was spent and what happened since. False: the run is lost."""
        total = lease.spent.plus(spent)
        tool = next((e["name"] for e in reversed(events) if e["kind"] == "tool"), None)

        async def work(connection: Connection) -> bool:
            stored = await _set(
                connection,
                lease,
                "spent = $4::text::jsonb, spent_usd = $5, tool = coalesce($6, tool)",
                msgspec.json.encode(total).decode(),
                total.usd or 0.0,
                tool,
            )
            if stored and events:
                rows = [_event(event) for event in events if event["seq"] <= EVENTS_KEPT]
                # Each once; those beyond the bound are not kept.
                await connection.execute(
                    "insert into agent_event (project_id, run_id, claim, seq, at, kind, details)"
                    " select $1, $2, $3, seq, at, kind, details::jsonb"
                    " from unnest($4::integer[], $5::timestamptz[], $6::text[], $7::text[])"
                    " as told (seq, at, kind, details) on conflict do nothing",
                    lease.project_id,
                    lease.run_id,
                    lease.claim,
                    *([event[column] for event in rows] for column in range(4)),
                )
            return stored

        return await self.database.run(work)

    async def park(self, lease: RunLease, reason: ParkedFor, spent: Spent) -> bool:
        """Wait for people; the attempt is given back. False: it was lost."""

        async def work(connection: Connection) -> bool:
            return await held_in(connection, lease, spent) and await _park(
                connection, lease, reason, PARKED_S
            )

        return await self.database.run(work)

    async def refund(self, lease: RunLease, due_s: float, why: str, spent: Spent, now: datetime) -> bool:
        """Give the run back with its attempt, to be tried again; given back too often it is failed."""

        async def work(connection: Connection) -> bool:
            await take_turn(connection, lease.project_id)
            if not await held_in(connection, lease, spent):
                return False
            # Held by nobody.
            refunds: int = await connection.fetchval(
                "update agent_run set state = 'queued', lease_token = null, lease_until = null,"
                " request = null, attempt = attempt - 1, refunds = refunds + 1, spent_before ="
                " spent, failure = $5,"
                " due_at = now() + $4 * interval '1 second'"
                " where project_id = $1 and id = $2 and lease_token = $3 returning refunds",
                lease.project_id,
                lease.run_id,
                lease.token,
                due_s,
                why,
            )
            if lease.kind == "triage":
                await set_status(connection, lease.project_id, lease.subject_id, "in_flight", "pending")
            if refunds >= REFUNDS:
                failure = f"given back {refunds} times, the last time because: {why}"
                await end_in(connection, lease.project_id, lease.run_id, "failed", failure, now)
            return True

        return await self.database.run(work)

    async def cancel(self, project_id: int, run_id: UUID, by: Author, now: datetime) -> bool | None:
        """Have a run end. True: it will; False: it was over; None: there is none.

        One that nobody holds is over at once, one that is held when its holder hears of it.
        """

        async def work(connection: Connection) -> bool | None:
            await take_turn(connection, project_id)
            # The run as it stands; nobody moves it until the commit.
            state = await connection.fetchval(
                "select state from agent_run where project_id = $1 and id = $2 for update", project_id, run_id
            )
            if state is None or state in ("done", "failed", "cancelled"):
                return None if state is None else False
            # Who wanted it.
            await connection.execute(
                "update agent_run set cancel_asked_by = coalesce(cancel_asked_by, $3)"
                " where project_id = $1 and id = $2",
                project_id,
                run_id,
                by.name,
            )
            if state != "running":
                await end_in(connection, project_id, run_id, "cancelled", f"cancelled by {by.name}", now)
            await audit(connection, "agent_run.cancel", project_id, ("agent_run", run_id), by, {})
            await wake(connection)
            return True

        return await self.database.run(work)

    def notices(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Hear when a run may be due or is to be cancelled, from any process. Raises `Outage`."""
        return self.database.listening(CHANNEL)

    async def _set(self, lease: RunLease, columns: str, *values: Any) -> bool:
        return await self.database.run(lambda connection: _set(connection, lease, columns, *values))


async def wake(connection: Connection) -> None:
    """Tell every launcher, at the commit, to look now."""
    await connection.execute("select pg_notify($1, 'due')", CHANNEL)


async def _pressed(
    connection: Connection, project_id: int, kind: RunKind, subject_id: UUID, by: Author, now: datetime
) -> Pressed | NotPressed:
    # The run that is live.
    live: Any = await connection.fetchrow(
        "select id, state, report_id from agent_run where project_id = $1 and kind = $2 and subject_id = $3"
        " and state in ('queued', 'parked', 'running')",
        project_id,
        kind,
        subject_id,
    )
    if live is not None:
        return Pressed(live["id"], live["state"], True, live["report_id"])
    report_id = None
    if kind == "triage":
        refused = await _untouchable(connection, project_id, subject_id)
        if refused is not None:
            return refused
        await set_status(connection, project_id, subject_id, None, "pending")
    else:
        started = await started_in(connection, project_id, subject_id, by, now, engine="agent")
        if started is None:
            return NotPressed("NOT_FOUND")
        report_id = started.report_id
    # The run, due at once.
    run_id: UUID = await connection.fetchval(
        "insert into agent_run (project_id, kind, subject_id, report_id, requested_by, requested_at, due_at)"
        " values ($1, $2, $3, $4, $5, $6, now()) returning id",
        project_id,
        kind,
        subject_id,
        report_id,
        by.name,
        now,
    )
    details = {"kind": kind, "subject_id": str(subject_id)}
    await audit(connection, "agent_run.start", project_id, ("agent_run", run_id), by, details)
    await wake(connection)
    return Pressed(run_id, "queued", False, report_id)


async def _untouchable(connection: Connection, project_id: int, finding_id: UUID) -> NotPressed | None:
    """Why an agent cannot decide of a finding: it is not there, closed, or a person has decided."""
    # The finding, by its key.
    finding: Any = await connection.fetchrow(
        "select closed_at, closed_by, ruled_by_kind, ruled_by, triaged_at, triage_verdict from finding"
        " where project_id = $1 and id = $2",
        project_id,
        finding_id,
    )
    if finding is None:
        return NotPressed("NOT_FOUND")
    if finding["closed_at"] is not None:
        return NotPressed("CLOSED", finding["closed_by"], finding["closed_at"])
    if finding["ruled_by_kind"] == "person" and finding["triage_verdict"] != "unclear":
        return NotPressed("OVERRULED", finding["ruled_by"], finding["triaged_at"])
    return None


async def _park(connection: Connection, lease: RunLease, reason: ParkedFor, due_s: float) -> bool:
    stored = await _set(
        connection,
        lease,
        "state = 'parked', reason = $4, due_at = now() + $5 * interval '1 second', lease_token = null,"
        " lease_until = null, request = null, attempt = attempt - 1, spent_before = spent",
        reason,
        due_s,
    )
    if stored and lease.kind == "triage":
        await set_status(connection, lease.project_id, lease.subject_id, "in_flight", "pending")
    return stored


async def _set(connection: Connection, lease: RunLease, columns: str, *values: Any) -> bool:
    # The run, if it is still this one's.
    status = await connection.execute(
        f"update agent_run set {columns} where project_id = $1 and id = $2 and lease_token = $3",
        lease.project_id,
        lease.run_id,
        lease.token,
        *values,
    )
    return status == "UPDATE 1"


def _event(event: Mapping[str, Any]) -> tuple[int, datetime, str, str]:
    details = {name: value for name, value in event.items() if name not in ("seq", "at", "kind")}
    return (
        event["seq"],
        datetime.fromisoformat(event["at"]),
        event["kind"],
        msgspec.json.encode(details).decode(),
    )
