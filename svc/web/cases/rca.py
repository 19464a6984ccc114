"""One report of a root-cause analysis: the verdict, what may be the cause, and what was ruled out and how."""

from __future__ import annotations

from typing import Final

from protocol.refusals import NOT_FOUND, Refusal
from svc.store.detection.cases.inbox import InboxReads
from svc.web.cases import case_text
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit

_NO_REPORT: Final = NOT_FOUND.saying("there is no such report in this project")


async def report(visit: Visit) -> Html | Refusal:
    """The page."""
    reads = InboxReads(visit.means.questions)
    row = await reads.report(visit.project.id, visit.call.id_of("id", _NO_REPORT))
    if row is None:
        return _NO_REPORT
    rca_report = case_text.ToldReport.of(row["report"])
    ids = (
        [id_ for hypothesis in rca_report.hypotheses for id_ in hypothesis.trace_ids]
        if rca_report is not None
        else []
    )
    context = {
        "found": row,
        "report": rca_report,
        "open_ids": set(
            await reads.cited(visit.project.id, [trace_id for trace_id in ids if _is_id(trace_id)])
        ),
    }
    return Html("cases/rca", context)


def _is_id(text: str) -> bool:
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


PAGES: Final = (PageRoute("GET", PROJECT + "/rca/{id}", "ORG_VIEW", report),)
