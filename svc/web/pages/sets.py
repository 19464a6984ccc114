"""Sets: traces and spans that people keep together, walked one after the other, exported as JSON lines.

A set is filled from the page of a trace, from a list's answer, and shared by its address. Walking it is the
page of each trace with `in=set=…` in its address: the keys of lists lead on, those of feedback judge.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import attrs
import msgspec
import trio

from protocol.refusals import BAD_REQUEST, NO_SUCH_SET, Refusal
from protocol.rest.query import timestamp
from protocol.text import clean
from svc.domain.feedback import WrongFeedback, id_of
from svc.store.feedback.reads import FeedbackReads, FeedbackRow
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
from svc.web.page import PROJECT, Go, Html, PageRoute, Sent, Visit
from svc.web.pages.saved_views import ViewForm
from svc.web.render import query

#: Traces of a list that are added at once.
MOST_ADDED: Final = 200
#: Payload that is read for one line of an export, and how long all of it may take.
LINE_BYTES: Final = 256 * 1024
EXPORT_TIMEOUT_S: Final = 60.0
EXPORT_BYTES: Final = 64 * 1024 * 1024
#: How a set stands in the address of a trace: `in=set=…`.
IN: Final = "set="


class AddForm(ViewForm):
    """Where to: `name` of a set; what: one trace or span of it, or the newest traces of a list."""

    trace_id: str = ""
    span_id: str = ""


class SetEntryForm(msgspec.Struct):
    """One entry of a set."""

    set: str
    trace_id: str
    span_id: str = ""


class SetForm(msgspec.Struct):
    """Which set."""

    set: str


async def sets(visit: Visit) -> Html:
    """The sets of the project."""
    return Html("pages/sets", {"sets": await SetStore(visit.means.database).list(visit.project.id)})


async def trace_set(visit: Visit) -> Html | Refusal:
    """One set."""
    opened_set = await _opened(visit, visit.call.path["setId"])
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


async def _opened(visit: Visit, set_id: str) -> TraceSet | None:
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
    opened_set = await _opened(visit, set_id)
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
    opened_set, subjects = await _opened(visit, form.set), _subject(form.trace_id, form.span_id)
    if opened_set is None:
        return NO_SUCH_SET
    if isinstance(subjects, Refusal):
        return subjects
    for subject in subjects:
        await SetStore(visit.means.database).remove(visit.project.id, opened_set.id, subject)
    return Go(f"{visit.base}/sets/{opened_set.id}")


async def forget(visit: Visit) -> Go | Refusal:
    """Remove a set."""
    form: SetForm = visit.form
    opened_set = await _opened(visit, form.set)
    if opened_set is None:
        return NO_SUCH_SET
    await SetStore(visit.means.database).forget(visit.project.id, opened_set.id)
    return Go(f"{visit.base}/sets")


async def export(visit: Visit) -> Sent | Refusal:
    """The set as JSON lines: what each entry was given and answered, and what was thought of it."""
    opened_set = await _opened(visit, visit.call.path["setId"])
    if opened_set is None:
        return NO_SUCH_SET
    entries = await SetStore(visit.means.database).entries(visit.project.id, opened_set.id)
    lines: list[bytes] = []
    size = 0
    with trio.move_on_after(EXPORT_TIMEOUT_S) as scope:
        for entry in entries:
            if not entry.is_there:
                continue
            lines.append(msgspec.json.encode(await _line(visit, entry)) + b"\n")
            size += len(lines[-1])
            if size > EXPORT_BYTES:
                break
    if scope.cancelled_caught or size > EXPORT_BYTES:
        return BAD_REQUEST.saying("this set is too large for one file: split it into smaller ones")
    return Sent(b"".join(lines), "application/x-ndjson", file_name=f"set-{opened_set.id}.jsonl")


async def _line(visit: Visit, entry: SetEntry) -> dict[str, Any]:
    spans = SpanReads(visit.means.history)
    span_id = entry.span_id
    if span_id is None:
        traces = TraceReads(visit.means.history, spans)
        trace = await traces.one(visit.project.id, entry.trace_id, payload=False)
        roots = [] if trace is None else [span for span in trace["spans"] if not span["parent_span_id"]]
        span_id = bytes.fromhex(roots[0]["span_id"]) if roots else None
    span = (
        None
        if span_id is None
        else await spans.one(visit.project.id, entry.trace_id, span_id, room_bytes=LINE_BYTES)
    )
    span = span or {}
    rows = await FeedbackReads(visit.means.database).of_trace(visit.project.id, entry.trace_id)
    return {
        "id": entry.key,
        "input": span.get("input"),
        "output": span.get("output"),
        "metadata": {
            "trace_id": entry.trace_id.hex(),
            "span_id": None if entry.span_id is None else entry.span_id.hex(),
            "name": entry.name,
            "call_site_id": entry.call_site_id,
            "model": span.get("provided_model_name"),
            "status": entry.status,
            "started_at": None if entry.started_at is None else timestamp(entry.started_at),
        },
        "feedback": [_judgement(row) for row in rows if entry.span_id in (None, row.span_id)],
    }


def _judgement(row: FeedbackRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "number": row.number,
        "category": row.category,
        "text": row.text,
        "author": row.author,
        "source": row.source,
        "at": timestamp(row.judged_at),
    }


PAGES: Final = (
    PageRoute("GET", PROJECT + "/sets", "ORG_VIEW", sets),
    PageRoute("GET", PROJECT + "/sets/{setId}", "ORG_VIEW", trace_set),
    PageRoute("GET", PROJECT + "/sets/{setId}/export", "ORG_VIEW", export),
    PageRoute("POST", PROJECT + "/sets/add", "ORG_MANAGE", add, form=AddForm),
    PageRoute("POST", PROJECT + "/sets/remove", "ORG_MANAGE", remove, form=SetEntryForm),
    PageRoute("POST", PROJECT + "/sets/forget", "ORG_MANAGE", forget, form=SetForm),
)
