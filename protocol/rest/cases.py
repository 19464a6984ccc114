"""Bodies and answers of `{p}/findings` and `{p}/cases` (contract §5, detectors §10).

Shapes and plain checks only. The handlers answer dictionaries of the same shape, and a test holds real
answers against it. What people may see of a ruling stands here; MCP takes it out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from protocol.agents import RunState
from protocol.detection import CaseState, CausalRole, EvidenceRole, FindingStatus
from protocol.rest.accounts import Instant

REASON_MAX = 2_000

Id = Annotated[str, Meta(max_length=500)]
Reason = Annotated[str, Meta(max_length=REASON_MAX)]
CaseLimit = Annotated[int, Meta(ge=1, le=100)]
RefLimit = Annotated[int, Meta(ge=1, le=1_000)]


class FindingsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which findings; withheld ones only with `include=all`."""

    status: FindingStatus | None = None
    call_site_id: Id | None = None
    detector: Id | None = None
    include: Literal["confirmed", "all"] = "confirmed"


class FindingShown(msgspec.Struct, kw_only=True):
    """A finding as a list shows it, with what was decided of it."""

    id: str
    title: str
    detector: str
    cause_kind: str
    cause_key: str
    call_site_id: str | None
    status: FindingStatus
    basis: str
    severity: Literal["info", "low", "medium", "high"]
    onset_at: Instant
    first_seen_at: Instant
    last_seen_at: Instant
    closed_at: Instant | None
    closed_as: str | None
    trace_count: int
    recurrences: int
    # The names of the interface specification.
    triageStatus: str
    triageVerdict: str | None
    triageAction: str | None
    triageSummary: str | None
    triageCitations: list[str] | None
    triagedAt: Instant | None


class FindingList(msgspec.Struct):
    """The newest 200 of each triage source; `withheld` counts those that are not confirmed."""

    findings: list[FindingShown]
    withheld: int


class FindingWhole(FindingShown, kw_only=True):
    """A finding with what was measured; `evidence` is what its detector says of it."""

    onset_low_at: Instant | None
    onset_high_at: Instant | None
    metric: str | None
    current_value: float | None
    baseline_value: float | None
    delta: float | None
    evidence: dict[str, Any]


class EvidenceQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which references; with `count_only` none, only how many there are."""

    role: EvidenceRole | None = None
    count_only: bool = False
    limit: RefLimit = 100
    cursor: str | None = None


class BaselineQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A page of what the present was compared with."""

    limit: RefLimit = 100
    cursor: str | None = None


class EvidenceRef(msgspec.Struct, omit_defaults=True):
    """One reference: ids, never bodies."""

    role: EvidenceRole
    grain: Literal["span", "trace", "session"]
    session_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    rank: int | None = None


class EvidencePage(msgspec.Struct):
    """References, one a measured row; `counts` is what survives, `recorded_counts` what was written."""

    refs: list[EvidenceRef]
    next_cursor: str | None
    counts: dict[str, int]
    recorded_counts: dict[str, int]


class FindingResolution(msgspec.Struct, forbid_unknown_fields=True):
    """`expected`: this is the new normal. `not_expected`: this is a real deviation, which is confirmed.

    `rejected`: nothing is wrong, because of a `reason`.
    """

    action: Literal["expected", "not_expected", "rejected"]
    reason: Reason = ""


class FindingResolved(msgspec.Struct):
    """The finding as it stands now, and its case, if it has one."""

    status: FindingStatus
    case_id: str | None


class CasesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which cases: of one state, worst first; resolved ones by their closing."""

    state: CaseState = "open"
    detector: Id | None = None
    call_site_id: Id | None = None
    limit: CaseLimit = 50
    cursor: str | None = None


class CaseShown(msgspec.Struct, kw_only=True):
    """A case as a list shows it."""

    id: str
    reference: str
    detector: str
    subject_kind: str
    subject_id: str
    subject_label: str
    call_site_id: str | None
    metric: str | None
    state: CaseState
    title: str
    basis: str
    severity: Literal["info", "low", "medium", "high"]
    onset_at: Instant
    current_value: float | None
    baseline_value: float | None
    delta: float | None
    opened_at: Instant
    last_seen_at: Instant
    resolved_at: Instant | None
    resolution: str | None
    resolution_reason: str | None
    muted_at: Instant | None
    muted_until: Instant | None
    finding_id: str | None
    rca_report_id: str | None
    rca_available: bool


class CasePage(msgspec.Struct):
    """A page of cases."""

    cases: list[CaseShown]
    next_cursor: str | None


class CaseFindingShown(msgspec.Struct):
    """A finding of a case: a cause, or an effect with the share of it that is explained."""

    id: str
    detector: str
    role: CausalRole
    explained_share: float | None
    title: str
    status: FindingStatus


class CaseStep(msgspec.Struct):
    """A step of the trail of a case."""

    id: int
    kind: str
    actor: str
    summary: str
    created_at: Instant


class CaseExemplar(msgspec.Struct):
    """A trace that shows what the case is about."""

    trace_id: str
    role: Literal["exemplar"]
    rank: int | None
    name: str | None
    duration_ms: float | None
    cost: float | None
    started_at: Instant | None


class CaseWhole(CaseShown, kw_only=True):
    """A case with its findings, trail, exemplars, ruling and report; `rca` is null while one runs.

    `rca_beside` is what the other of the two engines found: `{id, engine, finished_at, report}`.
    """

    ruling: dict[str, Any] | None
    findings: list[CaseFindingShown]
    events: list[CaseStep]
    exemplars: list[CaseExemplar]
    rca: dict[str, Any] | None
    rca_beside: dict[str, Any] | None


class CaseReason(msgspec.Struct, forbid_unknown_fields=True):
    """Why."""

    reason: Reason = ""


class MuteCase(msgspec.Struct, forbid_unknown_fields=True):
    """Until when, an instant to come; without one until somebody unmutes it."""

    until: Annotated[str, Meta(max_length=50)] | None = None


class CaseStands(msgspec.Struct):
    """A case as a verb left it."""

    reference: str
    state: CaseState


class RcaBegun(msgspec.Struct):
    """The report that runs; `coalesced` when it ran already. `run` is the agent's that makes it."""

    rca_report_id: str
    coalesced: bool
    run: str | None = None
    state: RunState | None = None
