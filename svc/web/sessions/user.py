"""One user: what they asked, what failed for them and what they cost, over days.

The id of a user may hold any character, so it travels in the query. Sessions are those whose spans name the
user in these days.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from protocol.refusals import NOT_FOUND, Refusal
from svc.store.feedback.reads import FeedbackReads
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import Question, ask
from svc.store.reads.usage.sessions import SessionReads
from svc.store.reads.usage.users import MOST_TRACES, UserReads
from svc.web.feedback.feedback_view import ShownEntry
from svc.web.overview.overview import traces_address
from svc.web.overview.overview_period import NAMED, DayRange
from svc.web.overview.overview_reads import DIMENSIONS, Overview, OverviewReads
from svc.web.overview.overview_view import charts
from svc.web.shell import words
from svc.web.shell.aged_out import aged_out
from svc.web.shell.filters import Filters, Token, read_filters
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.render import query

#: Sessions that are listed, the busiest ones where there are more.
SESSIONS_SHOWN: Final = 50
#: Entries of feedback that are listed, the newest.
FEEDBACK_SHOWN: Final = 20
#: Tools that failed for them.
_TOOLS_SHOWN: Final = 10
_CHARTS: Final = ("traces", "spend")
DEFAULT: Final = "30d"


async def user(visit: Visit) -> Html | Refusal:
    """The page."""
    user_id = visit.query.get("id", "")
    if not user_id:
        return NOT_FOUND.saying("a user is named by id")
    period = DayRange.of({"range": DEFAULT, **visit.query}, visit.means.now())
    filters = read_filters(str(Token("user", user_id)))
    reads = OverviewReads(
        *(visit.means.history, visit.project.id, {"user_id": user_id}),
        filters.between(period.low, period.high),
    )
    figures = await reads.of(period, DIMENSIONS["model"], by_value=False)
    queries = QueryStore(visit.means.history)
    facets = await queries.facets(_question(visit, period, user_id), "session_id", SESSIONS_SHOWN + 1)
    ids = [str(facet.value) for facet in facets.facets if facet.value is not None]
    sessions = SessionReads(visit.means.history)
    sums = await sessions.summaries(visit.project.id, ids[:SESSIONS_SHOWN])
    context: dict[str, Any] = {
        "user_id": user_id,
        "period": period,
        "named": NAMED,
        "headline": headline(user_id, figures, period, len(ids)),
        "overview": figures,
        "charts": [
            chart
            for chart in charts(figures, period, DIMENSIONS["model"], _bars(visit, filters))
            if chart.head.key in _CHARTS
        ],
        "as_table": visit.query.get("table", ""),
        "sessions": [
            (session, sums.get(session["id"]))
            for session in await sessions.named(visit.project.id, ids[:SESSIONS_SHOWN])
        ],
        "more_sessions": len(ids) > SESSIONS_SHOWN,
        "aged_out": await aged_out(visit, [each_sum["asked_available"] for each_sum in sums.values()]),
        "feedback": await _feedback(visit, ids[:SESSIONS_SHOWN]),
        "beside": await _beside(visit, period, user_id),
        "failures": await _failures(visit, period, user_id, filters),
        "all_traces": traces_address(visit, filters, period.low, period.high),
        "failed_traces": traces_address(visit, filters, period.low, period.high, only="trace.status:error"),
        "in_overview": query(visit.base + "/overview", q=str(filters), **period.parameters),
        "utc": UTC,
        "here": lambda **other: query(
            visit.base + "/user",
            **{name: value for name, value in {"id": user_id, **_days(period), **other}.items() if value},
        ),
    }
    return Html("sessions/user", context)


async def _feedback(visit: Visit, session_ids: list[str]) -> list[ShownEntry]:
    """What was thought of their sessions and answers, the newest first."""
    reads = FeedbackReads(visit.means.database)
    entries = await reads.within_sessions(visit.project.id, session_ids, FEEDBACK_SHOWN)
    return [ShownEntry(entry) for entry in entries]


async def _beside(visit: Visit, period: DayRange, user_id: str) -> list[tuple[str, str]]:
    """Their figures beside those of the median user; nothing where there are too few users."""
    sums = await UserReads(visit.means.history).beside(visit.project.id, user_id, period.low, period.high)
    if sums is None:
        return []
    own = sums.own
    return [
        ("traces", f"{words.count(own.traces)}, median {words.count(round(sums.traces))}"),
        ("sessions", f"{words.count(own.sessions)}, median {words.count(round(sums.sessions))}"),
        (
            "with a failure",
            f"{words.percent(own.failing / own.traces)}, median {words.percent(sums.failing_share)}",
        ),
        ("spend", f"{words.money(own.cost or 0)}, median {words.money(sums.cost)}"),
        ("users compared", words.count(sums.users)),
        *([("of the newest", words.counted(MOST_TRACES, "trace"))] if sums.since else []),
    ]


def headline(user_id: str, figures: Overview, period: DayRange, sessions: int) -> str:
    """What happened with them, in a sentence."""
    if figures.traces is None or not figures.traces.count:
        return f"No traces of {user_id[:60]} {period.said}"
    parts = [words.counted(figures.traces.count, "trace")]
    if sessions:
        shown = f"more than {words.count(SESSIONS_SHOWN)} sessions"
        parts.insert(0, words.counted(sessions, "session") if sessions <= SESSIONS_SHOWN else shown)
    failed = (
        f", {words.count(figures.traces.failing)} of them with a failure" if figures.traces.failing else ""
    )
    spent = "" if figures.calls.cost is None else f", {words.money(figures.calls.cost)} spent"
    return f"{user_id[:60]}: {' and '.join(parts)} {period.said}{failed}{spent}"


def _bars(visit: Visit, filters: Filters) -> Any:
    def address(low: datetime, high: datetime, *, only: str = "") -> str:
        return traces_address(visit, filters, low, high, only=only)

    return address


def _days(period: DayRange) -> dict[str, str]:
    """The days in an address, whose default is another than Overview's."""
    if period.name is not None:
        return {} if period.name == DEFAULT else {"range": period.name}
    return period.parameters


def _question(visit: Visit, period: DayRange, user_id: str, **filters: str) -> Question:
    return ask(
        *(visit.project.id, "spans", (period.low, period.high), {"user_id": user_id, **filters}),
        by="started_at",
    )


async def _failures(
    visit: Visit, period: DayRange, user_id: str, filters: Filters
) -> list[tuple[str, int, str]]:
    """The tools that failed for them: name, failed calls, and where those traces are."""
    question = _question(visit, period, user_id, kind="tool", status="error")
    answer = await QueryStore(visit.means.history).facets(question, "tool", _TOOLS_SHOWN)
    failures = []
    for facet in answer.facets:
        if facet.value is not None:
            tool = str(facet.value)
            narrowed = read_filters(f"{filters.with_('tool', tool)} status:error")
            address = traces_address(visit, narrowed, period.low, period.high)
            failures.append((tool, int(facet.count), address))
    return failures


PAGES: Final = (PageRoute("GET", PROJECT + "/user", "ORG_VIEW", user),)
