"""Feedback: what each name says over time, and the thumbs and notes of people on pages.

The forms of thumbs and notes stand on the pages of traces and sessions; they lead back to where they were
sent from.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import attrs
import msgspec

from protocol.refusals import BAD_REQUEST, Refusal
from protocol.rest.feedback import FeedbackNew
from protocol.rest.query import timestamp
from svc.domain.feedback.entries import MOST_NAMES, NOTE, THUMB
from svc.domain.quantities import score
from svc.front.api.traces import feedback
from svc.store.feedback.reads import FeedbackReads, FeedbackRow
from svc.store.feedback.sums import FeedbackSums, NameSums
from svc.web.feedback.feedback_view import ShownEntry, back
from svc.web.shell import words
from svc.web.shell.filters import Token
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit
from svc.web.shell.render import query

WINDOWS: Final = {
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
}
#: Names whose means are drawn by day, and texts that are shown.
MOST_LINES: Final = 50
MOST_WRITTEN: Final = 50


@attrs.frozen
class NameRow:
    """One name as its row shows it; `line` are the means by day between the ends of its numbers, 0 to 1."""

    sums: NameSums
    line: Sequence[float]
    days: int
    address: str

    @property
    def mean(self) -> str:
        """The mean, of thumbs and the like as a share."""
        if self.sums.mean is None:
            return ""
        return words.percent(self.sums.mean) if self.is_share else score(round(self.sums.mean, 2))

    @property
    def interval(self) -> str:
        """Between which bounds the mean is certain."""
        if self.sums.interval is None:
            return ""
        return " to ".join(
            words.percent(bound) if self.is_share else score(round(bound, 2)) for bound in self.sums.interval
        )

    @property
    def is_share(self) -> bool:
        """Whether all of its numbers lie between 0 and 1."""
        return self.sums.low is not None and self.sums.low >= 0 and (self.sums.high or 0) <= 1


async def page(visit: Visit) -> Html | Refusal:
    """What each name says, and what was written."""
    window = visit.query.get("range", "30d")
    if window not in WINDOWS:
        return BAD_REQUEST.saying(f"range is one of {', '.join(WINDOWS)}")
    since = visit.means.now() - WINDOWS[window]
    reads = FeedbackReads(visit.means.database)
    name_sums = FeedbackSums(visit.means.database)
    names = await name_sums.names(visit.project.id, since)
    given = [sums for sums in names if sums.entries and sums.name != NOTE]
    drawn = [sums.name for sums in given[:MOST_LINES]]
    by_day = await name_sums.by_day(visit.project.id, drawn, since)
    context = {
        "rows": [_name_row(visit, sums, by_day.get(sums.name, []), window) for sums in given],
        "written": [
            (ShownEntry(row), _subject(visit, row))
            # The store has them by arrival; what is shown is when somebody judged.
            for row in sorted(
                await reads.written(visit.project.id, since, MOST_WRITTEN),
                key=lambda row: row.judged_at,
                reverse=True,
            )
        ],
        "named": [sums.name for sums in names],
        "refused": await reads.refused(visit.project.id),
        "most_names": MOST_NAMES,
        "windows": WINDOWS,
        "window": window,
        "thumbs": next((row for row in given if row.name == THUMB), None),
    }
    return Html("feedback/feedback", context)


async def name_rows(visit: Visit, low: datetime, high: datetime, most: int) -> list[NameRow]:
    """What the names with most entries say over a range, for a page that shows them beside other things."""
    reads = FeedbackSums(visit.means.database)
    names = await reads.names(visit.project.id, low, high)
    with_numbers = [sums for sums in names if sums.numbers][:most]
    by_day = await reads.by_day(visit.project.id, [sums.name for sums in with_numbers], low)
    instants = {"from": timestamp(low), "to": timestamp(high)}
    return [
        attrs.evolve(
            _name_row(visit, sums, [day for day in by_day.get(sums.name, []) if day[0] < high], ""),
            address=query(f"{visit.base}/traces", q=str(Token("feedback", sums.name)), **instants),
        )
        for sums in with_numbers
    ]


def _name_row(visit: Visit, sums: NameSums, days: Sequence[tuple[datetime, float]], window: str) -> NameRow:
    low, high = sums.low or 0.0, sums.high or 0.0
    width = high - low
    line = [(mean - low) / width if width else 1.0 for _, mean in days]
    token = str(Token("feedback", sums.name))
    return NameRow(sums, line, len(days), query(f"{visit.base}/traces", q=token, range=window))


def _subject(visit: Visit, row: FeedbackRow) -> str:
    """Where what an entry is about is shown."""
    if row.trace_id is None:
        return query(f"{visit.base}/session", id=row.session_id or "")
    span_id = "" if row.span_id is None else row.span_id.hex()
    return query(f"{visit.base}/traces/{row.trace_id.hex()}", span=span_id)


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
    PageRoute("GET", PROJECT + "/feedback", "ORG_VIEW", page),
    PageRoute("POST", PROJECT + "/feedback", "ORG_MANAGE", give, form=FeedbackForm),
    PageRoute("POST", PROJECT + "/feedback/forget", "ORG_MANAGE", forget, form=EntryForm),
)
