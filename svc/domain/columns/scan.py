"""What is asked of spans by column: the question, and the columns of one segment that it needs.

`svc.store.reads.questions.columns.answers` makes both, `scanning` works out the answer. Never needs numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from svc.domain.columns.encoding import (
    ARRIVED,
    BEGAN,
    COST,
    COST_REST,
    COUNTED,
    DURATION,
    PRICED,
    SELECTIONS,
    TOKENS,
    TRACE,
    UNPRICED,
    PackedColumn,
)
from svc.domain.queries.measures import MeasureName

#: The column whose values a measure counts once each.
DISTINCT: Final[Mapping[MeasureName, str]] = {"traces": TRACE, "sessions": "session_id", "users": "user_id"}

#: Measures that add up from sums.
SUMMED: Final[frozenset[MeasureName]] = frozenset({"count", "errors", "error_rate", "cost", "tokens"})
DURATIONS: Final[frozenset[MeasureName]] = frozenset({"duration_p50", "duration_p95", "duration_p99"})
_COST: Final = (COST, COST_REST, UNPRICED)
#: The columns of each measure that has any.
_READ: Final[Mapping[MeasureName, Sequence[str]]] = {
    **{name: (column,) for name, column in DISTINCT.items()},
    **dict.fromkeys(DURATIONS, (DURATION,)),
    "errors": ("status",),
    "error_rate": ("status",),
    "cost": _COST,
    "tokens": TOKENS,
}
_DAY_HOURS: Final = 24


@attrs.frozen
class SegmentColumns:
    """The columns of one segment that a question needs, by name. A row of a summed one stands for many spans.

    `arrived` is its day of arrival and `began` that of event time, each by its first hour since 1970;
    `arrived_hours` are the hours of arrival in which it is right.
    """

    rows: int
    arrived: int
    began: int
    arrived_hours: Sequence[int]
    columns: Mapping[str, PackedColumn]


def read_together(measures: Sequence[MeasureName]) -> list[Sequence[MeasureName]]:
    """The measures in groups that one pass over columns answers each: sums, percentiles, distinct ids."""
    groups = [[name for name in measures if name in kind] for kind in (SUMMED, DURATIONS, DISTINCT)]
    return [group for group in groups if group]


@attrs.frozen
class Scan:
    """What is asked of segments.

    `measures` are those that `read_together` has in one group. `filters` say for each filtered column which
    of its values count. `hours` is the half-open stretch of the question's time, in hours since 1970.
    `starts` are the buckets by their first hours, in order, none for one bucket. `group` is the column that
    splits the answer, `groups_of` which groups one of its values belongs to.
    """

    measures: Sequence[MeasureName]
    by_event_time: bool
    hours: tuple[int, int]
    filters: Mapping[str, Callable[[str | None], bool]]
    starts: Sequence[int] = ()
    group: str | None = None
    groups_of: Callable[[str | None], Sequence[str | None]] = lambda value: (value,)

    @property
    def columns(self) -> list[str]:
        """The columns that are needed."""
        return self._with(self._measured(_READ))

    @property
    def summed_columns(self) -> list[str]:
        """Those of summed segments that serve as well."""
        names = self._with((COUNTED, *self._measured({**_READ, "cost": (*_COST, PRICED)})))
        return [name for name in names if name not in (ARRIVED, BEGAN)] if self.of_whole_days else names

    @property
    def levels(self) -> list[int]:
        """The places in `SELECTIONS` whose segments know the answer, in order."""
        fields = {*self.filters, *([] if self.group is None else [self.group])}
        knowing = [
            level
            for level, kept in enumerate(SELECTIONS)
            if fields <= set(kept.fields)
            and (DURATIONS if DURATION in kept.keys else SUMMED).issuperset(self.measures)
        ]
        by_hour = [level for level in knowing if ARRIVED in SELECTIONS[level].keys]
        # Hours since 1970, so that each day begins with a multiple of 24.
        by_day = all(start % _DAY_HOURS == 0 for start in self.starts)
        return by_hour or (knowing if by_day else [])

    @property
    def of_whole_days(self) -> bool:
        """Whether the sums that know the answer have no hours: they serve where all of a day is asked."""
        return any(ARRIVED not in SELECTIONS[level].keys for level in self.levels)

    def _measured(self, columns: Mapping[MeasureName, Sequence[str]]) -> list[str]:
        return [name for measure in self.measures for name in columns.get(measure, ())]

    def _with(self, measured: Sequence[str]) -> list[str]:
        names = {ARRIVED, *self.filters, *measured}
        if self.by_event_time:
            names.add(BEGAN)
        if self.group is not None:
            names.add(self.group)
        return sorted(names)
