"""The disk budget: how full it is, when it will be, and what goes first when it is.

Pure rules over sizes by day. Oldest payloads go first, down to a week ago, then whole days, and never today;
what open findings cite is the store's to keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import Final, Literal

import attrs

#: Shares of the budget from which on people are notified, and days are dropped.
TELL_SHARE: Final = 0.85
DROP_SHARE: Final = 0.95
#: The newest days whose payloads go only with the day itself.
PAYLOAD_DAYS: Final = 7
#: Whole days that growth is measured over.
GROWTH_DAYS: Final = 7
#: A budget below so many times `max_wal_size` could be filled by the log alone.
LEAST_WALS: Final = 4

PAYLOADS: Final = ("span_message", "span_payload")
#: In the order in which a day goes.
WHOLE: Final = (*PAYLOADS, "tool_call", "span")

Level = Literal["ok", "tell", "drop", "full"]


@attrs.frozen
class DayBytes:
    """What one day takes: the tables of payloads, and the others that are kept by the day."""

    day: date
    payloads: int
    rest: int

    @property
    def total(self) -> int:
        return self.payloads + self.rest


@attrs.frozen
class DiskUse:
    """What is measured: bytes of the database, its log, the spool, and by table and day."""

    database: int
    wal: int
    spool: int
    tables: tuple[tuple[str, int], ...]
    days: tuple[DayBytes, ...]

    @property
    def total(self) -> int:
        """What counts for the budget."""
        return self.database + self.wal + self.spool


@attrs.frozen
class DropStep:
    """A day and the tables of which it goes."""

    day: date
    tables: tuple[str, ...]

    @property
    def what(self) -> str:
        return "payloads" if self.tables == PAYLOADS else "day"


@attrs.frozen
class Forecast:
    """How much a day adds, and on which day the budget is reached; None: not with these terms."""

    bytes_a_day: int
    reached_on: date | None


def level_of(used: int, budget: int, *, droppable: bool = True) -> Level:
    """How full it is. `full` is where nothing is left to drop."""
    if used >= budget and not droppable:
        return "full"
    if used >= budget * DROP_SHARE:
        return "drop"
    return "tell" if used >= budget * TELL_SHARE else "ok"


def drop_steps(days: Sequence[DayBytes], today: date) -> Iterator[DropStep]:
    """What may go, in its order."""
    oldest_first = sorted((usage for usage in days if usage.day < today), key=lambda usage: usage.day)
    for usage in oldest_first:
        if usage.day <= today - timedelta(days=PAYLOAD_DAYS) and usage.payloads:
            yield DropStep(usage.day, PAYLOADS)
    for usage in oldest_first:
        yield DropStep(usage.day, WHOLE)


def forecast(use: DiskUse, budget: int, today: date, term_days: int) -> Forecast:
    """By the whole days of the last week. `term_days` is how long traces are kept, 0 for ever.

    Days that expire make room for those that come, so that within the term the use levels off.
    """
    recent = [usage.total for usage in use.days if today - timedelta(days=GROWTH_DAYS) <= usage.day < today]
    growth = sum(recent) // len(recent) if recent else 0
    if not growth or not budget:
        return Forecast(growth, None)
    left_days = max(0, budget - use.total) // growth
    oldest = min((usage.day for usage in use.days if usage.total), default=today)
    if term_days and left_days > max(0, term_days - (today - oldest).days):
        return Forecast(growth, None)
    try:
        return Forecast(growth, today + timedelta(days=left_days))
    except OverflowError:
        return Forecast(growth, None)
