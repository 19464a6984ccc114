"""`{p}/cases`: outages and changes, worst first, and what people do with them.

A case is named by its stored id or by its reference (`C-12`). What moves cases and the trail of it is in
`svc.store.detection`; the texts of refusals stand in one table.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from protocol.detection import CaseMoved, CaseRefusal
from protocol.refusals import (
    AGENTS_OFF,
    ALREADY_MUTED,
    ALREADY_RESOLVED,
    CASE_REFUSALS,
    MUTE_IN_THE_PAST,
    NO_RUNNER,
    NO_SUCH_CASE,
    NOT_ABSORBABLE,
    NOT_MUTED,
    REASON_REQUIRED,
    Refusal,
    Refused,
)
from protocol.rest.agents import RcaQuery
from protocol.rest.cases import (
    CasePage,
    CaseReason,
    CasesQuery,
    CaseStands,
    CaseWhole,
    MuteCase,
    RcaBegun,
)
from protocol.rest.query import instant
from protocol.text import clean
from svc.front.api.cases.agents import pressed
from svc.front.api.cases.classifier_reads import named
from svc.front.api.cases.findings import told_by
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.rca.reports import RcaStore

_CASES: Final = PROJECT + "/cases"
_CASE: Final = _CASES + "/{caseId}"


async def get_cases(call: Call[None]) -> dict[str, Any]:
    """Cases of one state, worst first, then most recently opened; resolved ones by their closing."""
    query: CasesQuery = call.query
    return await CaseStore(call.means.questions).page(
        call.project.id,
        state=query.state,
        detector=named(query.detector),
        call_site_id=named(query.call_site_id),
        limit=query.limit,
        cursor=query.cursor,
        now=call.means.now(),
    )


async def get_case(call: Call[None]) -> dict[str, Any] | Refusal:
    """One case with its findings, trail, exemplar traces, ruling and report."""
    case = await CaseStore(call.means.questions).one(call.project.id, call.path["caseId"], call.means.now())
    return NO_SUCH_CASE if case is None else case


async def _case_id(call: Call[Any]) -> UUID:
    """The stored id of the case of the path. Raises `Refused`."""
    case_id = await CaseStore(call.means.database).id_of(call.project.id, call.path["caseId"])
    if case_id is None:
        raise Refused(NO_SUCH_CASE)
    return case_id


def _stands(moved: CaseMoved | CaseRefusal) -> CaseStands | Refusal:
    if isinstance(moved, CaseRefusal):
        return told_by(CASE_REFUSALS[moved.code], moved.by, moved.at)
    return CaseStands(moved.reference, moved.state)


async def post_resolve(call: Call[CaseReason]) -> CaseStands | Refusal:
    """Close a case because somebody says why."""
    reason = clean(call.body.reason)
    states = CaseStates(call.means.database)
    case_id = await _case_id(call)
    return _stands(await states.resolve(call.project.id, case_id, reason, call.author, call.means.now()))


async def post_absorb(call: Call[CaseReason]) -> CaseStands | Refusal:
    """Close a case because what it tells is the new normal; what its detectors compare with moves."""
    reason = clean(call.body.reason)
    states = CaseStates(call.means.database)
    case_id = await _case_id(call)
    return _stands(await states.absorb(call.project.id, case_id, reason, call.author, call.means.now()))


async def post_reject(call: Call[CaseReason]) -> CaseStands | Refusal:
    """Close a case because nothing is wrong, and say why; its findings are rejected."""
    reason = clean(call.body.reason)
    states = CaseStates(call.means.database)
    case_id = await _case_id(call)
    return _stands(await states.reject(call.project.id, case_id, reason, call.author, call.means.now()))


async def post_mute(call: Call[MuteCase]) -> CaseStands | Refusal:
    """Keep a case out of sight until somebody unmutes it, or until an instant to come."""
    now = call.means.now()
    until = None if call.body.until is None else instant(call.body.until, "until")
    if until is not None and until <= now:
        return MUTE_IN_THE_PAST
    states = CaseStates(call.means.database)
    case_id = await _case_id(call)
    return _stands(await states.mute(call.project.id, case_id, call.author, now, until))


async def post_unmute(call: Call[None]) -> CaseStands | Refusal:
    """Bring a muted case back into sight."""
    states = CaseStates(call.means.database)
    case_id = await _case_id(call)
    return _stands(await states.unmute(call.project.id, case_id, call.author, call.means.now()))


async def post_rca(call: Call[None]) -> RcaBegun | Refusal:
    """Have an agent look for the cause of a case, or name the run that does; `engine=rule`: the rule."""
    case_id = await _case_id(call)
    if call.query is None or call.query.engine == "agent":
        press = await pressed(call, "rca", case_id)
        if isinstance(press, Refusal):
            return press
        return RcaBegun(press.rca_report_id or "", press.coalesced, press.run, press.state)
    start = await RcaStore(call.means.database).start(call.project.id, case_id, call.author, call.means.now())
    return NO_SUCH_CASE if start is None else RcaBegun(str(start.report_id), coalesced=not start.new)


ROUTES: Final = (
    Route("GET", _CASES, "ORG_VIEW", get_cases, CasePage, query=CasesQuery),
    Route("GET", _CASE, "ORG_VIEW", get_case, CaseWhole, refusals=(NO_SUCH_CASE,)),
    Route(
        "POST", _CASE + "/resolve", "ORG_MANAGE", post_resolve, CaseStands, body=CaseReason,
        refusals=(NO_SUCH_CASE, REASON_REQUIRED, ALREADY_RESOLVED),
    ),
    Route(
        "POST", _CASE + "/absorb", "ORG_MANAGE", post_absorb, CaseStands, body=CaseReason,
        refusals=(NO_SUCH_CASE, NOT_ABSORBABLE, ALREADY_RESOLVED),
    ),
    Route(
        "POST", _CASE + "/reject", "ORG_MANAGE", post_reject, CaseStands, body=CaseReason,
        refusals=(NO_SUCH_CASE, REASON_REQUIRED, ALREADY_RESOLVED),
    ),
    Route(
        "POST", _CASE + "/mute", "ORG_MANAGE", post_mute, CaseStands, body=MuteCase,
        refusals=(NO_SUCH_CASE, MUTE_IN_THE_PAST, ALREADY_MUTED, ALREADY_RESOLVED),
    ),
    Route(
        "POST", _CASE + "/unmute", "ORG_MANAGE", post_unmute, CaseStands,
        refusals=(NO_SUCH_CASE, NOT_MUTED, ALREADY_RESOLVED),
    ),
    Route(
        "POST", _CASE + "/rca", "ORG_MANAGE", post_rca, RcaBegun, query=RcaQuery, status=202,
        refusals=(NO_SUCH_CASE, AGENTS_OFF, NO_RUNNER),
    ),
)  # fmt: skip
