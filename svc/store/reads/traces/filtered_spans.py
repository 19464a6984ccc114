"""Pages of spans narrowed by any field of their dataset, attributes among them; shown as other spans are.

Called by the tool `list_spans` where it is asked for such fields. What the rows tell is asked of the rows; an
attribute that is no field is looked for in payloads, and the page says how far that came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import attrs

from protocol.rest.query import FilterValue
from svc.domain.calendar import after
from svc.domain.queries.datasets import EVENT_TIME, SPANS
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.rows import STORED_SPAN
from svc.store.reads.payloads import ROOM_BYTES, Opening
from svc.store.reads.questions.nothing_found import reasons
from svc.store.reads.questions.question_pages import QuestionPages, newest_order
from svc.store.reads.questions.questions import Question, ask, checked_filters
from svc.store.reads.questions.spans_by_payload import SpansByPayload
from svc.store.reads.traces.spans import SpanFilter, SpanPage
from svc.store.spans.availability import key_of, spans_with_payloads

#: What a list of spans can be narrowed to by itself.
_OWN: Final = ("call_site_id", "kind", "name", "status", "model_id", "session_id")
_STEP: Final = timedelta(microseconds=1)


@attrs.frozen
class FilteredSpans:
    """Reads spans of one project at a time that have all these values. Raises `Refused` for no field."""

    database: Database
    filters: Mapping[str, FilterValue]

    async def page(
        self,
        project_id: int,
        asked: SpanFilter,
        *,
        payload: bool,
        limit: int,
        cursor: str | None,
        room_bytes: int = ROOM_BYTES,
        opening: Opening | None = None,
    ) -> dict[str, Any]:
        """`{spans, next_cursor}`, newest first; `notes` where payloads were looked into, and where nothing
        can match.
        """
        question = _question(project_id, asked, self.filters)
        rows, next_cursor, notes = await self._rows(question, asked.q, limit, cursor)
        if not rows:
            notes = [*await reasons(self.database, project_id, SPANS, question.filters), *notes]

        async def work(connection: Connection) -> SpanPage:
            available = await spans_with_payloads(connection, project_id, [key_of(row) for row in rows])
            shown = [
                {**row, "payload_available": (row["trace_id"], row["span_id"]) in available} for row in rows
            ]
            return await SpanPage.read(connection, project_id, shown, room_bytes if payload else None)

        # Statements that need not agree: what goes between two of them is shown as gone.
        page = await self.database.run(work, transaction=False, readonly=True, timeout_s=READ_TIMEOUT_S)
        return {"spans": await page.shown(room_bytes, opening), "next_cursor": next_cursor} | (
            {"notes": notes} if notes else {}
        )

    async def _rows(
        self, question: Question, text: str | None, limit: int, cursor: str | None
    ) -> tuple[Sequence[Any], str | None, list[str]]:
        pages = QuestionPages(self.database)
        by_payload = SpansByPayload(self.database, pages)
        by_rows, payload_filters = await by_payload.asked(question)
        if payload_filters:
            matching = await by_payload.page(by_rows, payload_filters, text, STORED_SPAN, limit, cursor)
            return matching.rows, matching.cursor, [matching.note]
        newest = newest_order(question)
        # One page and one row more, which tells whether there is another page.
        rows = await pages.rows(question, text, STORED_SPAN, newest.place(cursor), limit + 1)
        return *newest.page(rows, limit), []


def _question(project_id: int, asked: SpanFilter, filters: Mapping[str, FilterValue]) -> Question:
    """The same as a question: a list's range ends with its last instant, a question's before it."""
    own: dict[str, FilterValue] = {
        name: value for name in _OWN if (value := getattr(asked, name)) is not None
    }
    if asked.trace_id is not None:
        own["trace_id"] = asked.trace_id.hex()
    bounds = asked.low, None if asked.high is None else after(asked.high, _STEP)
    question = ask(project_id, SPANS.name, bounds, own, by=EVENT_TIME if asked.by_event_time else None)
    # A field that is asked for in both ways has both values, or there is no such span.
    return attrs.evolve(question, filters=(*question.filters, *checked_filters(SPANS, filters)))
