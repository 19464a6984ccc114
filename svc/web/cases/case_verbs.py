"""What people do with a case: mute, resolve or reject it, take it as the new normal, and take each back.

Forms over the verbs of the REST API. Whoever comes second reads who was first: the page comes again with the
case as it stands now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import msgspec

from protocol.detection import CaseRefusal
from protocol.refusals import BAD_REQUEST, CASE_REFUSALS, NO_SUCH_CASE, Refusal
from protocol.rest.agents import RcaQuery
from protocol.rest.cases import CaseReason, MuteCase
from protocol.rest.query import timestamp
from svc.front.api.cases import cases as api
from svc.front.api.cases.findings import told_by
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.cases import CaseStore
from svc.web.cases import cases, triage
from svc.web.cases.case_view import MUTES
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit
from svc.web.shell.render import query


class Returning(msgspec.Struct):
    """Where the form stood: on the page of the case, or in the inbox, under a tab, before another case."""

    back: str = ""
    tab: str = ""
    then: str = ""


class Reasoned(Returning):
    """With a reason."""

    reason: str = ""


class Muting(Returning):
    """For how long: a preset, or until an instant in UTC."""

    length: str = "24h"
    until: str = ""


async def mute(visit: Visit) -> Html | Go | Refusal:
    """Out of sight, until somebody unmutes it or a moment comes."""
    fields: dict[str, Any] = {}
    if visit.form.until.strip():
        fields["until"] = visit.form.until.strip()
    elif visit.form.length not in MUTES:
        return BAD_REQUEST.saying(f"length is one of {', '.join(MUTES)}")
    elif (length := MUTES[visit.form.length][1]) is not None:
        fields["until"] = timestamp(visit.means.now() + length)
    return await _did(visit, "mute", await asked(visit, api.post_mute, MuteCase, fields, path=_path(visit)))


async def unmute(visit: Visit) -> Html | Go | Refusal:
    """Back into sight."""
    return await _did(visit, "unmute", await asked(visit, api.post_unmute, path=_path(visit)))


async def resolve(visit: Visit) -> Html | Go | Refusal:
    """Closed, because somebody says why."""
    fields = {"reason": visit.form.reason}
    answer = await asked(visit, api.post_resolve, CaseReason, fields, path=_path(visit))
    return await _did(visit, "resolve", answer)


async def absorb(visit: Visit) -> Html | Go | Refusal:
    """Closed, because this is the new normal."""
    fields = {"reason": visit.form.reason}
    answer = await asked(visit, api.post_absorb, CaseReason, fields, path=_path(visit))
    return await _did(visit, "absorb", answer)


async def reject(visit: Visit) -> Html | Go | Refusal:
    """Closed, because nothing is wrong."""
    fields = {"reason": visit.form.reason}
    answer = await asked(visit, api.post_reject, CaseReason, fields, path=_path(visit))
    return await _did(visit, "reject", answer)


async def reopen(visit: Visit) -> Html | Go | Refusal:
    """A resolution taken back, with what closed with it."""
    case_id = await CaseStore(visit.means.database).id_of(visit.project.id, visit.call.path["ref"])
    if case_id is None:
        return NO_SUCH_CASE
    states = CaseStates(visit.means.database)
    moved = await states.reopen(visit.project.id, case_id, visit.call.author, visit.means.now())
    if isinstance(moved, CaseRefusal):
        return await _did(visit, "reopen", told_by(CASE_REFUSALS[moved.code], moved.by, moved.at))
    return await _did(visit, "reopen", moved)


async def analyse(visit: Visit) -> Html | Go | Refusal:
    """Have its cause looked for by rule, now."""
    by_rule = RcaQuery(engine="rule")
    return await _did(visit, "analyse", await asked(visit, api.post_rca, path=_path(visit), query=by_rule))


def _path(visit: Visit) -> dict[str, str]:
    return {"caseId": visit.call.path["ref"]}


async def _did(visit: Visit, verb: str, answer: object) -> Html | Go | Refusal:
    form, reference = visit.form, visit.call.path["ref"]
    if isinstance(answer, Refusal):
        if answer.status == 404:
            return answer
        if form.back == "triage":
            again = {"case": reference, **({"tab": form.tab} if form.tab else {})}
            return await triage.shown(attrs.evolve(visit, query=again), answer)
        return await cases.shown(visit, answer)
    did = f"{verb}:{reference.upper()}"
    if form.back != "triage":
        return Go(query(f"{visit.base}/cases/{reference}", in_=form.tab, did=did))
    # What is open again is shown; of what has left the list, the next one.
    next_one = reference if verb in ("unmute", "reopen", "analyse") else form.then
    tab = None if form.tab == "open" or verb in ("unmute", "reopen") else form.tab
    return Go(query(visit.base + "/triage", tab=tab, case=next_one, did=did))


def _route(verb: str, handler: Callable[[Visit], Awaitable[Any]], form: type[msgspec.Struct]) -> PageRoute:
    return PageRoute("POST", f"{PROJECT}/cases/{{ref}}/{verb}", "ORG_MANAGE", handler, form=form)


PAGES: Final = (
    _route("mute", mute, Muting),
    _route("unmute", unmute, Returning),
    _route("resolve", resolve, Reasoned),
    _route("absorb", absorb, Reasoned),
    _route("reject", reject, Reasoned),
    _route("reopen", reopen, Returning),
    _route("analyse", analyse, Returning),
)
