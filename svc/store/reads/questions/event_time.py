"""Pages of rows in the order of when they happened, walked from the newest back.

Called by `svc.store.reads.questions.query` and `svc.store.reads.traces.spans`. Rows are partitioned by the
day of `started_at`; within a day they have only an index of which pages may hold a stretch of time. So a page
looks into seconds where traces come by the second, into minutes, then into what is left of that day, then
into one day, two, four and so on, until it is full: each stretch is read once at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs

from svc.domain.calendar import BEGINNING, after, day_of
from svc.store.postgres.database import Connection
from svc.store.reads.search import Page

_DAY: Final = timedelta(days=1)
_STEP: Final = timedelta(microseconds=1)
#: What is looked into before the rest of its day, which may hold millions: with 1.7 million a day Explore,
#: which lists the newest, took 301 ms and takes 85 (measured November 2026).
_FIRST: Final = (timedelta(minutes=10), timedelta(minutes=90))
_END: Final = datetime(9999, 12, 31, tzinfo=UTC)

#: What time it is, when the first trace of a project began, and when so many of the last before a moment had,
#: by their index: their spans fill a page.
_SPAN_OF_TIME: Final = """
select now() as now,
    (select started_at from trace where project_id = $1 order by started_at limit 1) as oldest,
    (select started_at from trace where project_id = $1 and started_at < least($2, now())
    order by started_at desc limit 1 offset $3) as recent
"""


async def newest_started(
    connection: Connection,
    project_id: int,
    page: Page,
    low: datetime | None,
    high: datetime | None,
    behind: datetime | None,
    around: Callable[[str], str] = str,
) -> list[Any]:
    """The rows of a page whose clause and order are on `started_at`, newest first. Wants one snapshot.

    `low` and `high` bound the half-open range, `behind` is the time of the row that the page begins behind,
    `around` makes the statement of the page's SQL.
    """
    # Rows of one instant lie on both sides of a page's border, so that instant is looked into again.
    top = _END if high is None else high
    if behind is not None:
        top = min(top, after(behind, _STEP))
    row = await connection.fetchrow(_SPAN_OF_TIME, project_id, top, page.size)
    assert row is not None
    rows: list[Any] = []
    now, oldest = row["now"], row["oldest"] or top
    for since, until in day_stretches(low or BEGINNING, top, oldest, now, row["recent"]):
        start, end = f"${len(page.values) + 1}", f"${len(page.values) + 2}"
        stretch = attrs.evolve(
            page,
            where=f"{page.where} and started_at >= {start} and started_at < {end}",
            values=[*page.values, since, until],
            size=page.size - len(rows),
        )
        rows += await connection.fetch(around(stretch.sql()), *stretch.values, stretch.size)
        if len(rows) >= page.size:
            break
    return rows


def day_stretches(
    low: datetime, high: datetime, oldest: datetime, now: datetime, recent: datetime | None = None
) -> Iterator[tuple[datetime, datetime]]:
    """The half-open range in stretches, newest first: what lies after now, then what does after `recent`,
    then minutes, then what is left of that day, then days, each time twice as many as before. What lies
    before `oldest` is part of the last.
    """
    until, since, days = high, now, 1
    steps = list(_FIRST)
    if recent is not None and recent < (newest := min(high, now)) < recent + _FIRST[0]:
        steps.insert(0, newest - recent)
    lengths = iter(steps)
    while until > low:
        if since >= until:
            midnight, length = day_of(_before(until, _STEP)), next(lengths, None)
            if length is None:
                since = _before(midnight, (days - 1) * _DAY)
                days *= 2
            else:
                since = max(midnight, _before(until, length))
        since = low if since <= oldest else max(low, since)
        yield since, until
        until = since


def _before(moment: datetime, step: timedelta) -> datetime:
    return moment - step if moment > BEGINNING + step else BEGINNING
