"""Hours and days as everything here is counted: those of UTC.

Owns `hour_of`, `day_of`, `after`, `gaps`, and the moments before everything. The stores, the queries and the
retention terms call them. Never reads the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

#: Where Unix time begins; no span is older.
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The first moment there is: where a range without a beginning begins.
BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)
#: Years, both included, of what people name: beyond them a day has no room for the days beside it.
YEARS: Final = (EPOCH.year, 9900)


def hour_of(moment: datetime) -> datetime:
    """The beginning of the hour that an aware moment lies in."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def day_of(moment: datetime) -> datetime:
    """The midnight that begins the day of an aware moment."""
    # Asked for every span that is read; nearly all moments are of UTC already.
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    number = moment.toordinal()
    if (midnight := _midnights.get(number)) is None:
        if len(_midnights) >= _MIDNIGHTS_BOUND:
            _midnights.clear()
        midnight = _midnights[number] = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return midnight


#: By the number of their day: to look one up takes a third of making it.
_midnights: dict[int, datetime] = {}
_MIDNIGHTS_BOUND: Final = 1024


def after(moment: datetime, step: timedelta) -> datetime:
    """A moment later, but never beyond the last one there is: ranges and cursors may name it."""
    latest = datetime.max.replace(tzinfo=UTC)
    return latest if moment > latest - step else moment + step


def gaps(
    covered: Sequence[tuple[datetime, datetime]], low: datetime, high: datetime
) -> list[tuple[datetime, datetime]]:
    """The stretches of a half-open range beside these, which are in order, each as long as it can be."""
    stretches: list[tuple[datetime, datetime]] = []
    since = low
    for first, end in covered:
        if first > since:
            stretches.append((since, first))
        since = end
    return [*stretches, (since, high)] if since < high else stretches
