"""Sets: traces and spans that people keep together, reviewed one after the other.

What people change in them is in `set_changes`. Reviewing a set is the page of each trace with `in=set=…` in
its address: the keys of lists lead on, those of feedback judge, and what others judged is hidden until one
has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import attrs

from protocol.refusals import NO_SUCH_SET, Refusal
from svc.domain.feedback.reviews import Review, agreements, progress
from svc.domain.feedback.set_formats import FORMATS
from svc.store.feedback.reads import FeedbackReads
from svc.store.feedback.reviews import ReviewReads
from svc.store.feedback.sets import SetEntry, SetStore, TraceSet
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.render import query

#: How a set stands in the address of a trace: `in=set=…`.
IN: Final = "set="


async def sets(visit: Visit) -> Html:
    """The sets of the project."""
    return Html("feedback/sets", {"sets": await SetStore(visit.means.database).list(visit.project.id)})


async def trace_set(visit: Visit) -> Html | Refusal:
    """One set, with how far each reviewer is and what they agree on."""
    opened_set = await opened_set_of(visit, visit.call.path["setId"])
    if opened_set is None:
        return NO_SUCH_SET
    entries = await SetStore(visit.means.database).entries(visit.project.id, opened_set.id)
    feedback = await FeedbackReads(visit.means.database).of_traces(
        visit.project.id, [entry.trace_id for entry in entries]
    )
    reviews = await ReviewReads(visit.means.database).of_set(visit.project.id, opened_set.id)
    answers: dict[str, list[Review]] = {}
    for review in reviews:
        answers.setdefault(review.entry, []).append(review)
    context = {
        "set": opened_set,
        "entries": [(entry, place(visit, opened_set.id, entry)) for entry in entries],
        "given": feedback,
        "answers": answers,
        "progress": progress(reviews),
        "agreements": agreements(reviews),
        "me": visit.call.caller.label,
        "review": _next_place(visit, opened_set.id, entries, answers),
        "formats": FORMATS,
        "added": visit.query.get("added", ""),
    }
    return Html("feedback/set", context)


def _next_place(
    visit: Visit, set_id: UUID, entries: Sequence[SetEntry], answers: Mapping[str, Sequence[Review]]
) -> str | None:
    """The first entry that whoever looks has not answered; the first of all once they have answered each."""
    me = visit.call.caller.label
    present = [entry for entry in entries if entry.is_there]
    unanswered = (
        entry for entry in present if all(review.reviewer != me for review in answers.get(entry.key, ()))
    )
    first = next(unanswered, present[0] if present else None)
    return None if first is None else place(visit, set_id, first)


def place(visit: Visit, set_id: UUID, entry: SetEntry) -> str:
    """The page of an entry, as a step of its set."""
    span_id = "" if entry.span_id is None else entry.span_id.hex()
    address = f"{visit.base}/traces/{entry.trace_id.hex()}"
    return query(address, view="conversation", span=span_id, in_=f"{IN}{set_id}")


async def opened_set_of(visit: Visit, set_id: str) -> TraceSet | None:
    """The set of this id, or None."""
    try:
        return await SetStore(visit.means.database).one(visit.project.id, UUID(set_id))
    except ValueError:
        return None


@attrs.frozen
class SetStep:
    """Where a trace stands in a set: its number from 1, and the pages before and after it."""

    set: TraceSet
    entry: SetEntry
    number: int
    of: int
    before: str | None
    after: str | None


async def step_of(visit: Visit, set_id: str, trace_id: bytes) -> SetStep | None:
    """The step of a trace in a set; None where either is gone."""
    opened_set = await opened_set_of(visit, set_id)
    if opened_set is None:
        return None
    entries = await SetStore(visit.means.database).entries(visit.project.id, opened_set.id)
    present = [entry for entry in entries if entry.is_there]
    span_id = visit.query.get("span", "").lower()
    numbers = [number for number, entry in enumerate(present) if entry.trace_id == trace_id]
    if not numbers:
        return None
    exact = [number for number in numbers if (present[number].span_id or b"").hex() == span_id]
    number = (exact or numbers)[0]
    addresses = [place(visit, opened_set.id, entry) for entry in present]
    return SetStep(
        opened_set,
        present[number],
        number + 1,
        len(present),
        addresses[number - 1] if number else None,
        addresses[number + 1] if number + 1 < len(present) else None,
    )


PAGES: Final = (
    PageRoute("GET", PROJECT + "/sets", "ORG_VIEW", sets),
    PageRoute("GET", PROJECT + "/sets/{setId}", "ORG_VIEW", trace_set),
)
