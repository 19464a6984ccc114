"""Agents on the pages of findings and cases: the press, the cancel, and the part that follows a run."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec

from protocol.refusals import NO_SUCH_CASE, NO_SUCH_FINDING, Refusal, Refused
from svc.front.api.cases import agents as api
from svc.store.agents.reads import RunReads
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.cases.findings import FindingStore
from svc.web.cases.agent_view import agent_of
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit

_CASE: Final = PROJECT + "/cases/{ref}/agent"
_FINDING: Final = PROJECT + "/findings/{id}/agent"


class Pressing(msgspec.Struct):
    """A press says nothing but that."""


async def _case(visit: Visit) -> UUID:
    case_id = await CaseStore(visit.means.questions).id_of(visit.project.id, visit.call.path["ref"])
    if case_id is None:
        raise Refused(NO_SUCH_CASE)
    return case_id


async def press_case(visit: Visit) -> Go | Refusal:
    """Have an agent look for the cause."""
    answer = await api.pressed(visit.call, "rca", await _case(visit))
    return answer if isinstance(answer, Refusal) else Go(f"{visit.base}/cases/{visit.call.path['ref']}#agent")


async def press_finding(visit: Visit) -> Go | Refusal:
    """Have an agent judge whether it is real."""
    answer = await api.pressed(visit.call, "triage", visit.call.id_of("id", NO_SUCH_FINDING))
    if isinstance(answer, Refusal):
        return answer
    return Go(f"{visit.base}/findings/{visit.call.path['id']}#agent")


async def case_part(visit: Visit) -> Html:
    """How the run about a case stands."""
    press = f"{visit.base}/cases/{visit.call.path['ref']}/agent"
    view = await agent_of(visit, "rca", await _case(visit), press)
    return Html("cases/agent_run", {"agent": view, "manages": visit.manages}, part=True)


async def finding_part(visit: Visit) -> Html | Refusal:
    """How the run about a finding stands."""
    finding_id = visit.call.id_of("id", NO_SUCH_FINDING)
    if await FindingStore(visit.means.questions).one(visit.project.id, finding_id) is None:
        return NO_SUCH_FINDING
    press = f"{visit.base}/findings/{visit.call.path['id']}/agent"
    view = await agent_of(visit, "triage", finding_id, press)
    return Html("cases/agent_run", {"agent": view, "manages": visit.manages}, part=True)


async def cancel(visit: Visit) -> Go | Refusal:
    """Have a run end, and show what it was about."""
    run_id = visit.call.path["id"]
    answer = await asked(visit, api.post_cancel, path={"runId": run_id})
    if isinstance(answer, Refusal):
        return answer
    run = await RunReads(visit.means.questions).one(visit.project.id, UUID(run_id))
    assert run is not None, "it was cancelled"
    if run["kind"] == "triage":
        return Go(f"{visit.base}/findings/{run['subject_id']}#agent")
    return Go(f"{visit.base}/cases/{run['subject_id']}#agent")


PAGES: Final = (
    PageRoute("POST", _CASE, "ORG_MANAGE", press_case, form=Pressing),
    PageRoute("GET", _CASE + "/part", "ORG_VIEW", case_part),
    PageRoute("POST", _FINDING, "ORG_MANAGE", press_finding, form=Pressing),
    PageRoute("GET", _FINDING + "/part", "ORG_VIEW", finding_part),
    PageRoute("POST", PROJECT + "/agent-runs/{id}/cancel", "ORG_MANAGE", cancel, form=Pressing),
)
