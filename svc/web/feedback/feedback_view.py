"""What was thought of a trace, a span or a session, as its page shows it, and where a form about it leads.

Called by the pages of traces, spans and sessions. Reads what the store keeps; writes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import attrs

from svc.domain.feedback.entries import NOTE, THUMB
from svc.domain.quantities import score
from svc.store.feedback.reads import FeedbackReads, FeedbackRow, NumberedName
from svc.web.shell.forms import sent_from
from svc.web.shell.page import Visit

#: Entries that stand open; the others fold.
SHOWN: Final = 3
#: Names of feedback that the column of a list can be changed to.
MOST_CHOICES: Final = 12


@attrs.frozen
class ShownEntry:
    """One entry as a line: what it says under which name, and whether it is a person's thumb or note."""

    row: FeedbackRow

    @property
    def is_note(self) -> bool:
        """Whether it is a text that a person wrote on the pages."""
        return self.row.name == NOTE

    @property
    def verdict(self) -> str:
        """Its number and category: 0.75, pass; of a thumb in words."""
        if self.row.name == THUMB and self.row.number in (0, 1) and self.row.category is None:
            return "yes" if self.row.number else "no"
        number = [] if self.row.number is None else [score(self.row.number)]
        return ", ".join(number + ([] if self.row.category is None else [self.row.category]))

    @property
    def span_id(self) -> str | None:
        """The span it is about, in hexadecimal digits."""
        return None if self.row.span_id is None else self.row.span_id.hex()


@attrs.frozen
class FeedbackView:
    """All that is shown of one subject; `subject` are the fields of a form that say what it is."""

    action: str
    subject: dict[str, str]
    entries: Sequence[ShownEntry]
    may: bool
    #: The thumb that whoever looks has given: 1 or 0.
    thumb: float | None
    #: Whether the keys of thumbs are for this one, and that of notes.
    keyed: bool
    noted: bool
    #: Thumbs of other reviewers that are not shown, for whoever looks has not given theirs.
    hidden: int = 0

    @property
    def open(self) -> Sequence[ShownEntry]:
        """The newest."""
        return self.entries[:SHOWN]

    @property
    def folded(self) -> Sequence[ShownEntry]:
        """The others."""
        return self.entries[SHOWN:]


async def rows_of(visit: Visit, trace_id: bytes) -> Sequence[FeedbackRow]:
    """What was said of a trace and its spans, read once for all views of it."""
    return await FeedbackReads(visit.means.database).of_trace(visit.project.id, trace_id)


def of_trace(
    visit: Visit,
    trace_id: bytes,
    rows: Sequence[FeedbackRow],
    *,
    keyed: bool,
    noted: bool = True,
    blind: bool = False,
) -> FeedbackView:
    """Of a trace and all of its spans. `blind`: others' thumbs are hidden until one has given one's own."""
    own = [row for row in rows if row.span_id is None]
    view = FeedbackView(
        f"{visit.base}/feedback",
        {"trace_id": trace_id.hex()},
        [ShownEntry(row) for row in rows],
        visit.manages,
        _thumb(visit, own),
        keyed,
        noted,
    )
    return _blinded(view) if blind else view


def of_span(
    visit: Visit,
    trace_id: bytes,
    span_id: bytes,
    rows: Sequence[FeedbackRow],
    *,
    keyed: bool = False,
    blind: bool = False,
) -> FeedbackView:
    """Of one span."""
    rows = [row for row in rows if row.span_id == span_id]
    view = FeedbackView(
        f"{visit.base}/feedback",
        {"trace_id": trace_id.hex(), "span_id": span_id.hex()},
        [ShownEntry(row) for row in rows],
        visit.manages,
        _thumb(visit, rows),
        keyed,
        keyed,
    )
    return _blinded(view) if blind else view


async def of_session(visit: Visit, session_id: str) -> FeedbackView:
    """Of a session itself."""
    rows = await FeedbackReads(visit.means.database).of_session(visit.project.id, session_id)
    return FeedbackView(
        f"{visit.base}/feedback",
        {"session_id": session_id},
        [ShownEntry(row) for row in rows],
        visit.manages,
        _thumb(visit, rows),
        keyed=True,
        noted=True,
    )


async def of_turns(visit: Visit, trace_ids: Sequence[str]) -> Mapping[str, Sequence[ShownEntry]]:
    """Of the turns of a session, by the id of their trace: the newest of its entries and of its spans'."""
    rows = await FeedbackReads(visit.means.database).entries_of_traces(
        visit.project.id, [bytes.fromhex(trace_id) for trace_id in trace_ids]
    )
    return {trace_id.hex(): [ShownEntry(row) for row in entries] for trace_id, entries in rows.items()}


def _blinded(view: FeedbackView) -> FeedbackView:
    if not view.may or view.thumb is not None:
        return view
    shown = [entry for entry in view.entries if entry.row.name != THUMB or entry.row.source != "page"]
    return attrs.evolve(view, entries=shown, hidden=len(view.entries) - len(shown))


def _thumb(visit: Visit, rows: Sequence[FeedbackRow]) -> float | None:
    author = visit.call.caller.label
    own = [row for row in rows if row.name == THUMB and row.source == "page" and row.author == author]
    return own[0].number if own else None


@attrs.frozen
class FeedbackColumn:
    """A column of a list: the names that it can show, the one that it shows, and by row how many numbers
    there are and their mean.
    """

    names: Sequence[NumberedName]
    chosen: NumberedName | None
    means: Mapping[str, tuple[int, float]]


async def column_of(
    visit: Visit, read: Callable[[FeedbackReads, str], Awaitable[Mapping[str, tuple[int, float]]]]
) -> FeedbackColumn:
    """The column of the name that the address chooses, else of the first; `read` brings its means."""
    reads = FeedbackReads(visit.means.database)
    names = await reads.numbered(visit.project.id, MOST_CHOICES)
    wanted_name = visit.query.get("feedback")
    chosen = next((name for name in names if name.name == wanted_name), names[0] if names else None)
    return FeedbackColumn(names, chosen, {} if chosen is None else await read(reads, chosen.name))


def back(visit: Visit, fallback: str) -> str:
    """The page of this project that a form was sent from, as the browser says it; else another."""
    came_from = sent_from(visit.call.headers)
    # Under a path that we share a host by, the browser says that too.
    _, project, page = came_from.path.partition(visit.base + "/")
    if not project:
        return fallback
    return project + page + (f"?{came_from.query}" if came_from.query else "")
