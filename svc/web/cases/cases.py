"""One case: what happened, since when, how sure, why, and what now."""

from __future__ import annotations

from typing import Final, cast, get_args

from protocol.detection import CaseState
from protocol.refusals import NO_SUCH_CASE, Refusal
from svc.store.detection.cases.cases import CaseStore
from svc.web.cases.case_view import MUTES, view_of
from svc.web.cases.triage import done
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.render import query


async def case(visit: Visit) -> Html | Refusal:
    """The page."""
    return await shown(visit)


async def shown(visit: Visit, refusal: Refusal | None = None) -> Html | Refusal:
    """The page, with what could not be done when something could not."""
    reference = visit.call.path["ref"]
    view = await view_of(visit, reference)
    if view is None:
        return NO_SUCH_CASE
    requested_tab = (visit.form.tab if visit.form is not None else None) or visit.query.get("in")
    # The list that one came from; else that in which it stands.
    tab = cast(CaseState, requested_tab) if requested_tab in get_args(CaseState) else view.case["state"]
    previous_case, behind = await CaseStore(visit.means.questions).beside(
        visit.project.id, reference, tab, visit.means.now()
    )
    cursor = visit.query.get("cursor")
    # A case that has left the list leads back to the one behind it.
    target = view.case["reference"] if tab == view.case["state"] else behind or previous_case
    address = query(visit.base + "/triage", tab=None if tab == "open" else tab, cursor=cursor, case=target)
    context = {
        "up": f"{address}#{target}" if target else address,
        "cursor": cursor,
        "view": view,
        "mutes": MUTES,
        "manages": visit.manages,
        "refusal": refusal,
        "done": done(visit),
        "whole": True,
        "back": "case",
        "tab": tab,
        "before": previous_case,
        "behind": behind,
        "then": "",
    }
    return Html(
        "cases/case",
        context,
        status=refusal.status if refusal else 200,
    )


PAGES: Final = (PageRoute("GET", PROJECT + "/cases/{ref}", "ORG_VIEW", case),)
