"""How a finding comes, grows, is decided of, and goes.

Owns what is written to the table `finding`. Detectors call `fire` and `recover`, the rule, agents and people
`rule`, people `expect`; no MCP tool comes here. What a verb does to a finding it does to its case in the same
transaction.

A cause has one live finding. What it says after that one was closed is either an echo, which changes
nothing, or a new finding: it is new when it began after the old one was seen last.

Ordering: every verb takes its project's turn first (`svc.store.detection.trail`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.detection import (
    SYSTEM,
    Author,
    Detection,
    FindingRefusal,
    FindingStatus,
    Fired,
    Firing,
    Ref,
    Resolution,
    Ruled,
    Sight,
    Triage,
)
from svc.store.detection.evidence import append, cited
from svc.store.detection.firings import write_firings
from svc.store.detection.references import ask_for_move
from svc.store.detection.rejecting import OVERRULED
from svc.store.detection.reviving import revive, superseded
from svc.store.detection.settling import escalate, settle
from svc.store.detection.trail import audit, take_turn
from svc.store.postgres.database import Connection, Database

#: Who may change what another has decided: one of the same rank or a higher one.
_RANK: Final = {"rule": 0, "detector": 0, "system": 0, "agent": 1, "person": 2}

#: A cause that comes back within this time was never gone: its recovery was a pause of the traffic, or of the
#: failures.
LASTED_WITHIN: Final = timedelta(days=1)

#: What each firing writes anew, in the order of `_seen`.
_SEEN: Final = (
    "title",
    "basis",
    "severity",
    "harmful",
    "subject_label",
    "call_site_id",
    "trace_count",
    "current_value",
    "baseline_value",
    "delta",
)


@attrs.define(eq=False)
class FindingStates:
    """All verbs raise `Outage`; each may be called again after one, and does nothing twice."""

    database: Database

    async def fire(
        self,
        project_id: int,
        seen: Detection,
        refs: Iterable[Ref],
        *,
        note: Firing | None = None,
        sights: Sequence[Sight] = (),
    ) -> Fired:
        """Open the finding of a cause, withheld, or bring the live one up to date; cite and note what showed
        it, all at once.

        What was measured later renews its values and counts how often it fired again; evidence is appended
        at any rate, each reference once. `note` is written when the finding opened or was raised. Of `sights`
        those are cited and noted whose trace the finding does not name as a witness yet; without a new one
        `refs` are not looked at. The case that lists the finding follows, and says so when it grew worse.
        """
        refs = tuple(refs)

        async def work(connection: Connection) -> Fired:
            fired = await _told(connection, project_id, seen)
            if fired.did in ("closed", "waits"):
                return fired
            fresh: list[Sight] = []
            if sights:
                there = await cited(connection, project_id, fired.finding_id)
                fresh = [one for one in sights if one.trace_id not in there]
            if fresh or not sights:
                shown = (*refs, *(ref for one in fresh for ref in one.refs))
                await append(connection, project_id, fired.finding_id, shown)
            firings = [one.firing for one in fresh]
            if note is not None and fired.did in ("opened", "raised"):
                firings.append(note)
            if firings:
                await write_firings(connection, project_id, firings, seen.seen_at or seen.detected_at)
            return fired

        return await self.database.run(work)

    async def rule(
        self, project_id: int, finding_id: UUID, ruling: Triage, by: Author, now: datetime
    ) -> Ruled | FindingRefusal:
        """Keep what was decided of a live finding: confirm it, reject it, or leave it as it is.

        A later decision takes the place of an earlier one, but nobody decides over a person, and the rule
        over nobody. A case whose causes are all rejected is resolved.
        """

        return await self.database.run(
            lambda connection: ruled_in(connection, project_id, finding_id, ruling, by, now)
        )

    async def expect(
        self, project_id: int, finding_id: UUID, by: Author, now: datetime
    ) -> Ruled | FindingRefusal:
        """Close a live finding because it tells the new normal: its detector's reference has to move."""

        async def work(connection: Connection) -> Ruled | FindingRefusal:
            found = await _living(connection, project_id, finding_id, by, "absorbed")
            if isinstance(found, Ruled | FindingRefusal):
                return found
            if found["reference"] is None:
                return FindingRefusal("NOT_ABSORBABLE")
            await ask_for_move(connection, project_id, [finding_id], by, now)
            await _close(connection, project_id, finding_id, "absorbed", by, now)
            await settle(connection, project_id, found["case_id"], "absorbed", by, now)
            await audit(connection, "finding.expect", project_id, ("finding", finding_id), by, {})
            return Ruled("closed", found["case_id"])

        return await self.database.run(work)

    async def reopen(
        self, project_id: int, finding_id: UUID, by: Author, now: datetime
    ) -> Ruled | FindingRefusal:
        """Take back that a finding was rejected or expected: it is live again, with the ruling it had before.

        One that closed with its case is live again when that is reopened.
        """

        async def work(connection: Connection) -> Ruled | FindingRefusal:
            await take_turn(connection, project_id)
            # The finding, how it was closed, and whether its case is resolved.
            found = await connection.fetchrow(
                "select f.closed_as, l.case_id, c.state from finding f"
                " left join case_finding l on l.project_id = f.project_id and l.finding_id = f.id"
                " left join detection_case c on c.project_id = l.project_id and c.id = l.case_id"
                " where f.project_id = $1 and f.id = $2",
                project_id,
                finding_id,
            )
            if found is None:
                return FindingRefusal("NOT_FOUND")
            if found["closed_as"] not in ("rejected", "absorbed"):
                return FindingRefusal("NOT_DECIDED")
            if found["state"] == "resolved":
                return FindingRefusal("CASE_RESOLVED")
            if await superseded(connection, project_id, [finding_id]):
                return FindingRefusal("SUPERSEDED")
            await revive(connection, project_id, [finding_id], now)
            await audit(connection, "finding.reopen", project_id, ("finding", finding_id), by, {})
            # As confirmed as it was.
            status: FindingStatus = await connection.fetchval(
                "select status from finding where project_id = $1 and id = $2", project_id, finding_id
            )
            return Ruled(status, found["case_id"])

        return await self.database.run(work)

    async def recover(self, project_id: int, finding_id: UUID, at: datetime) -> Ruled | FindingRefusal:
        """Close a live finding whose cause has gone; with the last of its causes its case is resolved."""

        async def work(connection: Connection) -> Ruled | FindingRefusal:
            found = await _living(connection, project_id, finding_id, SYSTEM, "recovered")
            if isinstance(found, Ruled | FindingRefusal):
                return found
            await _close(connection, project_id, finding_id, "recovered", SYSTEM, at)
            await settle(connection, project_id, found["case_id"], "recovered", SYSTEM, at)
            return Ruled("closed", found["case_id"])

        return await self.database.run(work)


async def _told(connection: Connection, project_id: int, seen: Detection) -> Fired:
    """The finding of a cause, opened or brought up to date, in the project's turn."""
    await take_turn(connection, project_id)
    # The live finding of the cause, or the one that was seen last.
    known = await connection.fetchrow(
        "select f.id, f.closed_at, f.closed_as, f.last_seen_at, f.recovered_at, f.recurrences,"
        " f.onset_at, f.onset_low_at, f.onset_high_at, l.case_id"
        " from finding f"
        " left join case_finding l on l.project_id = f.project_id and l.finding_id = f.id"
        " where f.project_id = $1 and f.detector = $2 and f.cause_kind = $3 and f.cause_key = $4"
        " order by f.closed_at is null desc, f.last_seen_at desc limit 1",
        project_id,
        seen.cause.detector,
        seen.cause.kind,
        seen.cause.key,
    )
    if known is not None and known["closed_at"] is None:
        over = known["recovered_at"]
        if over is not None and seen.onset_at > over:
            return Fired(known["id"], "waits", known["case_id"])
        return await _raise(connection, project_id, known, seen)
    if known is not None and seen.onset_at <= known["last_seen_at"]:
        return Fired(known["id"], "closed", known["case_id"])
    began = seen if known is None else _since_first(known, seen)
    finding_id = await _insert(connection, project_id, began, None if known is None else known["id"])
    return Fired(finding_id, "opened")


async def ruled_in(
    connection: Connection, project_id: int, finding_id: UUID, ruling: Triage, by: Author, now: datetime
) -> Ruled | FindingRefusal:
    """`FindingStates.rule` within the caller's transaction."""
    closing: Resolution | None = "rejected" if ruling.verdict == "negative" else None
    found = await _living(connection, project_id, finding_id, by, closing)
    if isinstance(found, Ruled | FindingRefusal):
        return found
    if found["decided_by"] and _RANK[by.kind] < _RANK[found["decided_by"]]:
        return FindingRefusal("OVERRULED", found["ruled_by"], found["triaged_at"])
    after: dict[str, FindingStatus] = {"positive": "confirmed", "negative": "rejected"}
    status: FindingStatus = after.get(ruling.verdict, found["status"])
    # The five hidden fields, the one that says that they are there, and what follows of them; what a
    # rejection overwrites is kept.
    await connection.execute(
        "update finding set"
        f" overruled = case when $10::text = 'rejected' then {OVERRULED} end,"
        " triage_status = 'done', triage_verdict = $3, triage_action = $4,"
        " triage_summary = $5, triage_citations = $6::text::jsonb, triaged_at = $7::timestamptz,"
        " ruled_by_kind = $8, ruled_by = $9::text, status = $10::text,"
        " confirmed = $10::text = 'confirmed',"
        " confirmed_at = case when $10 = 'confirmed' then coalesce(confirmed_at, $7) end,"
        " closed_at = case when $10 = 'rejected' then $7 end,"
        " closed_by = case when $10 = 'rejected' then $9 end,"
        " closed_as = case when $10 = 'rejected' then $10 end"
        " where project_id = $1 and id = $2",
        project_id,
        finding_id,
        ruling.verdict,
        ruling.action,
        ruling.summary,
        msgspec.json.encode(list(ruling.citations)).decode(),
        now,
        by.kind,
        by.name,
        status,
    )
    if status == "rejected":
        await settle(connection, project_id, found["case_id"], "rejected", by, now)
    if status != found["status"]:
        action: Any = "finding.confirm" if status == "confirmed" else "finding.reject"
        said = {"reason": ruling.summary} if status == "rejected" else {}
        await audit(connection, action, project_id, ("finding", finding_id), by, said)
    return Ruled(status, found["case_id"])


async def _living(
    connection: Connection, project_id: int, finding_id: UUID, by: Author, closing: Resolution | None
) -> Any:
    """The finding, in the project's turn, or the refusal when it is not there or closed.

    Closed by the same author in the way that they want, it is `Ruled`: the verb is called again.
    """
    await take_turn(connection, project_id)
    # The finding and the case that lists it.
    found = await connection.fetchrow(
        "select f.status, f.reference, f.ruled_by, f.triaged_at, f.closed_at, f.closed_by, f.closed_as,"
        " case when f.triage_verdict <> 'unclear' then f.ruled_by_kind end as decided_by, l.case_id"
        " from finding f"
        " left join case_finding l on l.project_id = f.project_id and l.finding_id = f.id"
        " where f.project_id = $1 and f.id = $2",
        project_id,
        finding_id,
    )
    if found is None:
        return FindingRefusal("NOT_FOUND")
    if found["closed_at"] is not None:
        if (found["closed_by"], found["closed_as"]) == (by.name, closing):
            return Ruled(found["status"], found["case_id"])
        return FindingRefusal("CLOSED", found["closed_by"], found["closed_at"])
    return found


def _since_first(known: Any, seen: Detection) -> Detection:
    """What comes back so soon after its recovery was never over: it began when it first did."""
    over = known["recovered_at"] or known["closed_at"]
    if known["closed_as"] != "recovered" or seen.onset_at - over > LASTED_WITHIN:
        return seen
    return attrs.evolve(
        seen,
        onset_at=known["onset_at"],
        onset_low_at=known["onset_low_at"],
        onset_high_at=known["onset_high_at"],
    )


async def _close(
    connection: Connection, project_id: int, finding_id: UUID, why: Resolution, by: Author, now: datetime
) -> None:
    # It keeps what it was confirmed by.
    await connection.execute(
        "update finding set status = 'closed', closed_at = $3, closed_by = $4, closed_as = $5"
        " where project_id = $1 and id = $2",
        project_id,
        finding_id,
        now,
        by.name,
        why,
    )


def _seen(seen: Detection) -> list[Any]:
    return [getattr(seen, name) for name in _SEEN]


async def _insert(connection: Connection, project_id: int, seen: Detection, previous_id: UUID | None) -> UUID:
    # A new finding, withheld.
    finding_id: UUID = await connection.fetchval(
        "insert into finding (project_id, detector, cause_kind, cause_key, status, confirmed, triage_source,"
        " subject_kind, subject_id, metric, reference, onset_at, first_seen_at, last_seen_at, previous_id,"
        f" evidence, recurrences, recovered_at, onset_low_at, onset_high_at, {', '.join(_SEEN)})"
        " values ($1, $2, $3, $4, 'withheld', false, $5, $6, $7, $8, $9, $10, $11, $12, $13,"
        f" $14::text::jsonb, $15, $16, $17, $18, {', '.join(f'${19 + n}' for n in range(len(_SEEN)))})"
        " returning id",
        project_id,
        seen.cause.detector,
        seen.cause.kind,
        seen.cause.key,
        seen.triage_source,
        seen.subject_kind,
        seen.subject_id,
        seen.metric,
        seen.reference,
        seen.onset_at,
        seen.detected_at,
        seen.seen_at or seen.detected_at,
        previous_id,
        msgspec.json.encode(seen.payload).decode(),
        seen.recurrences,
        seen.recovered_at,
        seen.onset_low_at,
        seen.onset_high_at,
        *_seen(seen),
    )
    return finding_id


async def _raise(connection: Connection, project_id: int, known: Any, seen: Detection) -> Fired:
    """Bring a live finding up to date, unless it was measured later already."""
    finding_id: UUID = known["id"]
    seen_at = seen.seen_at or seen.detected_at
    renews = seen_at >= known["last_seen_at"]
    again = seen.recurrences > known["recurrences"]
    if renews:
        # What it says now. Onset and subject stay: they tell which finding it is.
        await connection.execute(
            "update finding set recurrences = greatest(recurrences, $3), last_seen_at = $4,"
            " recovered_at = $5, evidence = $6::text::jsonb,"
            f" {', '.join(f'{name} = ${7 + n}' for n, name in enumerate(_SEEN))}"
            " where project_id = $1 and id = $2",
            project_id,
            finding_id,
            seen.recurrences,
            seen_at,
            seen.recovered_at,
            msgspec.json.encode(seen.payload).decode(),
            *_seen(seen),
        )
    if renews and known["case_id"] is not None:
        await escalate(connection, project_id, known["case_id"], finding_id, seen)
    return Fired(finding_id, "raised" if renews and again else "repeated", known["case_id"])
