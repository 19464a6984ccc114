"""Pages of traces in which one span has several things at once, by the hours in which such spans began.

Called by `svc.store.reads.traces.traces` when `trace_search` leaves nothing but to walk. Groups of traces
know that a trace holds each of several values, not that one of its spans has them all: with a kind that no
call of a site has they named traces for ever, and walking looked at each trace there is (1.6 s at a million
spans, measured 2026-11-28). Spans by column know it of each hour. An hour alone tells nothing: what began in
it is read from its rows, and traces from theirs.

Ordering: hours are read before the page, under an earlier snapshot. A span that comes in between is on the
page that is asked for next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from svc.domain.calendar import hour_of
from svc.domain.queries.datasets import SPANS
from svc.store.postgres.database import Connection, Database
from svc.store.reads.questions.attributes import shown_value
from svc.store.reads.questions.question_hours import HOUR, hours_of
from svc.store.reads.questions.questions import Question, field_of
from svc.store.reads.search import PLAN_ONCE, Stretch
from svc.store.reads.traces.trace_filter import TraceFilter, held_by_spans, on_one_span
from svc.store.reads.traces.trace_search import FIRST_STRETCHES, Lead, Search, followed


async def hours_holding(
    database: Database, project_id: int, asked: TraceFilter, until_s: float
) -> list[Stretch] | None:
    """The hours in which spans began that have all that one span must have; None where columns do not know.

    Raises `Outage`, also when it is later than `until_s` on Trio's clock.
    """
    filled = await hours_of(database, _questions(project_id, asked), until_s)
    if filled is None:
        return None
    # What begins in the future counts as of the newest hour.
    newest = max(filled.hours, default=filled.first)
    near = [Stretch.began(hour, None if hour == newest else hour + HOUR) for hour in filled.hours]
    return [*near, Stretch.began(None, filled.first)] if filled.earlier else near


def _questions(project_id: int, asked: TraceFilter) -> list[Question]:
    """How many spans have it all, as columns can be asked: a model is in either of two fields."""
    either = [
        [(field_of(SPANS, name), shown_value(value) if is_attribute else value) for name in fields]
        for fields, value, is_attribute in held_by_spans(asked)
    ]
    low = None if asked.low is None else hour_of(asked.low)
    return [
        Question(project_id, SPANS, low, None, filters, time_column="started_at")
        for filters in product(*either)
    ]


async def traces_of_hours(
    connection: Connection, search: Search, hours: Sequence[Stretch] | None
) -> list[Any]:
    """The rows of the page by the spans of these hours; by walking where they are unknown or too many."""
    await connection.execute(PLAN_ONCE)
    if hours is not None:
        condition, values = on_one_span(search.held, 6)
        page = await followed(connection, search, Lead(condition, values, hours, FIRST_STRETCHES))
        if page is not None:
            return page.rows
    return await walked(connection, search)


async def walked(connection: Connection, search: Search) -> list[Any]:
    """The rows of the page, of all traces down the index on started_at."""
    return await connection.fetch(
        f"select {search.columns} from trace t where {search.where()} order by {search.order}"
        f" limit ${len(search.values) + 1}",
        *search.values,
        search.size,
    )
