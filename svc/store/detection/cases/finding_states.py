"""How a finding comes, grows, is decided of, and goes.

Owns what is written to the table `finding`. Detectors call `fire` and `recover`, the rule, agents and people
`rule`, people `expect`; no MCP tool comes here. What a verb does to a finding it does to its case in the same
transaction.

A cause has one live finding. What it says after that one was closed is either an echo, which changes
nothing, or a new finding: it is new when it began after the old one was seen last.

Ordering: every verb takes its project's turn first (`svc.store.detection.cases.trail`).
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
from svc.store.detection.cases.evidence import append, cited
from svc.store.detection.cases.firings import write_firings
from svc.store.detection.cases.references import ask_for_move
from svc.store.detection.cases.rejecting import OVERRULED
from svc.store.detection.cases.reviving import revive, superseded
from svc.store.detection.cases.settling import escalate, settle
from svc.store.detection.cases.trail import audit, take_turn
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
        detection: Detection,
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
            fired = await _open_or_raise(connection, project_id, detection)
            if fired.did in ("closed", "waits"):
                return fired
            fresh: list[Sight] = []
            if sights:
                cited_traces = await cited(connection, project_id, fired.finding_id)
                fresh = [sight for sight in sights if sight.trace_id not in cited_traces]
            if fresh or not sights:
                fresh_refs = (*refs, *(ref for sight in fresh for ref in sight.refs))
                await append(connection, project_id, fired.finding_id, fresh_refs)
            firings = [sight.firing for sight in fresh]
            if note is not None and fired.did in ("opened", "raised"):
                firings.append(note)
            if firings:
                await write_firings(
                    connection, project_id, firings, detection.seen_at or detection.detected_at
                )
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
            finding = await _living(connection, project_id, finding_id, by, "absorbed")
            if isinstance(finding, Ruled | FindingRefusal):
                return finding
            if finding["reference"] is None:
                return FindingRefusal("NOT_ABSORBABLE")
            await ask_for_move(connection, project_id, [finding_id], by, now)
            await _close(connection, project_id, finding_id, "absorbed", by, now)
            await settle(connection, project_id, finding["case_id"], "absorbed", by, now)
            await audit(connection, "finding.expect", project_id, ("finding", finding_id), by, {})
            return Ruled("closed", finding["case_id"])

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
            finding = await connection.fetchrow(
                "select f.closed_as, l.case_id, c.state, c.number from finding f"
                " left join case_finding l on l.project_id = f.project_id and l.finding_id = f.id"
                " left join detection_case c on c.project_id = l.project_id and c.id = l.case_id"
                " where f.project_id = $1 and f.id = $2",
                project_id,
                finding_id,
            )
            if finding is None:
                return FindingRefusal("NOT_FOUND")
            if finding["closed_as"] not in ("rejected", "absorbed"):
                return FindingRefusal("NOT_DECIDED")
            if finding["state"] == "resolved":
                return FindingRefusal("CASE_RESOLVED", case=f"C-{finding['number']}")
            if await superseded(connection, project_id, [finding_id]):
                return FindingRefusal("SUPERSEDED")
            await revive(connection, project_id, [finding_id], now)
            await audit(connection, "finding.reopen", project_id, ("finding", finding_id), by, {})
            # As confirmed as it was.
            status: FindingStatus = await connection.fetchval(
                "select status from finding where project_id = $1 and id = $2", project_id, finding_id
            )
            return Ruled(status, finding["case_id"])

        return await self.database.run(work)

    async def recover(self, project_id: int, finding_id: UUID, moment: datetime) -> Ruled | FindingRefusal:
        """Close a live finding whose cause has gone; with the last of its causes its case is resolved."""

        async def work(connection: Connection) -> Ruled | FindingRefusal:
            finding = await _living(connection, project_id, finding_id, SYSTEM, "recovered")
            if isinstance(finding, Ruled | FindingRefusal):
                return finding
            await _close(connection, project_id, finding_id, "recovered", SYSTEM, moment)
            await settle(connection, project_id, finding["case_id"], "recovered", SYSTEM, moment)
            return Ruled("closed", finding["case_id"])

        return await self.database.run(work)


async def _open_or_raise(connection: Connection, project_id: int, detection: Detection) -> Fired:
    """The finding of a cause, opened or brought up to date, in the project's turn."""
    await take_turn(connection, project_id)
    # The live finding of the cause, or the one that was seen last.
    finding = await connection.fetchrow(
        "select f.id, f.closed_at, f.closed_as, f.last_seen_at, f.recovered_at, f.recurrences,"
        " f.onset_at, f.onset_low_at, f.onset_high_at, l.case_id"
        " from finding f"
        " left join case_finding l on l.project_id = f.project_id and l.finding_id = f.id"
        " where f.project_id = $1 and f.detector = $2 and f.cause_kind = $3 and f.cause_key = $4"
        " order by f.closed_at is null desc, f.last_seen_at desc limit 1",
        project_id,
        detection.cause.detector,
        detection.cause.kind,
        detection.cause.key,
    )
    if finding is not None and finding["closed_at"] is None:
        recovered_at = finding["recovered_at"]
        if recovered_at is not None and detection.onset_at > recovered_at:
            return Fired(finding["id"], "waits", finding["case_id"])
        return await _raise(connection, project_id, finding, detection)
    if finding is not None and detection.onset_at <= finding["last_seen_at"]:
        return Fired(finding["id"], "closed", finding["case_id"])
    began = detection if finding is None else _since_first(finding, detection)
    finding_id = await _insert(connection, project_id, began, None if finding is None else finding["id"])
    return Fired(finding_id, "opened")


async def ruled_in(
    connection: Connection, project_id: int, finding_id: UUID, ruling: Triage, by: Author, now: datetime
) -> Ruled | FindingRefusal:
    """`FindingStates.rule` within the caller's transaction."""
    closing: Resolution | None = "rejected" if ruling.verdict == "negative" else None
    finding = await _living(connection, project_id, finding_id, by, closing)
    if isinstance(finding, Ruled | FindingRefusal):
        return finding
    if finding["decided_by"] and _RANK[by.kind] < _RANK[finding["decided_by"]]:
        return FindingRefusal("OVERRULED", finding["ruled_by"], finding["triaged_at"])
    statuses: dict[str, FindingStatus] = {"positive": "confirmed", "negative": "rejected"}
    status: FindingStatus = statuses.get(ruling.verdict, finding["status"])
    # The five hidden fields, the one that says that they are there, and what follows of them; what a
    # rejection overwrites is kept. An agent that is at work on the finding still is after a rule has spoken.
    await connection.execute(
        "update finding set"
        f" overruled = case when $10::text = 'rejected' then {OVERRULED} end,"
        " triage_status = case when $8 = 'rule' and triage_status in ('pending', 'in_flight')"
        " then triage_status else 'done' end, triage_verdict = $3, triage_action = $4,"
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
        await settle(connection, project_id, finding["case_id"], "rejected", by, now)
    if status != finding["status"]:
        action: Any = "finding.confirm" if status == "confirmed" else "finding.reject"
        detail = {"reason": ruling.summary} if status == "rejected" else {}
        await audit(connection, action, project_id, ("finding", finding_id), by, detail)
    return Ruled(status, finding["case_id"])


async def _living(
    connection: Connection, project_id: int, finding_id: UUID, by: Author, closing: Resolution | None
) -> Any:
    """The finding, in the project's turn, or the refusal when it is not there or closed.

    Closed by the same author in the way that they want, it is `Ruled`: the verb is called again.
    """
    await take_turn(connection, project_id)
    # The finding and the case that lists it.
    finding = await connection.fetchrow(
        "select f.status, f.reference, f.ruled_by, f.triaged_at, f.closed_at, f.closed_by, f.closed_as,"
        " case when f.triage_verdict <> 'unclear' then f.ruled_by_kind end as decided_by, l.case_id"
        " from finding f"
        " left join case_finding l on l.project_id = f.project_id and l.finding_id = f.id"
        " where f.project_id = $1 and f.id = $2",
        project_id,
        finding_id,
    )
    if finding is None:
        return FindingRefusal("NOT_FOUND")
    if finding["closed_at"] is not None:
        if (finding["closed_by"], finding["closed_as"]) == (by.name, closing):
            return Ruled(finding["status"], finding["case_id"])
        return FindingRefusal("CLOSED", finding["closed_by"], finding["closed_at"])
    return finding


def _since_first(previous: Any, detection: Detection) -> Detection:
    """What comes back so soon after its recovery was never over: it began when it first did."""
    ended_at = previous["recovered_at"] or previous["closed_at"]
    if previous["closed_as"] != "recovered" or detection.onset_at - ended_at > LASTED_WITHIN:
        return detection
    return attrs.evolve(
        detection,
        onset_at=previous["onset_at"],
        onset_low_at=previous["onset_low_at"],
        onset_high_at=previous["onset_high_at"],
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


def _renewed_values(detection: Detection) -> list[Any]:
    return [getattr(detection, name) for name in _SEEN]


async def _insert(
    connection: Connection, project_id: int, detection: Detection, previous_id: UUID | None
) -> UUID:
    finding_id: UUID = await connection.fetchval(
        "insert into finding (project_id, detector, cause_kind, cause_key, status, confirmed, triage_source,"
        " subject_kind, subject_id, metric, reference, onset_at, first_seen_at, last_seen_at, previous_id,"
        f" evidence, recurrences, recovered_at, onset_low_at, onset_high_at, {', '.join(_SEEN)})"
        " values ($1, $2, $3, $4, 'withheld', false, $5, $6, $7, $8, $9, $10, $11, $12, $13,"
        f" $14::text::jsonb, $15, $16, $17, $18, {', '.join(f'${19 + n}' for n in range(len(_SEEN)))})"
        " returning id",
        project_id,
        detection.cause.detector,
        detection.cause.kind,
        detection.cause.key,
        detection.triage_source,
        detection.subject_kind,
        detection.subject_id,
        detection.metric,
        detection.reference,
        detection.onset_at,
        detection.detected_at,
        detection.seen_at or detection.detected_at,
        previous_id,
        msgspec.json.encode(detection.payload).decode(),
        detection.recurrences,
        detection.recovered_at,
        detection.onset_low_at,
        detection.onset_high_at,
        *_renewed_values(detection),
    )
    return finding_id


async def _raise(connection: Connection, project_id: int, finding: Any, detection: Detection) -> Fired:
    """Bring a live finding up to date, unless it was measured later already."""
    finding_id: UUID = finding["id"]
    seen_at = detection.seen_at or detection.detected_at
    renews = seen_at >= finding["last_seen_at"]
    is_recurrence = detection.recurrences > finding["recurrences"]
    if renews:
        # What it says now. Onset and subject stay: they tell which finding it is.
        await connection.execute(
            "update finding set recurrences = greatest(recurrences, $3), last_seen_at = $4,"
            " recovered_at = $5, evidence = $6::text::jsonb,"
            f" {', '.join(f'{name} = ${7 + n}' for n, name in enumerate(_SEEN))}"
            " where project_id = $1 and id = $2",
            project_id,
            finding_id,
            detection.recurrences,
            seen_at,
            detection.recovered_at,
            msgspec.json.encode(detection.payload).decode(),
            *_renewed_values(detection),
        )
    if renews and finding["case_id"] is not None:
        await escalate(connection, project_id, finding["case_id"], finding_id, detection)
    return Fired(finding_id, "raised" if renews and is_recurrence else "repeated", finding["case_id"])
