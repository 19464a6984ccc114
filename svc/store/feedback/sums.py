"""What each name of feedback says over a range, from sums by hour and by day.

Reads `feedback_sum`, and of `feedback_change` what is not in there yet: `svc.store.aggregates.feedback_sums`.
Called by pages and REST. Bounded: a question reads one row for each name, category and day, and those of two
days by hour, however many entries there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from svc.domain.calendar import after, day_of, hour_of
from svc.domain.feedback.entries import MOST_NAMES, WATCHED_CATEGORIES, Better, guessed_better
from svc.domain.rca.statistics import wilson
from svc.store.postgres.database import READ_TIMEOUT_S, Database

#: Categories of one name that an answer tells apart, the commonest.
MOST_CATEGORIES: Final = 20
#: Standard errors on either side of a mean within which the true one lies 95 times in a hundred.
_Z95: Final = 1.959964
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
_TICK: Final = timedelta(microseconds=1)
#: Where a range without an end begins and ends.
_BEGINNING: Final = datetime(1, 1, 2, tzinfo=UTC)
_END: Final = datetime(9999, 12, 31, tzinfo=UTC)

# The whole days of a range, and the hours before and behind them, of what is folded and of what is not.
_ROWS: Final = """
    select name, category, entries, numbers, total, squares from feedback_sum
    where project_id = $1 and grain = 'day' and started_at >= $3 and started_at < $4
    union all
    select name, category, entries, numbers, total, squares from feedback_sum
    where project_id = $1 and grain = 'hour' and started_at >= $2 and started_at < $3
    union all
    select name, category, entries, numbers, total, squares from feedback_sum
    where project_id = $1 and grain = 'hour' and started_at >= $4 and started_at < $5
    union all
    select name, category, entries, numbers, total, squares from feedback_change
    where project_id = $1 and (grain = 'day' and started_at >= $3 and started_at < $4
    or grain = 'hour' and (started_at >= $2 and started_at < $3 or started_at >= $4 and started_at < $5))
"""

# What each name says: its entries, its numbers with their spread, and its commonest categories.
_SUMS: Final = f"""
with given as materialized (
    select name, category, sum(entries)::bigint as entries, sum(numbers)::bigint as numbers,
        sum(total) as total, sum(squares) as squares from ({_ROWS}) given_rows group by 1, 2
)
select n.name, n.low, n.high, n.better, n.categories[:{WATCHED_CATEGORIES}] as watched, n.bad,
    coalesce(s.entries, 0) as entries, coalesce(s.numbers, 0) as numbers,
    s.total / nullif(s.numbers, 0) as mean,
    case when s.numbers > 1
        then sqrt(greatest(s.squares - s.total ^ 2 / s.numbers, 0) / (s.numbers - 1)) end as spread,
    c.categories, c.counts
from feedback_name n
left join (
    select name, sum(entries)::bigint as entries, sum(numbers)::bigint as numbers, sum(total) as total,
        sum(squares) as squares from given group by 1
) s on s.name = n.name
left join lateral (
    select array_agg(category order by entries desc, category) as categories,
        array_agg(entries order by entries desc, category) as counts from (
        select category, entries from given g
        where g.name = n.name and g.entries > 0 and g.category not in ('', ' ')
        order by entries desc, category limit {MOST_CATEGORIES}
    ) of_name
) c on s.entries is not null
where n.project_id = $1 order by coalesce(s.entries, 0) desc, n.name limit {MOST_NAMES}
"""

# The mean of a name's numbers day by day.
_BY_DAY: Final = """
select name, started_at as day, sum(total) / sum(numbers) as mean from (
    select name, started_at, numbers, total from feedback_sum
    where project_id = $1 and grain = 'day' and started_at >= $3 and name = any($2::text[])
    union all
    select name, started_at, numbers, total from feedback_change
    where project_id = $1 and grain = 'day' and started_at >= $3 and name = any($2::text[])
) given group by 1, 2 having sum(numbers) > 0 order by 1, 2
"""


@attrs.frozen
class NameSums:
    """What a name says over a range; `low` and `high` bound all of its numbers so far."""

    name: str
    entries: int
    numbers: int
    mean: float | None
    spread: float | None
    low: float | None
    high: float | None
    better: Better
    is_set: bool
    categories: Mapping[str, int]
    #: Of a name without numbers the categories that detectors watch, and those that are bad.
    watched: Sequence[str]
    bad: Sequence[str]

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean, within the range of the numbers; None below two of them."""
        if self.mean is None or self.spread is None or self.low is None or self.high is None:
            return None
        variance = self.spread * self.spread * (self.numbers - 1) / self.numbers
        if (
            self.low >= 0
            and self.high <= 1
            and math.isclose(variance, self.mean * (1 - self.mean), abs_tol=1e-9)
        ):
            # Every number is 0 or 1, and four of four are not certain to be all.
            return wilson(round(self.mean * self.numbers), self.numbers)
        reach = _Z95 * self.spread / math.sqrt(self.numbers)
        return max(self.low, self.mean - reach), min(self.high, self.mean + reach)


@attrs.define(eq=False)
class FeedbackSums:
    """Raises `Outage`."""

    database: Database

    async def names(
        self, project_id: int, low: datetime | None = None, high: datetime | None = None
    ) -> list[NameSums]:
        """All names of the project, those with most entries in the range first. The range is widened to whole
        hours of UTC.
        """
        rows = await self.database.fetch(_SUMS, project_id, *_bounds(low, high), timeout_s=READ_TIMEOUT_S)
        return [
            NameSums(
                name=row["name"],
                entries=row["entries"],
                numbers=row["numbers"],
                mean=None if row["mean"] is None else float(row["mean"]),
                spread=None if row["spread"] is None else float(row["spread"]),
                low=row["low"],
                high=row["high"],
                better=row["better"] or guessed_better(row["name"]),
                is_set=row["better"] is not None,
                categories=dict(zip(row["categories"] or (), row["counts"] or (), strict=True)),
                watched=row["watched"] if row["low"] is None else (),
                bad=row["bad"],
            )
            for row in rows
        ]

    async def by_day(
        self, project_id: int, names: Sequence[str], low: datetime
    ) -> dict[str, list[tuple[datetime, float]]]:
        """The mean of each name's numbers on each day, in UTC, that has one: the day of `low` and later."""
        rows = await self.database.fetch(
            _BY_DAY, project_id, list(names), day_of(low), timeout_s=READ_TIMEOUT_S
        )
        days: dict[str, list[tuple[datetime, float]]] = {}
        for row in rows:
            days.setdefault(row["name"], []).append((row["day"], float(row["mean"])))
        return days


def _bounds(low: datetime | None, high: datetime | None) -> tuple[datetime, datetime, datetime, datetime]:
    """The first hour of a range, the bounds of its whole days, and the end of its last hour."""
    first = _BEGINNING if low is None else hour_of(low)
    end = _END if high is None else hour_of(after(high, _HOUR - _TICK))
    first_day, end_day = day_of(after(first, _DAY - _TICK)), day_of(end)
    if first_day > end_day:
        first_day = end_day = end
    return first, first_day, end_day, end
