"""Services that spoke daily and have fallen silent, by the days on which each was heard."""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import UTC, date, datetime, time, timedelta

import attrs

from svc.domain.alerts.params import SilentParams


@attrs.frozen
class Heard:
    """The days on which a service sent something, and when it did last."""

    days: Set[date]
    last_at: datetime


def silent(params: SilentParams, heard: Mapping[str, Heard], now: datetime) -> dict[str, datetime]:
    """Services that are silent now, and since when."""
    return {
        name: one.last_at
        for name, one in heard.items()
        if now - one.last_at >= timedelta(hours=params.hours) and _daily(params, one, one.last_at.date())
    }


def _daily(params: SilentParams, one: Heard, until: date) -> bool:
    return all(until - timedelta(days=back) in one.days for back in range(params.days))


def silences(
    params: SilentParams, heard: Mapping[str, Heard], since: datetime, now: datetime
) -> list[datetime]:
    """When services would have been told silent, by whole days but for the last time each was heard."""
    found = []
    for one in heard.values():
        for day in sorted(one.days):
            end = datetime.combine(day + timedelta(days=1), time(), UTC)
            last_at = one.last_at if day == one.last_at.date() else end
            at = last_at + timedelta(hours=params.hours)
            later = min((other for other in one.days if other > day), default=None)
            back = None if later is None else datetime.combine(later, time(), UTC)
            if _daily(params, one, day) and since <= at <= now and (back is None or back > at):
                found.append(at)
    return sorted(found)
