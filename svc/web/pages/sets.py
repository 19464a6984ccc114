"""Sets: traces and spans that people keep together, walked one after the other.

A set is filled from the page of a trace or a list's answer. Walking it is the page of each trace with
`in=set=…` in its address: the keys of lists lead on, those of feedback judge.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import attrs
import msgspec

from protocol.refusals import BAD_REQUEST, NO_SUCH_SET, Refusal
from protocol.text import clean
from svc.domain.feedback import WrongFeedback, id_of
from svc.store.feedback.reads import FeedbackReads
from svc.store.feedback.sets import (
    MOST_SETS,
    NAME_CHARS,
    NoRoomForSets,
    SetEntry,
    SetStore,
    Subject,
    TraceSet,
)
from svc.store.reads.spans import SpanReads
from svc.store.reads.traces import TraceReads
from svc.web.page import PROJECT, Go, Html, PageRoute, Visit
from svc.web.pages.saved_views import ViewForm
from svc.web.render import query

#: Traces of a list that are added at once.
MOST_ADDED: Final = 200
#: How a set stands in the address of a trace: `in=set=…`.
IN: Final = "set="


class AddForm(ViewForm):
    """Where to: `name` of a set; what: one trace or span of it, or the newest traces of a list."""

    trace_id: str = ""
    span_id: str = ""


class SetEntryForm(msgspec.Struct):
    """A set, and perhaps one entry of it."""

    set: str
    trace_id: str = ""
    span_id: str = ""


async def sets(visit: Visit) -> Html:
    """The sets of the project."""
    return Html("pages/sets", {"sets": await SetStore(visit.means.database).list(visit.project.id)})


async def trace_set(visit: Visit) -> Html | Refusal:
    """One set."""
    opened_set = await opened_set_of(visit, visit.call.path["setId"])
    if opened_set is None:
        return NO_SUCH_SET
    entries = await SetStore(visit.means.database).entries(visit.project.id, opened_set.id)
    given = await FeedbackReads(visit.means.database).of_traces(
        visit.project.id, [entry.trace_id for entry in entries]
    )
    first = next((entry for entry in entries if entry.is_there), None)
    context = {
        "set": opened_set,
        "entries": [(entry, place(visit, opened_set.id, entry)) for entry in entries],
        "given": given,
        "review": None if first is None else place(visit, opened_set.id, first),
        "added": visit.query.get("added", ""),
    }
    return Html("pages/set", context, modules=("rows",))


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
    there = [entry for entry in entries if entry.is_there]
    span_id = visit.query.get("span", "").lower()
    numbers = [number for number, entry in enumerate(there) if entry.trace_id == trace_id]
    if not numbers:
        return None
    exact = [number for number in numbers if (there[number].span_id or b"").hex() == span_id]
    number = (exact or numbers)[0]
    addresses = [place(visit, opened_set.id, entry) for entry in there]
    return SetStep(
        opened_set,
        number + 1,
        len(there),
        addresses[number - 1] if number else None,
        addresses[number + 1] if number + 1 < len(there) else None,
    )


async def add(visit: Visit) -> Go | Refusal:
    """Add a trace, a span, or the newest traces of a list, to the set of a name."""
    form: AddForm = visit.form
    name = clean(" ".join(form.name.split()))
    if not 1 <= len(name) <= NAME_CHARS:
        return BAD_REQUEST.saying(f"a set has a name of at most {NAME_CHARS} characters")
    subjects = await _subjects(visit, form)
    if isinstance(subjects, Refusal):
        return subjects
    store = SetStore(visit.means.database)
    done = await store.add(visit.project.id, name, subjects, visit.call.caller.label)
    if isinstance(done, NoRoomForSets):
        return BAD_REQUEST.saying(f"a project has at most {MOST_SETS} sets; remove one first")
    changed_set, added = done
    return Go(query(f"{visit.base}/sets/{changed_set.id}", added=str(added)))


async def _subjects(visit: Visit, form: AddForm) -> list[Subject] | Refusal:
    if form.trace_id:
        return _subject(form.trace_id, form.span_id)
    reads = TraceReads(visit.means.history, SpanReads(visit.means.history))
    asking = form.asking(visit)
    page = await reads.page(
        visit.project.id, asking.filters.over(asking.range), limit=MOST_ADDED, cursor=None
    )
    return [(bytes.fromhex(trace["trace_id"]), None) for trace in page["traces"]]


def _subject(trace_hex: str, span_hex: str) -> list[Subject] | Refusal:
    try:
        trace_id = id_of(trace_hex, 16, "trace_id")
        span_id = id_of(span_hex, 8, "span_id")
    except WrongFeedback as error:
        return BAD_REQUEST.saying(str(error))
    return [] if trace_id is None else [(trace_id, span_id)]


async def remove(visit: Visit) -> Go | Refusal:
    """Take one entry out of a set."""
    form: SetEntryForm = visit.form
    opened_set, subjects = await opened_set_of(visit, form.set), _subject(form.trace_id, form.span_id)
    if opened_set is None:
        return NO_SUCH_SET
    if isinstance(subjects, Refusal):
        return subjects
    for subject in subjects:
        await SetStore(visit.means.database).remove(visit.project.id, opened_set.id, subject)
    return Go(f"{visit.base}/sets/{opened_set.id}")


async def forget(visit: Visit) -> Go | Refusal:
    """Remove a set."""
    form: SetEntryForm = visit.form
    opened_set = await opened_set_of(visit, form.set)
    if opened_set is None:
        return NO_SUCH_SET
    await SetStore(visit.means.database).forget(visit.project.id, opened_set.id)
    return Go(f"{visit.base}/sets")


PAGES: Final = (
    PageRoute("GET", PROJECT + "/sets", "ORG_VIEW", sets),
    PageRoute("GET", PROJECT + "/sets/{setId}", "ORG_VIEW", trace_set),
    PageRoute("POST", PROJECT + "/sets/add", "ORG_MANAGE", add, form=AddForm),
    PageRoute("POST", PROJECT + "/sets/remove", "ORG_MANAGE", remove, form=SetEntryForm),
    PageRoute("POST", PROJECT + "/sets/forget", "ORG_MANAGE", forget, form=SetEntryForm),
)
