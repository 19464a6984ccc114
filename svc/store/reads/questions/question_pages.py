"""Pages of the rows of a question, newest first by the time it is on.

Called by `svc.store.reads.questions.query` for searches and by `svc.store.reads.questions.spans_by_payload`,
which looks into what a page holds. Chooses the way to the rows: by day for event time, by stretches for texts
and placed values, else down an index. Raises `Outage`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import attrs
import trio

from svc.domain.calendar import after as later
from svc.domain.queries.datasets import EVENT_TIME, SPANS
from svc.store.aggregates.closed_hours import CUBED
from svc.store.aggregates.values import PLACED
from svc.store.postgres.database import Connection, Database, left_s
from svc.store.postgres.keyset import Keyset, KeyType
from svc.store.reads.questions.columns.asked import columns_know
from svc.store.reads.questions.event_time import newest_started
from svc.store.reads.questions.grouped import QUERY_TIMEOUT_S
from svc.store.reads.questions.question_hours import hours_of
from svc.store.reads.questions.questions import Question, filter_text, stored_value
from svc.store.reads.search import Page, Stretches, in_hours, newest_rows, stretches, stretches_with

#: A filter on one of these leaves so few rows that walking them is quicker than any index of texts.
_NARROW: Final = {"trace_id", "span_id", "session_id", "user_id"}

#: Hours of values that are looked into before spans by column are asked which of them have all at once.
AHEAD: Final = 24

#: Fields of spans that are placed and have an index of their own all the same.
_INDEXED: Final = {(SPANS.name, "call_site_id")}


def newest_order(question: Question) -> Keyset:
    """The order of the pages. A cursor of one time is foreign to the other."""
    dataset = question.dataset
    kinds: dict[str, KeyType] = {"index": "integer", "id": "uuid"}
    identity = tuple((column, kinds.get(column, "bytes")) for column in dataset.identity)
    name = f"{dataset.name} by {EVENT_TIME}" if question.by_event_time else dataset.name
    return Keyset(name, ((question.time_column, "moment"), *identity))


@attrs.frozen
class QuestionPages:
    """Reads pages of rows; the fields of a question have been looked up."""

    database: Database

    async def rows(
        self,
        question: Question,
        text: str | None,
        columns: Sequence[str],
        position: Sequence[Any] | None,
        size: int,
    ) -> list[Any]:
        """At most `size` rows that hold a text, behind the key of a row, with these columns and their key."""
        dataset = question.dataset
        where = question.where()
        where.contains(dataset.searched, text)
        keys = [name for name, _ in newest_order(question).columns]
        where.after(keys, None if position is None else list(position))
        selected = ", ".join(dict.fromkeys((*keys, *columns)))
        order = ", ".join(f"{key} desc" for key in keys)
        placed = {
            field.name: stored_value(field, filter_text(value))
            for field, value in question.filters
            if field.name in PLACED.get(dataset.name, ())
            and (dataset.name, field.name) not in _INDEXED
            and value is not None
        }
        page = Page(dataset.table, selected, where.sql(), where.values, order, size)
        if question.by_event_time:
            return await self._started(question, position, page)
        narrow = any(field.name in _NARROW for field, _ in question.filters)
        if dataset in CUBED and not narrow and (text is not None or placed):
            return await self._in_stretches(question, text, placed, position, page)
        return await self.database.fetch(page.sql(), *page.values, page.size, timeout_s=QUERY_TIMEOUT_S)

    async def _started(self, question: Question, position: Sequence[Any] | None, page: Page) -> list[Any]:
        """The rows of a page in the order of when they happened."""

        async def work(connection: Connection) -> list[Any]:
            behind = None if position is None else position[0]
            return await newest_started(
                connection, question.project_id, page, question.low, question.high, behind
            )

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=QUERY_TIMEOUT_S)

    async def _in_stretches(
        self,
        question: Question,
        text: str | None,
        values: Mapping[str, str],
        position: Sequence[Any] | None,
        page: Page,
    ) -> list[Any]:
        """The rows of a page that is narrowed by a text or by values without an index of their own."""
        low, high, about = question.low, question.high, (question.dataset, question.project_id)
        if position is not None:
            behind = later(position[0], timedelta(microseconds=1))
            high = behind if high is None else min(high, behind)
        enough = page.size if len(values) == len(question.filters) == 1 else None

        # Several things at once, of which the index of values knows only each by itself.
        conjoined = text is None and len(question.filters) > 1 and columns_know(question, None)
        until_s = trio.current_time() + QUERY_TIMEOUT_S

        async def near(connection: Connection) -> Stretches | None:
            if text is not None:
                return await stretches(connection, *about, text, low, high)
            return await stretches_with(connection, *about, values, low, high, enough=enough)

        async def ahead(connection: Connection) -> list[Any] | None:
            stretches_ = await near(connection)
            if not conjoined or stretches_ is None or len(stretches_.near) <= AHEAD:
                return await newest_rows(connection, stretches_, page)
            rows = await newest_rows(connection, Stretches(stretches_.near[:AHEAD]), page)
            return rows if len(rows) == page.size else None

        async def by_hours(connection: Connection) -> list[Any]:
            stretches_ = await near(connection)
            if stretches_ is not None and hours is not None:
                stretches_ = in_hours(stretches_, hours.has)
            return await newest_rows(connection, stretches_, page)

        rows = await self.database.run(ahead, readonly=True, snapshot=True, timeout_s=left_s(until_s))
        if rows is not None:
            return rows
        hours = await hours_of(self.database, [question], until_s)
        return await self.database.run(by_hours, readonly=True, snapshot=True, timeout_s=left_s(until_s))
