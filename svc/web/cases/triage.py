"""Triage: what needs somebody now, worst first, with a pane to read a case in; and why nothing does.

The landing page. What a case shows is in `svc.web.cases.case_view`, what people do with one in `case_verbs`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, cast, get_args

from protocol.detection import CaseState
from protocol.refusals import BAD_REQUEST, Refusal
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.cases.inbox import InboxReads
from svc.web.cases import case_text
from svc.web.cases.case_view import MUTES, view_of
from svc.web.cases.inbox_view import InboxRow, rows_of
from svc.web.detectors.detector_text import WATCHES, learned
from svc.web.detectors.empty_inbox import empty_inbox_of
from svc.web.shell import words
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.render import query

ROWS: Final = 50
WITHHELD_SHOWN: Final = 50
#: What was just done, by the verb in the address: what is said of it, and the verb that takes it back.
DONE: Final = {
    "mute": ("is muted", "unmute"),
    "unmute": ("is open again", None),
    "resolve": ("is resolved", "reopen"),
    "absorb": ("is the new normal now", "reopen"),
    "reject": ("is no issue", "reopen"),
    "reopen": ("is open again", None),
    "analyse": ("is being looked into", None),
}


async def triage(visit: Visit) -> Html | Refusal:
    """The page."""
    return await shown(visit)


async def shown(visit: Visit, refusal: Refusal | None = None) -> Html | Refusal:
    """The page, with what could not be done when something could not."""
    tab = visit.query.get("tab", "open")
    if tab not in get_args(CaseState):
        return BAD_REQUEST.saying(f"tab is one of {', '.join(get_args(CaseState))}")
    state = cast(CaseState, tab)
    now, project_id = visit.means.now(), visit.project.id
    reads = InboxReads(visit.means.questions)
    page = await CaseStore(visit.means.questions).page(
        project_id,
        state=state,
        detector=None,
        call_site_id=None,
        limit=ROWS,
        cursor=visit.query.get("cursor"),
        now=now,
    )
    rows = await rows_of(visit, page["cases"], tab, now)
    counts = await reads.counts(project_id, now)
    reference = visit.query.get("case") or (rows[0].case["reference"] if rows else None)
    context = {
        **_around(visit, tab, [row.case["reference"] for row in rows], reference),
        "rows": rows,
        "counts": counts,
        "withheld": await reads.withheld(project_id, WITHHELD_SHOWN) if counts.withheld else [],
        "watched": await reads.watched(project_id),
        "view": await view_of(visit, reference) if reference else None,
        "wanted": visit.query.get("case"),
        "more": query(visit.base + "/triage", tab=tab, cursor=page["next_cursor"])
        if page["next_cursor"]
        else None,
        "empty_inbox": await empty_inbox_of(visit) if tab == "open" and not rows else None,
        "headline": _headline(visit, tab, rows, counts, now),
        "refusal": refusal,
        "done": done(visit),
        "learned": learned,
        "watches": WATCHES,
    }
    status = refusal.status if refusal else 200
    return Html("cases/triage", context, status=status)


async def pane(visit: Visit) -> Html | Refusal:
    """One case for the reading pane."""
    reference = visit.query.get("case", "")
    context = _around(visit, visit.query.get("tab", "open"), visit.query.get("of", "").split(","), reference)
    return Html("cases/case_pane", {**context, "view": await view_of(visit, reference)}, part=True)


def _around(visit: Visit, tab: str, references: list[str], reference: str | None) -> dict[str, Any]:
    """What the forms of a case are told: which list it stands in, and which is next there."""
    index = references.index(reference) if reference in references else -1
    following = references[index + 1 :][:1] or references[:index][-1:] if index >= 0 else []
    return {
        "tab": tab,
        "cursor": visit.query.get("cursor"),
        "back": "triage",
        "then": following[0] if following else "",
        "mutes": MUTES,
        "manages": visit.manages,
        "whole": False,
    }


def _headline(visit: Visit, tab: str, rows: list[InboxRow], counts: Any, now: datetime) -> str:
    if tab == "muted":
        return f"{words.counted(counts.muted, 'case')} {'is' if counts.muted == 1 else 'are'} muted"
    if tab == "resolved":
        return "Resolved cases" if counts.resolved else "Nothing resolved yet"
    if not rows:
        return "Nothing needs you"
    began = words.minute(rows[0].case["onset_at"], visit.preferences.zone, now)
    if counts.open == 1:
        return f"One thing needs you. It began {_time_phrase(began)}."
    return f"{case_text.number(counts.open)} things need you. The worst began {_time_phrase(began)}."


def _time_phrase(text: str) -> str:
    return f"at {text}" if text[:1].isdigit() and text[2:3] == ":" else text


def done(visit: Visit) -> dict[str, str | None] | None:
    """What was just done, as the address says: `did=mute:C-12`."""
    verb, _, reference = visit.query.get("did", "").partition(":")
    if verb not in DONE or not reference.upper().startswith("C-") or len(reference) > 20:
        return None
    text, undo = DONE[verb]
    return {"reference": reference, "said": text, "undo": undo}


PAGES: Final = (
    PageRoute("GET", PROJECT + "/triage", "ORG_VIEW", triage),
    PageRoute("GET", PROJECT + "/triage/pane", "ORG_VIEW", pane),
)
