"""What detectors, triage and people say to each other: severities, states, firings, findings, cases.

Shapes and closed lists only, each once. Detectors make them, `svc.store.detection` writes and reads them,
the fronts check what they are asked against the lists. Never a rule about when to say which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, get_args
from uuid import UUID

import attrs

Severity = Literal["low", "medium", "high"]
#: A rise of severity by this much is reported.
ESCALATES_BY: Final = 0.1

CaseState = Literal["open", "muted", "resolved"]
#: Why a case is resolved: a person said so, its causes recovered, they are the new normal, or were no causes.
Resolution = Literal["resolved", "recovered", "absorbed", "rejected"]
#: The same cause within this time after its case was resolved is the same case.
REOPENS_WITHIN: Final = timedelta(days=7)

#: `withheld` until somebody confirms it. It is live until it is `rejected` or `closed`.
FindingStatus = Literal["withheld", "confirmed", "rejected", "closed"]
#: A finding in any other status is live: what it cites is kept, and so is it.
CLOSED_STATUSES: Final[tuple[FindingStatus, ...]] = ("rejected", "closed")
#: What a finding is to the case that lists it.
CausalRole = Literal["cause", "effect"]

#: What a reference stands for in the evidence of a finding.
EvidenceRole = Literal["exemplar", "member", "baseline", "witness", "changepoint"]
#: A role is stored as its place in this list, counted from one. New roles go to the end.
EVIDENCE_ROLES: Final[tuple[EvidenceRole, ...]] = get_args(EvidenceRole)

#: Who is to confirm a finding.
TriageSource = Literal["rule", "agent"]
TRIAGE_SOURCES: Final[tuple[TriageSource, ...]] = get_args(TriageSource)
#: `positive` confirms a finding, `negative` rejects it, `unclear` leaves it as it is.
Verdict = Literal["positive", "negative", "unclear"]

#: What detectors take for a call site in a project: what was sent; each agent that calls there; or both,
#: while agents are new to it.
SiteGrain = Literal["sent", "both", "agent"]
#: Which firings of a detector are shown: all of them, or those that are sure.
DetectorMode = Literal["discovery", "tracking"]


@attrs.frozen
class Author:
    """Who acts: a person by their e-mail, an agent, the rule, a detector by its id, or the service itself."""

    kind: Literal["person", "agent", "rule", "detector", "system"]
    name: str


RULE: Final = Author("rule", "rule")
SYSTEM: Final = Author("system", "system")


@attrs.frozen
class Firing:
    """One firing of a classifier: which one, about what, how sure, and why. `at` is when; None: as it is
    written.
    """

    classifier_id: str
    severity: Severity
    subject_kind: Literal["span", "trace", "session"]
    summary: str
    confidence: str | None = None
    session_id: str | None = None
    trace_id: bytes | None = None
    span_id: bytes | None = None
    call_site_id: str | None = None
    at: datetime | None = None


@attrs.frozen
class Ref:
    """One reference of evidence: a span in its trace, a trace, or a session."""

    role: EvidenceRole
    session_id: str | None = None
    trace_id: bytes | None = None
    span_id: bytes | None = None
    rank: int | None = None


@attrs.frozen
class Cause:
    """The key of a finding: one finding of a cause is live at a time."""

    detector: str
    kind: str
    key: str


@attrs.frozen
class Detection:
    """What a detector saw when it fired: the cause, its subject, the measured values, and why it matters.

    `detected_at` and `onset_at` are event times: the watermark at which it fired, and when it began,
    somewhere from `onset_low_at` to `onset_high_at`. `seen_at` is until when it was measured (None: no
    further than it fired), `recurrences` how often it fired again since, `recovered_at` when it was over.
    `severity` goes from 0 to 1; what is not `harmful` (an
    improvement) is for information whatever its size. `reference` names what of the detector's the present is
    compared with (its bucket); None when it compares with nothing, so that nothing can be absorbed. `payload`
    is for those who read the finding.
    """

    cause: Cause
    title: str
    basis: str
    severity: float
    subject_kind: str
    subject_id: str
    subject_label: str
    detected_at: datetime
    onset_at: datetime
    onset_low_at: datetime | None = None
    onset_high_at: datetime | None = None
    harmful: bool = True
    trace_count: int = 0
    metric: str | None = None
    call_site_id: str | None = None
    current_value: float | None = None
    baseline_value: float | None = None
    delta: float | None = None
    reference: str | None = None
    payload: Mapping[str, Any] = attrs.field(factory=dict)
    triage_source: TriageSource = "rule"
    seen_at: datetime | None = None
    recurrences: int = 0
    recovered_at: datetime | None = None


@attrs.frozen
class Sight:
    """A trace that shows a cause by itself: what to cite of it, and the firing that notes it."""

    trace_id: bytes
    refs: tuple[Ref, ...]
    firing: Firing


@attrs.frozen
class Fired:
    """The finding behind a firing, and what the firing did to it.

    `opened`: it is new. `raised`: it was live and fired again. `repeated`: no more than its values are new.
    `closed`: it belongs to a finding that is closed, and reopens nothing. `waits`: its cause has an earlier
    finding, which is over and whose case has not heard of that; tell it again then.
    """

    finding_id: UUID
    did: Literal["opened", "raised", "repeated", "closed", "waits"]
    case_id: UUID | None = None


@attrs.frozen
class LiveFinding:
    """A finding that is not closed, as its detector goes on with it."""

    id: UUID
    cause: Cause
    status: FindingStatus
    onset_at: datetime
    last_seen_at: datetime
    severity: float
    reference: str | None
    #: Who decided of it: rule, agent, person, or nobody.
    decided_by: str | None
    recovered_at: datetime | None
    #: The unresolved case that lists it, and as what.
    case_id: UUID | None
    role: CausalRole | None
    recurrences: int = 0


@attrs.frozen
class Triage:
    """What the rule, an agent or a person decided of a finding.

    None of it is shown over MCP but that there is a decision.
    """

    verdict: Verdict
    action: str
    summary: str
    citations: Sequence[str] = ()


@attrs.frozen
class Ruled:
    """A finding as a ruling left it."""

    status: FindingStatus
    case_id: UUID | None


@attrs.frozen
class FindingRefusal:
    """Why nothing was done to a finding, and who was there first.

    `OVERRULED`: a person has decided, or an agent where the rule wants to. `NOT_ABSORBABLE`: its detector
    compares with nothing. `NOT_DECIDED`: nobody closed it. `CASE_RESOLVED`: it closed with its case.
    `SUPERSEDED`: its cause is live in another finding.
    """

    code: Literal[
        "NOT_FOUND", "CLOSED", "OVERRULED", "NOT_ABSORBABLE", "NOT_DECIDED", "CASE_RESOLVED", "SUPERSEDED"
    ]
    by: str | None = None
    at: datetime | None = None
    #: The reference of the case, where that is why.
    case: str | None = None


@attrs.frozen
class Opened:
    """The case of a finding; `known` when it had one already."""

    id: UUID
    reference: str
    how: Literal["opened", "reopened", "known"]


@attrs.frozen
class NotOpened:
    """Why a finding got no case: it is not there, not confirmed, or closed."""

    code: Literal["NOT_FOUND", "NOT_CONFIRMED", "CLOSED"]


@attrs.frozen
class CaseMoved:
    """A case as a verb left it."""

    reference: str
    state: CaseState


@attrs.frozen
class CaseRefusal:
    """Why a case was not moved; `by` and `at` say who moved it before, and when.

    `SUPERSEDED`: its cause is live in another case.
    """

    code: Literal[
        "NOT_FOUND",
        "REASON_REQUIRED",
        "ALREADY_RESOLVED",
        "ALREADY_MUTED",
        "NOT_MUTED",
        "NOT_RESOLVED",
        "NOT_ABSORBABLE",
        "SUPERSEDED",
    ]
    by: str | None = None
    at: datetime | None = None


@attrs.frozen
class ReferenceMove:
    """A reference that is to move because people said that the present is normal.

    What the detector measured of `reference` from `from_at` on takes the place of what it compared with.
    """

    id: int
    detector: str
    reference: str
    from_at: datetime
    asked_by: str
    asked_at: datetime
    finding_id: UUID


#: Who makes a report of root-cause analysis.
RcaEngine = Literal["rule", "agent"]


@attrs.frozen
class DueCase:
    """A case that has no report by rule since it opened last."""

    project_id: int
    case_id: UUID


@attrs.frozen
class RcaStarted:
    """The report that runs for a case; `new` when it was begun by this call."""

    report_id: UUID
    new: bool


@attrs.frozen
class RcaLease:
    """A report of root-cause analysis that somebody holds until a moment, by a token that only they know."""

    project_id: int
    report_id: UUID
    case_id: UUID
    token: UUID = attrs.field(repr=False)
    until: datetime
    #: Which attempt it is, counted from one.
    attempt: int
