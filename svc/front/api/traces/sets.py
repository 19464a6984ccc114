"""`{p}/sets`: traces and spans that people keep together, filled, annotated and emptied.

A set is named by its name or by its id; one that takes its first entry is made by that. The pages are forms
over these handlers; exports are in `set_export`.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec

from protocol.refusals import BAD_REQUEST, BLANK_NAME, NO_SUCH_SET, NO_SUCH_SET_ENTRY, Refusal, Refused
from protocol.rest.query import timestamp, timestamp_or_none
from protocol.rest.sets import (
    SetAdded,
    SetEntriesBody,
    SetEntryShown,
    SetGone,
    SetNoteBody,
    SetOpened,
    SetShown,
)
from protocol.text import clean
from svc.domain.feedback.entries import WrongFeedback, id_of
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.feedback.sets import (
    MOST_SETS,
    NAME_CHARS,
    NOTE_CHARS,
    NoRoomForSets,
    SetEntry,
    SetStore,
    Subject,
    TraceSet,
)


async def get_sets(call: Call[None]) -> list[SetShown]:
    """The sets of the project, by name."""
    return [_shown(trace_set) for trace_set in await SetStore(call.means.database).list(call.project.id)]


async def get_set(call: Call[None]) -> SetOpened:
    """A set with its entries."""
    trace_set = await set_of(call)
    entries = await SetStore(call.means.database).entries(call.project.id, trace_set.id)
    return SetOpened(**msgspec.structs.asdict(_shown(trace_set)), items=[_entry(entry) for entry in entries])


def set_name(text: str) -> str | Refusal:
    """A name as it is kept, or why a set has none such."""
    name = clean(" ".join(text.split()))
    if not name:
        return BLANK_NAME
    if len(name) > NAME_CHARS:
        return BAD_REQUEST.saying(f"a set has a name of at most {NAME_CHARS} characters")
    return name


async def post_entries(call: Call[SetEntriesBody]) -> SetAdded | Refusal:
    """Add traces and spans; what is there already, or does not exist, is left out."""
    name = set_name(call.path["set"])
    if isinstance(name, Refusal):
        return name
    store = SetStore(call.means.database)
    opened_set = await _named(call, store)
    subjects = [subject_of(entry.trace_id, entry.span_id) for entry in call.body.entries]
    change = await store.add(
        call.project.id, name if opened_set is None else opened_set.name, subjects, call.caller.label
    )
    if isinstance(change, NoRoomForSets):
        return BAD_REQUEST.saying(f"a project has at most {MOST_SETS} sets; remove one first")
    changed_set, added = change
    return SetAdded(_shown(changed_set), added)


async def put_note(call: Call[SetNoteBody]) -> SetNoteBody | Refusal:
    """Write about an entry, in the place of what was written before."""
    trace_set = await set_of(call)
    note = clean(call.body.note or "").strip() or None
    if note is not None and len(note) > NOTE_CHARS:
        return BAD_REQUEST.saying(f"a note is at most {NOTE_CHARS:,} characters long")
    store = SetStore(call.means.database)
    is_there = await store.annotate(call.project.id, trace_set.id, _of_path(call), note, call.caller.label)
    return SetNoteBody(note) if is_there else NO_SUCH_SET_ENTRY


async def delete_entry(call: Call[None]) -> SetGone:
    """Take an entry out; one that is gone already is no matter."""
    trace_set = await set_of(call)
    store = SetStore(call.means.database)
    return SetGone(await store.remove(call.project.id, trace_set.id, [_of_path(call)], call.caller.label))


async def delete_set(call: Call[None]) -> SetGone:
    """Remove a set; its traces stay as long as their term."""
    trace_set = await set_of(call)
    await SetStore(call.means.database).forget(call.project.id, trace_set.id, call.caller.label)
    return SetGone(trace_set.entries)


async def set_of(call: Call[Any]) -> TraceSet:
    """The set that the path names. Raises `Refused`."""
    trace_set = await _named(call, SetStore(call.means.database))
    if trace_set is None:
        raise Refused(NO_SUCH_SET)
    return trace_set


async def _named(call: Call[Any], store: SetStore) -> TraceSet | None:
    """By its id or its name."""
    text = call.path["set"]
    try:
        by_id = await store.one(call.project.id, UUID(text))
    except ValueError:
        by_id = None
    if by_id is not None:
        return by_id
    sets = await store.list(call.project.id)
    return next((trace_set for trace_set in sets if trace_set.name == text), None)


def subject_of(trace_hex: str, span_hex: str | None) -> Subject:
    """A trace, or a span of it, by its ids. Raises `Refused`."""
    try:
        trace_id = id_of(trace_hex, 16, "trace_id")
        span_id = id_of(span_hex, 8, "span_id")
    except WrongFeedback as error:
        raise Refused(BAD_REQUEST.saying(str(error))) from None
    if trace_id is None:
        raise Refused(BAD_REQUEST.saying("an entry names a trace_id"))
    return trace_id, span_id


def _of_path(call: Call[Any]) -> Subject:
    trace_hex, _, span_hex = call.path["entry"].partition("-")
    return subject_of(trace_hex, span_hex)


def _shown(trace_set: TraceSet) -> SetShown:
    return SetShown(
        id=str(trace_set.id),
        name=trace_set.name,
        made_by=trace_set.made_by,
        made_at=timestamp(trace_set.made_at),
        entries=trace_set.entries,
    )


def _entry(entry: SetEntry) -> SetEntryShown:
    return SetEntryShown(
        trace_id=entry.trace_id.hex(),
        span_id=None if entry.span_id is None else entry.span_id.hex(),
        note=entry.note,
        added_by=entry.added_by,
        added_at=timestamp(entry.added_at),
        name=entry.name,
        status=entry.status,
        started_at=timestamp_or_none(entry.started_at),
        call_site_id=entry.call_site_id,
    )


SETS: Final = PROJECT + "/sets"
ONE_SET: Final = SETS + "/{set}"

ROUTES: Final = (
    Route("GET", SETS, "ORG_VIEW", get_sets, list[SetShown]),
    Route("GET", ONE_SET, "ORG_VIEW", get_set, SetOpened, refusals=(NO_SUCH_SET,)),
    Route("DELETE", ONE_SET, "ORG_MANAGE", delete_set, SetGone, refusals=(NO_SUCH_SET,)),
    Route(
        "POST", ONE_SET + "/entries", "ORG_MANAGE", post_entries, SetAdded, body=SetEntriesBody, status=201,
        refusals=(BAD_REQUEST, BLANK_NAME),
    ),
    Route(
        "PUT", ONE_SET + "/entries/{entry}", "ORG_MANAGE", put_note, SetNoteBody, body=SetNoteBody,
        refusals=(NO_SUCH_SET, NO_SUCH_SET_ENTRY),
    ),
    Route(
        "DELETE", ONE_SET + "/entries/{entry}", "ORG_MANAGE", delete_entry, SetGone, refusals=(NO_SUCH_SET,),
    ),
)  # fmt: skip
