"""What detectors, triage and people say to each other: severities, states, firings, findings, cases.

Shapes and closed lists only, each once. Detectors make them, `svc.store.detection` writes and reads them,
the fronts check what they are asked against the lists. Never a rule about when to say which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, get_args
from uuid import UUID

import attrs

Severity = Literal["low", "medium", "high"]
CaseState = Literal["open", "muted", "resolved"]

#: What a reference stands for in the evidence of a finding.
EvidenceRole = Literal["exemplar", "member", "baseline", "witness", "changepoint"]
#: A role is stored as its place in this list, counted from one. New roles go to the end.
EVIDENCE_ROLES: Final[tuple[EvidenceRole, ...]] = get_args(EvidenceRole)

TriageSource = Literal["rule", "agent"]
TRIAGE_SOURCES: Final[tuple[TriageSource, ...]] = get_args(TriageSource)

#: A finding in any other status is open: what it cites is kept, and so is it.
CLOSED_STATUSES: Final = ("closed", "dismissed", "resolved")


@attrs.frozen
class Firing:
    """One firing of a classifier: which one, about what, how sure, and why."""

    classifier_id: str
    severity: Severity
    subject_kind: Literal["span", "trace", "session"]
    summary: str
    confidence: str | None = None
    session_id: str | None = None
    trace_id: bytes | None = None
    span_id: bytes | None = None
    call_site_id: str | None = None


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
    """What a detector writes: the aggregated cause behind many firings."""

    title: str
    detector: str
    cause_kind: str
    cause_key: str
    status: str
    first_seen_at: datetime
    last_seen_at: datetime
    trace_count: int
    triage_source: TriageSource
    confirmed: bool
    call_site_id: str | None = None
    evidence: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Triage:
    """What triage decided of a finding. None of it is shown over MCP but that there is a decision."""

    verdict: str
    action: str
    summary: str
    citations: Sequence[str]
    #: A finding that triage does not confirm stays withheld.
    confirmed: bool


@attrs.frozen
class Detection:
    """What a detector saw: the subject, the measured values, and why it matters."""

    detector: str
    subject_kind: str
    subject_id: str
    subject_label: str
    title: str
    basis: str
    severity: Severity
    onset_at: datetime
    metric: str | None = None
    call_site_id: str | None = None
    current_value: float | None = None
    baseline_value: float | None = None
    delta: float | None = None
    finding_id: UUID | None = None


@attrs.frozen
class Opened:
    """The case behind a detection; `new` when it was opened by it."""

    id: UUID
    reference: str
    new: bool
