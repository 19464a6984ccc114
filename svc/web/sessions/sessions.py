"""Sessions: who was here lately, and what happened with one of them: the conversation over its traces.

The id of a session may hold any character, so it travels in the query.
"""

from __future__ import annotations

from typing import Final

import trio

from protocol.refusals import NOT_FOUND, Refusal
from svc.store.reads.usage.session_talk import SessionTalk
from svc.store.reads.usage.sessions import SessionReads
from svc.web.feedback.feedback_view import column_of, of_session, of_turns
from svc.web.sessions.session_chat import chat
from svc.web.shell.aged_out import aged_out
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.render import packers, query

ROWS: Final = 50
#: Traces of one page of a conversation.
TURNS: Final = 25


async def sessions(visit: Visit) -> Html:
    """The list, most recently active first."""
    reads = SessionReads(visit.means.history)
    page = await reads.page(visit.project.id, limit=ROWS, cursor=visit.query.get("cursor"))
    ids = [session["id"] for session in page["sessions"]]
    sums = await reads.summaries(visit.project.id, ids)
    context = {
        "column": await column_of(
            visit, lambda feedback, name: feedback.of_sessions(visit.project.id, ids, name)
        ),
        "sessions": [(session, sums.get(session["id"])) for session in page["sessions"]],
        "aged_out": await aged_out(visit, [sum_["asked_available"] for sum_ in sums.values()]),
        "more": query(
            visit.base + "/sessions", feedback=visit.query.get("feedback"), cursor=page["next_cursor"]
        )
        if page["next_cursor"]
        else None,
        "paged": "cursor" in visit.query,
    }
    return Html("sessions/sessions", context)


async def session(visit: Visit) -> Html | Refusal:
    """One session."""
    session_id = visit.query.get("id", "")
    session_row = await SessionReads(visit.means.history).one(visit.project.id, session_id)
    if session_row is None:
        return NOT_FOUND.saying("there is no such session in this project, or its term is over")
    traces = session_row["traces"]
    first = min(visit.number("from"), max(len(traces) - 1, 0))
    page = traces[first : first + TURNS]
    talk = SessionTalk(visit.means.history)
    talks = await talk.of(visit.project.id, [bytes.fromhex(trace["trace_id"]) for trace in page])
    # Opening and cutting texts takes time with their length.
    before = traces[first - 1] if first else None
    turns = await trio.to_thread.run_sync(chat, page, talks, before, limiter=packers)
    context = {
        "session": session_row,
        "turns": turns,
        "first": first,
        "earlier": _turns_address(visit, session_id, max(first - TURNS, 0)) if first else None,
        "later": _turns_address(visit, session_id, first + TURNS) if first + TURNS < len(traces) else None,
        "aged_out": await aged_out(visit, [trace["payload_available"] for trace in page]),
        "feedback": await of_session(visit, session_row["id"]),
        "judged": await of_turns(visit, [trace["trace_id"] for trace in page]),
    }
    return Html("sessions/session", context)


def _turns_address(visit: Visit, session_id: str, first: int) -> str:
    return query(visit.base + "/session", id=session_id, **({"from_": first} if first else {}))


PAGES: Final = (
    PageRoute("GET", PROJECT + "/sessions", "ORG_VIEW", sessions),
    PageRoute("GET", PROJECT + "/session", "ORG_VIEW", session),
)
