"""What a case asks of a root-cause analysis: which traces count, what of them, and from when to when.

Owns: `CaseQuestion` and `ask`, which reads the case's finding, its evidence and the buckets of its subject;
and `hours_like`, the hours that are compared. `cohorts` calls them. Never reads a trace.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.detection import EVIDENCE_ROLES, EvidenceRole
from svc.domain.detect.detectors.base import AGENT, MEASURES, RATED, SITE, TOOL, slot_of
from svc.domain.detect.detectors.table import DETECTORS
from svc.domain.detect.engine.slots import BLOCKS, SLOTS_PER_DAY
from svc.domain.rca.attributes import TELLING, BucketOf
from svc.domain.rca.cohort import Claim
from svc.store.postgres.database import Connection

#: What is before when the finding names no reference.
REFERENCE_SLOTS: Final = 14 * SLOTS_PER_DAY
#: References of evidence that are read.
EVIDENCE: Final = 20_000

# The case's finding.
_FINDING: Final = """
select f.id, f.detector, f.title, f.subject_kind, f.subject_id, f.call_site_id, f.reference, f.onset_at,
    f.onset_low_at, f.onset_high_at, f.closed_at, f.evidence::text as payload
from detection_case c join finding f on f.project_id = c.project_id and f.id = c.finding_id
where c.project_id = $1 and c.id = $2
"""

# Traces of its evidence that are still there, in the detector's order.
_EVIDENCE: Final = """
select e.role, e.trace_id from finding_evidence e where e.project_id = $1 and e.finding_id = $2
    and e.trace_id is not null and exists (select from trace t where t.project_id = e.project_id
    and t.trace_id = e.trace_id offset 0) order by e.role, e.position limit $3
"""

# The buckets of its subject, and those that say what call sites were.
_BUCKETS: Final = """
select id, measure, subject, detail from tally_bucket
where project_id = $1 and (subject = $2 or measure = any($3::text[]))
"""


@attrs.frozen
class ComparedHours:
    """Blocks of the week that are compared, and what is said of them."""

    blocks: list[int]
    words: str | None = None


ALL_HOURS: Final = ComparedHours(list(range(BLOCKS)))


def hours_like(used: Collection[int]) -> list[ComparedHours]:
    """Hours like those that were used, the most alike first: of the week, then of weekdays or weekends."""
    kinds = {(block % 4, block // 4 >= 5) for block in used}
    similar_blocks = [block for block in range(BLOCKS) if (block % 4, block // 4 >= 5) in kinds]
    choices = [
        ComparedHours(sorted(used), "The same hours of the week as since."),
        ComparedHours(similar_blocks, "The same hours of weekdays or weekends as since."),
    ]
    return [hours for hours in choices if len(hours.blocks) < BLOCKS]


@attrs.frozen(eq=False)
class CaseQuestion:
    """A finding as it is looked at: its claim, the buckets of its units, all that tell, and the ranges."""

    claim: Claim
    counted: frozenset[int]
    #: Failures are what the detector counted, or, when the tallies cannot say, its witnesses.
    by_witness: frozenset[bytes] | None
    signature: str | None
    #: Whether failures are events of secrets, whose signatures hold what tells one from another.
    secret: bool
    names: Mapping[int, BucketOf]
    unit: float | None
    before: tuple[int, int]
    after: tuple[int, int]


async def ask(connection: Connection, project_id: int, case_id: UUID, now: datetime) -> CaseQuestion | str:
    """The question of a case; a sentence when there is none."""
    finding = await connection.fetchrow(_FINDING, project_id, case_id)
    if finding is None:
        return "the case has no finding any more"
    payload = msgspec.json.decode(finding["payload"] or "{}")
    payload = payload if isinstance(payload, dict) else {}
    subject = _subject(finding, payload)
    measure = str(payload.get("measure") or _measure(finding["detector"]) or "")
    evidence: dict[EvidenceRole, list[bytes]] = {}
    for row in await connection.fetch(_EVIDENCE, project_id, finding["id"], EVIDENCE):
        evidence.setdefault(EVIDENCE_ROLES[row["role"] - 1], []).append(row["trace_id"])
    rows = await connection.fetch(_BUCKETS, project_id, subject, TELLING)
    names: dict[int, BucketOf] = {row["id"]: (row["measure"], row["subject"], row["detail"]) for row in rows}
    counted_ids = {bucket for bucket, name in names.items() if name == (measure, subject, "")}
    counts_known = bool(counted_ids)
    if not counts_known:
        counted_ids = {bucket for bucket, name in names.items() if name[1] == subject}
    unit = MEASURES[measure].unit if counts_known else None  # type: ignore[index]
    onset = slot_of(finding["onset_at"])
    end = max(slot_of(finding["closed_at"] or now), onset) + 1
    claim = Claim(
        finding["title"],
        subject,
        rate=unit is None,
        money=measure == "turn_cost",
        onset=onset,
        low=slot_of(finding["onset_low_at"] or finding["onset_at"]),
        high=slot_of(finding["onset_high_at"] or finding["onset_at"]),
        sighting=finding["detector"] == "secret_leak",
        evidence={role: tuple(traces) for role, traces in evidence.items()},
    )
    witnesses = frozenset((*evidence.get("witness", ()), *evidence.get("exemplar", ())))
    signature = payload.get("signature")
    return CaseQuestion(
        claim,
        frozenset(counted_ids),
        None if counts_known else witnesses,
        signature if finding["detector"] == "new_signature" and isinstance(signature, str) else None,
        finding["detector"] == "secret_leak",
        names,
        unit,
        _reference(payload.get("reference"), min(claim.low, onset)),
        (onset, end),
    )


def _measure(detector: str) -> str | None:
    return DETECTORS[detector].measures[0] if detector in DETECTORS else None


def _subject(finding: Any, payload: Mapping[str, Any]) -> str:
    """What the finding is about as tallies name it."""
    for name in (payload.get("subject"), finding["reference"], finding["subject_id"]):
        if isinstance(name, str) and name.startswith((SITE, AGENT, TOOL, RATED)):
            return name
    if finding["subject_kind"] == "tool":
        return f"{TOOL}{finding['subject_id']}"
    return f"{SITE}{finding['call_site_id'] or finding['subject_id']}"


def _reference(bounds: Any, end: int) -> tuple[int, int]:
    """The slots of the reference, given as slots or as instants, never beyond the onset."""
    try:
        first, end_slot = (_slot(moment) for moment in bounds)
    except (TypeError, ValueError):
        first, end_slot = end - REFERENCE_SLOTS, end
    end_slot = min(end_slot, end)
    return (first, end_slot) if first < end_slot else (end - REFERENCE_SLOTS, end)


def _slot(point: Any) -> int:
    if isinstance(point, int):
        return point
    moment = datetime.fromisoformat(point)
    if moment.tzinfo is None:
        raise ValueError("an instant without a zone")
    return slot_of(moment)
