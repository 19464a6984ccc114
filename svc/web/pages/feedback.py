"""Thumbs and notes: what somebody who looks at a trace, a span or a session thinks of it.

The forms stand on the pages of these; they lead back to where they were sent from.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.feedback import FeedbackNew
from svc.domain.feedback import NOTE, THUMB
from svc.front.api import feedback
from svc.web.feedback_view import back
from svc.web.forms import asked
from svc.web.page import PROJECT, Go, PageRoute, Visit
from svc.web.render import query


class FeedbackForm(msgspec.Struct):
    """A thumb, with a number, or a note, with a text; and what it is about."""

    number: str = ""
    text: str = ""
    trace_id: str = ""
    span_id: str = ""
    session_id: str = ""


class EntryForm(msgspec.Struct):
    """Which entry."""

    source: str
    id: str


async def give(visit: Visit) -> Go | Refusal:
    """Keep a thumb or a note."""
    form: FeedbackForm = visit.form
    names = ("number", "text", "trace_id", "span_id", "session_id")
    fields = {name: value for name in names if (value := getattr(form, name))}
    name = THUMB if form.number else NOTE
    answer = await asked(visit, feedback.post_feedback, FeedbackNew, {"name": name, **fields})
    if isinstance(answer, Refusal):
        return answer
    if form.trace_id:
        subject = query(f"{visit.base}/traces/{form.trace_id}", span=form.span_id)
    else:
        subject = query(f"{visit.base}/session", id=form.session_id)
    return Go(back(visit, subject))


async def forget(visit: Visit) -> Go | Refusal:
    """Take an entry away; one that is gone already is no matter."""
    form: EntryForm = visit.form
    path = {"source": form.source, "feedbackId": form.id}
    await asked(visit, feedback.delete_feedback, path=path)
    return Go(back(visit, visit.base + "/traces"))


PAGES: Final = (
    PageRoute("POST", PROJECT + "/feedback", "ORG_MANAGE", give, form=FeedbackForm),
    PageRoute("POST", PROJECT + "/feedback/forget", "ORG_MANAGE", forget, form=EntryForm),
)
