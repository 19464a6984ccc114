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


def silent(params: SilentParams, services: Mapping[str, Heard], now: datetime) -> dict[str, datetime]:
    """Services that are silent now, and since when."""
    return {
        name: service.last_at
        for name, service in services.items()
        if now - service.last_at >= timedelta(hours=params.hours)
        and _daily(params, service, service.last_at.date())
    }


def _daily(params: SilentParams, service: Heard, until: date) -> bool:
    return all(until - timedelta(days=back) in service.days for back in range(params.days))


def silences(
    params: SilentParams, services: Mapping[str, Heard], since: datetime, now: datetime
) -> list[datetime]:
    """When services would have been told silent, by whole days but for the last time each was heard."""
    moments = []
    for service in services.values():
        for day in sorted(service.days):
            end = datetime.combine(day + timedelta(days=1), time(), UTC)
            last_at = service.last_at if day == service.last_at.date() else end
            moment = last_at + timedelta(hours=params.hours)
            next_day_sent = min((next_day for next_day in service.days if next_day > day), default=None)
            return_at = None if next_day_sent is None else datetime.combine(next_day_sent, time(), UTC)
            if (
                _daily(params, service, day)
                and since <= moment <= now
                and (return_at is None or return_at > moment)
            ):
                moments.append(moment)
    return sorted(moments)
