"""One case: what happened, since when, how sure, why, and what now."""

from __future__ import annotations

from typing import Final

from protocol.refusals import NO_SUCH_CASE, Refusal
from svc.web.case_view import MUTES, view_of
from svc.web.page import PROJECT, Html, PageRoute, Visit
from svc.web.pages.triage import done


async def case(visit: Visit) -> Html | Refusal:
    """The page."""
    return await shown(visit)


async def shown(visit: Visit, refusal: Refusal | None = None) -> Html | Refusal:
    """The page, with what could not be done when something could not."""
    view = await view_of(visit, visit.call.path["ref"])
    if view is None:
        return NO_SUCH_CASE
    context = {
        "view": view,
        "mutes": MUTES,
        "manages": visit.manages,
        "refusal": refusal,
        "done": done(visit),
        "whole": True,
        "back": "case",
        "tab": "",
        "then": "",
    }
    return Html(
        "pages/case",
        context,
        status=refusal.status if refusal else 200,
        modules=("triage", "part", "copy", "agent-run"),
    )


PAGES: Final = (PageRoute("GET", PROJECT + "/cases/{ref}", "ORG_VIEW", case),)
