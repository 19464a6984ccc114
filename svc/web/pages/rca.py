"""One report of a root-cause analysis: the verdict, what may be the cause, and what was ruled out and how."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from protocol.refusals import NOT_FOUND, Refusal
from svc.store.detection.inbox import InboxReads
from svc.web import case_words
from svc.web.page import PROJECT, Html, PageRoute, Visit

_NO_REPORT: Final = NOT_FOUND.saying("there is no such report in this project")


async def report(visit: Visit) -> Html | Refusal:
    """The page."""
    try:
        report_id = UUID(visit.call.path["id"])
    except ValueError:
        return _NO_REPORT
    reads = InboxReads(visit.means.questions)
    found = await reads.report(visit.project.id, report_id)
    if found is None:
        return _NO_REPORT
    said = case_words.ToldReport.of(found["report"])
    ids = [id_ for one in said.hypotheses for id_ in one.trace_ids] if said is not None else []
    context = {
        "found": found,
        "report": said,
        "open_ids": set(await reads.cited(visit.project.id, [one for one in ids if _is_id(one)])),
    }
    return Html("pages/rca", context)


def _is_id(text: str) -> bool:
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


PAGES: Final = (PageRoute("GET", PROJECT + "/rca/{id}", "ORG_VIEW", report),)
