"""Questions about spans by an attribute that is no field, or by a text: payloads tell which spans they are.

Called by `svc.store.reads.questions.query` before it counts, draws, ranks or lists. What is counted are the
spans that were found, by the same statements as any other question, so every measure and group is there; an
answer says how many spans were looked through, and how far back that came. A search goes on from there by its
cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import trio

from protocol.rest.query import FilterValue, timestamp
from svc.domain.attributes.conventions import PAYLOAD, may_need_payloads
from svc.domain.queries.datasets import SPANS, Field
from svc.store.postgres.database import Database
from svc.store.reads.payload_scan import MOST_S, MOST_SPANS, UNLISTED, Wanted, saying_spans, scan_note
from svc.store.reads.questions.attributes import history_notes, promoted_fields, require_fields
from svc.store.reads.questions.question_pages import QuestionPages, newest_order
from svc.store.reads.questions.questions import ChosenSpans, Question, filter_text
from svc.store.spans.availability import key_of
from svc.store.spans.payloads import SpanKey

#: Rows that are read at once: few for a page of a search, which may be full soon, then more.
_FIRST_ROWS: Final = 200
_MOST_ROWS: Final = 5_000
#: And of those whose whole payloads are looked into, which take more time each.
_MOST_TEXTS: Final = 1_000
Filters = tuple[tuple[Field, FilterValue], ...]

_KEY: Final = ("trace_id", "span_id", "started_at", "frame")

_UNCOUNTED: Final = "; what is before {moment} is not counted: a shorter range{or_field} counts all"
_OR_FIELD: Final = ", or a field made of it on Settings, Attributes,"


@attrs.frozen
class MatchingRows:
    """A page of rows that were found, the cursor behind it, and how far it came in a sentence."""

    rows: Sequence[Any]
    cursor: str | None
    note: str


@attrs.frozen
class _Scan:
    """Rows that were found; `stopped` is the last row that was looked into when there may be more."""

    rows: Sequence[Any]
    spans: int
    stopped: Any | None


async def parted(
    database: Database, project_id: int, filters: Filters
) -> tuple[Filters, Sequence[tuple[str, str | None]]]:
    """Filters of spans that rows tell, and those that only payloads tell.

    Raises `Refused` for a field that is called otherwise by now.
    """
    names = {field.name for field, _ in filters if may_need_payloads(field.name)}
    if not names:
        return filters, ()
    promoted = set(await promoted_fields(database, project_id))
    unknown = [field for field, _ in filters if field.name in names - promoted]
    await require_fields(database, project_id, unknown, filtered=True)
    remaining = tuple((field, value) for field, value in filters if field not in unknown)
    return remaining, [
        (field.name, None if value is None else filter_text(value))
        for field, value in filters
        if field in unknown
    ]


@attrs.frozen
class SpansByPayload:
    """Finds spans of one project at a time."""

    database: Database
    pages: QuestionPages

    async def asked(self, question: Question) -> tuple[Question, Wanted]:
        """The question without what only payloads tell, and that. Raises as `parted`."""
        if question.dataset is not SPANS:
            return question, ()
        remaining, payload_filters = await parted(self.database, question.project_id, question.filters)
        return attrs.evolve(question, filters=remaining), payload_filters

    async def chosen(self, question: Question, *grouped: Field) -> tuple[Question, list[str]]:
        """The question about the spans that payloads name, and what is to be said of it."""
        await require_fields(self.database, question.project_id, grouped)
        question, payload_filters = await self.asked(question)
        notes = await self.history_notes(question, *grouped)
        if not payload_filters:
            return question, notes
        scan = await self._scan(question, payload_filters, _KEY, None, None, None)
        further, since = "", None
        if scan.stopped is not None:
            since = scan.stopped[question.time_column]
            may_be_fields = all(name != PAYLOAD for name, _ in payload_filters)
            further = _UNCOUNTED.format(
                moment=_moment(scan.stopped, question), or_field=_OR_FIELD if may_be_fields else ""
            )
        spans = ChosenSpans.of([key_of(row) for row in scan.rows], scan.spans, since)
        note = scan_note(payload_filters, scan.spans, further)
        return attrs.evolve(question, spans=spans), [note, *notes]

    async def history_notes(self, question: Question, *grouped: Field) -> list[str]:
        """What to say of fields that earlier spans have no value of."""
        names = [field.name for field in (*grouped, *question.fields)]
        return await history_notes(self.database, question.project_id, names, question.low)

    async def page(
        self,
        question: Question,
        payload_filters: Wanted,
        text: str | None,
        columns: Sequence[str],
        limit: int,
        cursor: str | None,
    ) -> MatchingRows:
        """The newest rows behind a cursor that say all of it."""
        order = newest_order(question)
        scan = await self._scan(
            question, payload_filters, (*_KEY, *columns), text, order.place(cursor), limit
        )
        further = ""
        if scan.stopped is not None and len(scan.rows) < limit:
            further = UNLISTED.format(moment=_moment(scan.stopped, question))
        next_cursor = None if scan.stopped is None else order.cursor(scan.stopped)
        return MatchingRows(scan.rows, next_cursor, scan_note(payload_filters, scan.spans, further))

    async def _scan(
        self,
        question: Question,
        payload_filters: Wanted,
        columns: Sequence[str],
        text: str | None,
        position: Sequence[Any] | None,
        limit: int | None,
    ) -> _Scan:
        """The newest rows that say all of it: all, or `limit` of them, within the bound of one scan."""
        names = [name for name, _ in newest_order(question).columns]
        deadline = trio.current_time() + MOST_S
        rows: list[Any] = []
        most = _MOST_TEXTS if any(name == PAYLOAD for name, _ in payload_filters) else _MOST_ROWS
        spans, size = 0, _FIRST_ROWS if limit else most
        while True:
            size = min(size, MOST_SPANS - spans)
            batch = await self.pages.rows(question, text, columns, position, size)
            saying = set(
                await saying_spans(self.database, question.project_id, _with_frame(batch), payload_filters)
            )
            rows += [row for row in batch if key_of(row) in saying]
            spans += len(batch)
            if limit is not None and len(rows) >= limit:
                # Those behind the page's last row are looked into again: what they say is not kept.
                ends_here = rows[limit - 1] is batch[-1] and len(batch) < size
                return _Scan(rows[:limit], spans, None if ends_here else rows[limit - 1])
            if len(batch) < size:
                return _Scan(rows, spans, None)
            if spans >= MOST_SPANS or trio.current_time() > deadline:
                return _Scan(rows, spans, batch[-1])
            position, size = [batch[-1][name] for name in names], min(size * 4, most)


def _with_frame(rows: Sequence[Any]) -> list[SpanKey]:
    return [key_of(row) for row in rows if row["frame"] is not None]


def _moment(row: Any, question: Question) -> str:
    moment: datetime = row[question.time_column]
    return timestamp(moment)
