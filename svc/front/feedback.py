"""`POST /v1/feedback`: what applications, their users and evaluation tools think of an answer.

Called by the application's table. Entries are kept one by one: those that cannot be are counted in
`partialSuccess`, as OTLP has it, with the reason of the first. An answer of 200 means that all others are
stored; sending them again changes nothing.

A browser may send from any page: the answer allows every origin, because nothing but the key in the header
lets anybody in, and no cookie is read. A key that was made for feedback alone opens nothing else, so that it
may stand in a page.

Secrets: entries are never logged; a reason quotes nothing of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, cast

import attrs
import msgspec
from quart import Response, request

from actors.keys import Grant, Keys
from protocol.refusals import (
    BAD_REQUEST,
    FEEDBACK_NO_PROJECT,
    FEEDBACK_SCOPE,
    NO_TENANT,
    UNAVAILABLE,
    Refusal,
    Refused,
)
from protocol.rest.feedback import (
    ENTRIES_MAX,
    FeedbackAnswer,
    FeedbackBody,
    FeedbackEntry,
    FeedbackTaken,
)
from protocol.rest.query import instant, read_body
from protocol.storage import Outage
from protocol.tokens import FEEDBACK_PURPOSE
from protocol.validation import unread_text
from svc.domain.feedback.entries import MOST_NAMES, Feedback, FeedbackSource, WrongFeedback, checked, id_of
from svc.front.auth.bearer import authorize
from svc.front.auth.calls import Context, lowered
from svc.front.envelope import json_response, opened, preflight_response, refusal_response
from svc.front.masked_feedback import masked_feedback
from svc.store.feedback.writing import FeedbackStore

FEEDBACK_PATH: Final = "/v1/feedback"
_NO_ROOM: Final = f"the project has {MOST_NAMES} names of feedback, which is all it may have"


@attrs.frozen
class FeedbackDoor:
    """The handlers of the route."""

    keys: Keys
    means: Context

    @property
    def routes(self) -> tuple[tuple[str, Callable[[], Awaitable[Response]]], ...]:
        """What answers each method."""
        return ("POST", self.post), ("OPTIONS", self.options)

    async def post(self) -> Response:
        """Keep what is sent."""
        try:
            answer = await self._answer()
        except Refused as refused:
            answer = refused.refusal
        except Outage:
            answer = UNAVAILABLE
        response = (
            refusal_response(answer) if isinstance(answer, Refusal) else json_response(_success(*answer))
        )
        return opened(response)

    async def options(self) -> Response:
        """What a browser asks before it sends."""
        return preflight_response("POST", "authorization, content-type")

    async def _answer(self) -> tuple[int, str] | Refusal:
        headers = lowered(request.headers)
        grant = await authorize(
            self.keys,
            request.headers.get("authorization"),
            ("write", "admin"),
            FEEDBACK_SCOPE,
            purposes=(FEEDBACK_PURPOSE,),
            place=self.means.callers.place(request.remote_addr, headers),
        )
        if grant is NO_TENANT and await self.means.callers.without_project(headers):
            return FEEDBACK_NO_PROJECT
        if isinstance(grant, Refusal):
            return grant
        body = cast(bytes, await request.get_data(cache=False))
        async with self.means.concurrency.slot(grant.key_id):
            return await self._keep(grant, read_body(body, FeedbackBody))

    async def _keep(self, grant: Grant, body: FeedbackBody) -> tuple[int, str]:
        if len(body.feedback) > ENTRIES_MAX:
            raise Refused(BAD_REQUEST.saying(f"a request holds at most {ENTRIES_MAX:,} feedback entries"))
        entries: list[Feedback] = []
        reasons: list[str] = []
        for raw in body.feedback:
            try:
                entries.append(entry_of(msgspec.json.decode(raw, type=FeedbackEntry), "api"))
            except WrongFeedback as error:
                reasons.append(str(error))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                reasons.append(f"an entry cannot be read: {unread_text(error, bytes(raw))}"[:300])
        database, now = self.means.database, self.means.now()
        entries = await masked_feedback(database, grant.project_id, entries, now)
        without_room = await FeedbackStore(database).keep(grant.project_id, entries, now)
        reasons += [_NO_ROOM for entry in entries if entry.name in without_room]
        return len(reasons), reasons[0] if reasons else ""


def entry_of(sent: FeedbackEntry, source: FeedbackSource) -> Feedback:
    """An entry as it was sent. Raises `WrongFeedback`."""
    try:
        judged_at = instant(sent.at, "at") if sent.at else None
    except Refused as refused:
        raise WrongFeedback(refused.refusal.message) from None
    return checked(
        source=source,
        id=sent.id,
        name=sent.name,
        trace_id=id_of(sent.trace_id, 16, "trace_id"),
        span_id=id_of(sent.span_id, 8, "span_id"),
        session_id=sent.session_id,
        number=sent.number,
        category=sent.category,
        text=sent.text,
        author=sent.author,
        judged_at=judged_at,
    )


def _success(refused: int, reason: str) -> FeedbackAnswer:
    """As OTLP answers: empty when everything is kept."""
    return FeedbackAnswer(FeedbackTaken(refused, reason)) if refused else FeedbackAnswer()
