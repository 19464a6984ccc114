"""The buckets of a timeseries: minutes, hours, days, weeks from Monday and months, all in UTC. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from protocol.refusals import INVALID_RANGE, Refused
from svc.domain.calendar import day_of, hour_of

#: Those that whole hours add up to.
CALENDAR_INTERVALS: Final = ("hour", "day", "week", "month")
INTERVALS: Final = ("minute", *CALENDAR_INTERVALS)
_STEPS: Final = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
MAX_BUCKETS: Final = 10_000


def bucket_starts(low: datetime, high: datetime, interval: str) -> list[datetime]:
    """The buckets that a half-open range touches, by their beginnings. Raises `Refused` for too many."""
    starts: list[datetime] = []
    start = _truncate(low, interval) if low < high else high
    while start < high:
        if len(starts) == MAX_BUCKETS:
            raise Refused(
                INVALID_RANGE.saying(
                    f"the range holds more than {MAX_BUCKETS} buckets of one {interval}; narrow it, or ask"
                    " for a longer interval"
                )
            )
        starts.append(start)
        try:
            start = bucket_end(start, interval)
        except OverflowError:
            break
    return starts


def _truncate(moment: datetime, interval: str) -> datetime:
    if interval == "minute":
        return moment.replace(second=0, microsecond=0)
    if interval == "hour":
        return hour_of(moment)
    day = day_of(moment)
    if interval == "day":
        return day
    if interval == "week":
        # The first week of the calendar begins before it does.
        return day - timedelta(days=day.weekday()) if day.year > 1 or day.day > 7 else day
    return day.replace(day=1)


def bucket_end(start: datetime, interval: str) -> datetime:
    """Where the next bucket begins."""
    if interval == "month":
        return (start + timedelta(days=32)).replace(day=1)
    return start + _STEPS[interval]
