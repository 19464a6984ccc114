"""Users: who was here over some days, what failed for them and what they cost; each row leads to one of them.

The address is the state: the days, `q` a part of an id, `failing=yes`, `by` the order, `feedback`
the name of the last column, `from_row` the page.
"""

from __future__ import annotations

from typing import Any, Final

from protocol.refusals import BAD_REQUEST, Refused
from svc.store.reads.usage.users import MOST_TRACES, ORDERS, UserOrder, UserPage, UserReads
from svc.web.feedback.feedback_view import FeedbackColumn, column_of
from svc.web.overview.overview_period import NAMED, DayRange
from svc.web.shell import words
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.render import query

#: Users of one page.
ROWS: Final = 50
DEFAULT: Final = "30d"
_MOST_Q: Final = 200


async def users(visit: Visit) -> Html:
    """The list."""
    period = DayRange.of({"range": DEFAULT, **visit.query}, visit.means.now())
    q, failing = visit.query.get("q", "").strip()[:_MOST_Q], visit.query.get("failing") == "yes"
    order, first = _order(visit), visit.number("from_row")
    page = await UserReads(visit.means.history).page(
        *(visit.project.id, period.low, period.high),
        q=q,
        failing=failing,
        order=order,
        limit=ROWS,
        offset=first,
    )
    column = await _column(visit, page, period)
    chosen = visit.query.get("feedback") and column.chosen
    state = {"q": q, "failing": "yes" if failing else "", "by": order if order != ORDERS[0] else ""}
    state["feedback"] = chosen.name if chosen else ""
    days = {} if period.name == DEFAULT else {"range": period.name} if period.name else period.parameters

    def here(**changes: Any) -> str:
        return query(visit.base + "/users", **{**days, **state, **changes})

    context = {
        "page": page,
        "column": column,
        "chosen": state["feedback"],
        "period": period,
        "named": NAMED,
        "q": q,
        "failing": failing,
        "order": order,
        "headline": headline(page, period, q, failing=failing),
        "days": days,
        "here": here,
        "earlier": here(from_row=max(first - ROWS, 0) or None) if first else None,
        "later": here(from_row=first + ROWS) if first + ROWS < page.count else None,
        "first": first,
    }
    return Html("sessions/users", context)


async def _column(visit: Visit, page: UserPage, period: DayRange) -> FeedbackColumn:
    """What was thought of the traces that the sums are of."""
    ids = [user.user_id for user in page.users]
    return await column_of(
        visit,
        lambda feedback, name: feedback.of_users(
            visit.project.id, ids, name, period.low, period.high, MOST_TRACES
        ),
    )


def _order(visit: Visit) -> UserOrder:
    name = visit.query.get("by", ORDERS[0])
    for order in ORDERS:
        if order == name:
            return order
    raise Refused(BAD_REQUEST.saying(f"by is one of {', '.join(ORDERS)}"))


def headline(page: UserPage, period: DayRange, q: str, *, failing: bool) -> str:
    """How many, in a sentence."""
    with_failures = " with failures" if failing else ""
    matching = f" matching “{words.visible(q[:60])}”" if q else ""
    return f"{words.counted(page.count, 'user')}{with_failures}{matching} {period.said}"


PAGES: Final = (PageRoute("GET", PROJECT + "/users", "ORG_VIEW", users),)
