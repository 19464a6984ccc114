"""Bodies and answers of `{p}/sets`: traces and spans that people keep together under a name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from protocol.rest.accounts import Instant

#: Entries of one request.
SET_ENTRIES_MAX = 1_000

SetFormatName = Literal["lines", "openai_evals", "langfuse", "phoenix"]


class SetShown(msgspec.Struct):
    """A set, and how many entries it has."""

    id: str
    name: str
    made_by: str
    made_at: Instant
    entries: int


class SetEntryShown(msgspec.Struct):
    """A trace, or a span of it, in a set. `name`, `status`, `started_at` and `call_site_id` are its trace's,
    and null once that is gone.
    """

    trace_id: str
    span_id: str | None
    note: str | None
    added_by: str
    added_at: Instant
    name: str | None
    status: str | None
    started_at: Instant | None
    call_site_id: str | None


class SetOpened(SetShown):
    """A set with its entries, in the order in which they were added."""

    items: list[SetEntryShown]


class SetSubject(msgspec.Struct, forbid_unknown_fields=True):
    """A trace, or a span of it; ids are hexadecimal."""

    trace_id: str
    span_id: str | None = None


class SetEntriesBody(msgspec.Struct, forbid_unknown_fields=True):
    """What to add."""

    entries: Annotated[list[SetSubject], Meta(max_length=SET_ENTRIES_MAX)]


class SetAdded(msgspec.Struct):
    """The set, and how many entries are new in it."""

    set: SetShown
    added: int


class SetNoteBody(msgspec.Struct, forbid_unknown_fields=True):
    """What is written about an entry; null for nothing."""

    note: str | None


class SetGone(msgspec.Struct):
    """How many entries were taken out."""

    removed: int


class SetExportQuery(msgspec.Struct, forbid_unknown_fields=True):
    """In which format."""

    format: SetFormatName = "lines"


class SetExported(msgspec.Struct):
    """An export: each item is a line of a file, or, of Phoenix, the body of one upload."""

    format: SetFormatName
    items: list[Any]
