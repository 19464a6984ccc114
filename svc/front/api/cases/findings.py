"""`{p}/findings`: causes behind firings, what they were measured by, and what people say of them.

A ruling is shown here; over MCP it is not. Triage by agents is no matter of this file.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from protocol.detection import FindingRefusal, NotOpened, Ruled, Triage
from protocol.refusals import (
    ALREADY_RESOLVED,
    CASE_RESOLVED,
    FINDING_REFUSALS,
    FINDING_SUPERSEDED,
    NO_SUCH_FINDING,
    NOT_ABSORBABLE,
    NOT_DECIDED,
    OVERRULED,
    REASON_REQUIRED,
    Refusal,
)
from protocol.rest.cases import (
    BaselineQuery,
    EvidencePage,
    EvidenceQuery,
    FindingList,
    FindingResolution,
    FindingResolved,
    FindingsQuery,
    FindingWhole,
)
from protocol.rest.query import timestamp_or_none
from protocol.text import clean
from svc.front.api.cases.classifier_reads import named
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.detection.cases.case_findings import CaseFindings
from svc.store.detection.cases.evidence import EvidenceStore
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.cases.findings import FindingStore

_FINDINGS: Final = PROJECT + "/findings"
_FINDING: Final = _FINDINGS + "/{findingId}"


def _id(call: Call[Any]) -> UUID:
    return call.id_of("findingId", NO_SUCH_FINDING)


async def get_findings(call: Call[None]) -> dict[str, Any]:
    """Findings, newest first, at most 200 of each triage source."""
    query: FindingsQuery = call.query
    return await FindingStore(call.means.questions).list(
        call.project.id,
        status=query.status,
        call_site_id=named(query.call_site_id),
        detector=named(query.detector),
        confirmed_only=query.include == "confirmed",
    )


async def get_finding(call: Call[None]) -> dict[str, Any] | Refusal:
    """One finding with what was measured and what was decided of it."""
    finding = await FindingStore(call.means.questions).one(call.project.id, _id(call))
    return NO_SUCH_FINDING if finding is None else finding


async def get_evidence(call: Call[None]) -> dict[str, Any] | Refusal:
    """The references behind a finding, one a measured row."""
    query: EvidenceQuery = call.query
    page = await EvidenceStore(call.means.questions).page(
        call.project.id,
        _id(call),
        role=query.role,
        count_only=query.count_only,
        limit=query.limit,
        cursor=query.cursor,
    )
    return NO_SUCH_FINDING if page is None else page


async def get_baseline_events(call: Call[None]) -> dict[str, Any] | Refusal:
    """What the present was compared with, one reference a measured row."""
    query: BaselineQuery = call.query
    page = await EvidenceStore(call.means.questions).page(
        call.project.id,
        _id(call),
        role="baseline",
        count_only=False,
        limit=query.limit,
        cursor=query.cursor,
    )
    return NO_SUCH_FINDING if page is None else page


async def post_resolution(call: Call[FindingResolution]) -> FindingResolved | Refusal:
    """Say of a finding that it is the new normal, a real deviation that opens its case, or no issue."""
    states, finding_id, now = (
        FindingStates(call.means.database),
        _id(call),
        call.means.now(),
    )
    if call.body.action == "expected":
        ruled = await states.expect(call.project.id, finding_id, call.author, now)
        return _resolved(ruled)
    reason = clean(call.body.reason.strip())
    if call.body.action == "rejected":
        if not reason:
            return REASON_REQUIRED
        no = Triage("negative", "reject", reason)
        return _resolved(await states.rule(call.project.id, finding_id, no, call.author, now))
    ruling = Triage("positive", "confirm", reason)
    ruled = await states.rule(call.project.id, finding_id, ruling, call.author, now)
    if not isinstance(ruled, Ruled):
        return _resolved(ruled)
    opened = await CaseFindings(call.means.database).open(call.project.id, finding_id, call.author, now)
    if isinstance(opened, NotOpened):
        # Closed by somebody between the two.
        return _resolved(FindingRefusal("CLOSED"))
    return FindingResolved(ruled.status, str(opened.id))


async def post_reopen(call: Call[None]) -> FindingResolved | Refusal:
    """Take back that a finding was rejected or expected; one that closed with its case reopens with that."""
    states = FindingStates(call.means.database)
    ruled = await states.reopen(call.project.id, _id(call), call.author, call.means.now())
    if isinstance(ruled, FindingRefusal) and ruled.case is not None:
        # Cases are reopened by people, and no route of this API does it.
        base_path = call.means.surroundings.base_path
        page = f"{base_path}/orgs/{call.org.slug}/projects/{call.project.slug}/cases/{ruled.case}"
        text = CASE_RESOLVED.message.format(case=ruled.case, page=page)
        return CASE_RESOLVED.saying(text, case=ruled.case, page=page)
    return _resolved(ruled)


def _resolved(ruled: Ruled | FindingRefusal) -> FindingResolved | Refusal:
    if isinstance(ruled, FindingRefusal):
        return told_by(FINDING_REFUSALS[ruled.code], ruled.by, ruled.at)
    return FindingResolved(ruled.status, None if ruled.case_id is None else str(ruled.case_id))


def told_by(refusal: Refusal, by: str | None, at: Any) -> Refusal:
    """The refusal with who was there first, and when."""
    if by is None:
        return refusal
    return refusal.saying(refusal.message, by=by, at=timestamp_or_none(at))


ROUTES: Final = (
    Route("GET", _FINDINGS, "ORG_VIEW", get_findings, FindingList, query=FindingsQuery),
    Route("GET", _FINDING, "ORG_VIEW", get_finding, FindingWhole, refusals=(NO_SUCH_FINDING,)),
    Route(
        "GET", _FINDING + "/evidence", "ORG_VIEW", get_evidence, EvidencePage, query=EvidenceQuery,
        refusals=(NO_SUCH_FINDING,),
    ),
    Route(
        "GET", _FINDING + "/baseline-events", "ORG_VIEW", get_baseline_events, EvidencePage,
        query=BaselineQuery, refusals=(NO_SUCH_FINDING,),
    ),
    Route(
        "POST", _FINDING + "/resolution", "ORG_MANAGE", post_resolution, FindingResolved,
        body=FindingResolution,
        refusals=(NO_SUCH_FINDING, ALREADY_RESOLVED, OVERRULED, NOT_ABSORBABLE, REASON_REQUIRED),
    ),
    Route(
        "POST", _FINDING + "/reopen", "ORG_MANAGE", post_reopen, FindingResolved,
        refusals=(NO_SUCH_FINDING, NOT_DECIDED, CASE_RESOLVED, FINDING_SUPERSEDED),
    ),
)  # fmt: skip
