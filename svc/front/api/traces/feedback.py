"""`{p}/feedback`: what was said of traces, spans and sessions, what each name says, and what people say here.

Entries of people are signed by who says them. Entries of applications come by `POST /v1/feedback`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from protocol.refusals import BAD_REQUEST, NO_SUCH_FEEDBACK, Refusal
from protocol.rest.feedback import (
    BadCategoriesBody,
    BetterBody,
    FeedbackEntry,
    FeedbackGone,
    FeedbackName,
    FeedbackNames,
    FeedbackNew,
    FeedbackPage,
    FeedbackQuery,
    FeedbackShown,
    NamesQuery,
)
from protocol.rest.query import instant, timestamp
from svc.domain.feedback.entries import SOURCES, Feedback, WrongFeedback, id_of
from svc.domain.spans.values import identifier
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.front.feedback import entry_of
from svc.front.masked_feedback import masked_feedback
from svc.store.feedback.reads import FeedbackReads, FeedbackRow
from svc.store.feedback.sums import FeedbackSums
from svc.store.feedback.writing import FeedbackStore


def _shown(entry: Feedback | FeedbackRow, judged_at: datetime, created_at: datetime) -> FeedbackShown:
    return FeedbackShown(
        id=entry.id,
        source=entry.source,
        name=entry.name,
        trace_id=None if entry.trace_id is None else entry.trace_id.hex(),
        span_id=None if entry.span_id is None else entry.span_id.hex(),
        session_id=entry.session_id,
        number=entry.number,
        category=entry.category,
        text=entry.text,
        author=entry.author,
        at=timestamp(judged_at),
        created_at=timestamp(created_at),
    )


async def get_feedback(call: Call[None]) -> FeedbackPage | Refusal:
    """Entries, the newest first; of one name, one trace or one session."""
    query: FeedbackQuery = call.query
    try:
        trace_id = id_of(query.trace_id, 16, "trace_id")
    except WrongFeedback as error:
        return BAD_REQUEST.saying(str(error))
    entries, cursor = await FeedbackReads(call.means.database).page(
        call.project.id,
        name=query.name,
        trace_id=trace_id,
        session_id=identifier(query.session_id) if query.session_id else None,
        limit=query.limit,
        cursor=query.cursor,
    )
    return FeedbackPage([_shown(row, row.judged_at, row.created_at) for row in entries], cursor)


async def get_names(call: Call[None]) -> FeedbackNames:
    """What each name of feedback says over a range."""
    query: NamesQuery = call.query
    low = instant(query.from_, "from") if query.from_ else None
    high = instant(query.to, "to") if query.to else None
    names = await FeedbackSums(call.means.database).names(call.project.id, low, high)
    return FeedbackNames(
        [
            FeedbackName(
                name=sums.name,
                entries=sums.entries,
                numbers=sums.numbers,
                mean=sums.mean,
                interval=sums.interval,
                low=sums.low,
                high=sums.high,
                better=sums.better,
                is_set=sums.is_set,
                categories=dict(sums.categories),
                watched=list(sums.watched),
                bad=list(sums.bad),
            )
            for sums in names
        ]
    )


async def post_feedback(call: Call[FeedbackNew]) -> FeedbackShown | Refusal:
    """Say something of a trace, a span or a session; somebody's second thumb takes the place of the first."""
    now = call.means.now()
    sent = FeedbackEntry(**msgspec.structs.asdict(call.body), author=call.caller.label)
    try:
        entry = entry_of(sent, "page")
    except WrongFeedback as error:
        return BAD_REQUEST.saying(str(error))
    database = call.means.database
    (entry,) = await masked_feedback(database, call.project.id, [entry], now)
    if await FeedbackStore(database).keep(call.project.id, [entry], now):
        return BAD_REQUEST.saying("the project has as many names of feedback as it may have")
    return _shown(entry, now, now)


async def delete_feedback(call: Call[None]) -> FeedbackGone | Refusal:
    """Take an entry away."""
    source = next((source for source in SOURCES if source == call.path["source"]), None)
    if source is None:
        return NO_SUCH_FEEDBACK
    store = FeedbackStore(call.means.database)
    gone = await store.drop(call.project.id, source, call.path["feedbackId"], call.caller.label)
    return FeedbackGone() if gone else NO_SUCH_FEEDBACK


async def put_better(call: Call[BetterBody]) -> BetterBody | Refusal:
    """Say which end of a name's numbers is the good one."""
    store = FeedbackStore(call.means.database)
    known = await store.set_better(call.project.id, call.path["name"], call.body.better, call.caller.label)
    return call.body if known else NO_SUCH_FEEDBACK


async def put_bad(call: Call[BadCategoriesBody]) -> BadCategoriesBody | Refusal:
    """Say which categories of a name are bad, in the place of those that were."""
    store = FeedbackStore(call.means.database)
    known = await store.set_bad(
        call.project.id, call.path["name"], sorted(set(call.body.categories)), call.caller.label
    )
    return call.body if known else NO_SUCH_FEEDBACK


_FEEDBACK: Final = PROJECT + "/feedback"

ROUTES: Final = (
    Route(
        "GET", _FEEDBACK, "ORG_VIEW", get_feedback, FeedbackPage, query=FeedbackQuery,
        refusals=(BAD_REQUEST,),
    ),
    Route(
        "POST", _FEEDBACK, "ORG_MANAGE", post_feedback, FeedbackShown, body=FeedbackNew, status=201,
        refusals=(BAD_REQUEST,),
    ),
    Route("GET", _FEEDBACK + "/names", "ORG_VIEW", get_names, FeedbackNames, query=NamesQuery),
    Route(
        "PUT", _FEEDBACK + "/names/{name}", "ORG_MANAGE", put_better, BetterBody, body=BetterBody,
        refusals=(NO_SUCH_FEEDBACK,),
    ),
    Route(
        "PUT", _FEEDBACK + "/names/{name}/bad", "ORG_MANAGE", put_bad, BadCategoriesBody,
        body=BadCategoriesBody, refusals=(NO_SUCH_FEEDBACK,),
    ),
    Route(
        "DELETE", _FEEDBACK + "/{source}/{feedbackId}", "ORG_MANAGE", delete_feedback, FeedbackGone,
        refusals=(NO_SUCH_FEEDBACK,),
    ),
)  # fmt: skip
