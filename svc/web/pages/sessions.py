"""Sessions: who was here lately, and what happened with one of them: the conversation over its traces.

The id of a session may hold any character, so it travels in the query.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import attrs

from protocol.refusals import NOT_FOUND, Refusal
from svc.store.feedback.reads import FeedbackReads, NumberedName
from svc.store.reads.sessions import SessionReads
from svc.web import words
from svc.web.aged_out import aged_out
from svc.web.feedback_view import of_session
from svc.web.page import PROJECT, Html, PageRoute, Visit
from svc.web.render import query

ROWS: Final = 50
#: Names of feedback that the column can be changed to.
MOST_CHOICES: Final = 12
#: A pause between two traces that is worth a line.
GAP_S: Final = 60.0


async def sessions(visit: Visit) -> Html:
    """The list, most recently active first."""
    reads = SessionReads(visit.means.history)
    page = await reads.page(visit.project.id, limit=ROWS, cursor=visit.query.get("cursor"))
    sums = await reads.summaries(visit.project.id, [session["id"] for session in page["sessions"]])
    names, chosen, given = await _feedback(visit, [session["id"] for session in page["sessions"]])
    context = {
        "names": names,
        "chosen": chosen,
        "given": given,
        "sessions": [(session, sums.get(session["id"])) for session in page["sessions"]],
        "aged_out": await aged_out(visit, [sum_["asked_available"] for sum_ in sums.values()]),
        "more": query(
            visit.base + "/sessions", feedback=visit.query.get("feedback"), cursor=page["next_cursor"]
        )
        if page["next_cursor"]
        else None,
        "paged": "cursor" in visit.query,
    }
    return Html("pages/sessions", context, modules=("rows",))


async def _feedback(
    visit: Visit, session_ids: list[str]
) -> tuple[list[NumberedName], NumberedName | None, dict[str, tuple[int, float]]]:
    """The names that a column can show, the one that it shows, and what that says of each session."""
    reads = FeedbackReads(visit.means.database)
    names = await reads.numbered(visit.project.id, MOST_CHOICES)
    wanted_name = visit.query.get("feedback")
    chosen = next((name for name in names if name.name == wanted_name), names[0] if names else None)
    if chosen is None:
        return names, None, {}
    return names, chosen, await reads.of_sessions(visit.project.id, session_ids, chosen.name)


@attrs.frozen
class Turn:
    """One trace of the conversation, and how long nothing happened before it."""

    trace: dict[str, Any]
    gap_s: float | None


async def session(visit: Visit) -> Html | Refusal:
    """One session."""
    session_id = visit.query.get("id", "")
    session_row = await SessionReads(visit.means.history).one(visit.project.id, session_id)
    if session_row is None:
        return NOT_FOUND.saying("there is no such session in this project, or its term is over")
    notice = await aged_out(visit, [trace["payload_available"] for trace in session_row["traces"]])
    context = {
        "session": session_row,
        "turns": _turns(session_row["traces"]),
        "aged_out": notice,
        "feedback": await of_session(visit, session_row["id"]),
    }
    return Html("pages/session", context)


def _turns(traces: list[dict[str, Any]]) -> list[Turn]:
    turns: list[Turn] = []
    until: datetime | None = None
    for trace in traces:
        began = words.parsed(trace["started_at"])
        pause_s = None if until is None else (began - until).total_seconds()
        turns.append(Turn(trace, pause_s if pause_s is not None and pause_s >= GAP_S else None))
        ended_at = words.parsed(trace["ended_at"] or trace["started_at"])
        until = ended_at if until is None else max(until, ended_at)
    return turns


PAGES: Final = (
    PageRoute("GET", PROJECT + "/sessions", "ORG_VIEW", sessions),
    PageRoute("GET", PROJECT + "/session", "ORG_VIEW", session),
)
