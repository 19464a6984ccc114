"""When a digest is due, in UTC."""

from __future__ import annotations

from datetime import datetime, timedelta

from svc.domain.alerts.params import DigestParams


def next_digest(params: DigestParams, after: datetime) -> datetime:
    """The first moment behind this one at which a digest is made."""
    hour, minute = (int(part) for part in params.at.split(":"))
    due = after.replace(hour=hour, minute=minute, second=0, microsecond=0)
    step = timedelta(days=1)
    while due <= after or (params.every == "week" and due.weekday() != params.weekday):
        due += step
    return due


def period_of(params: DigestParams) -> timedelta:
    """What one digest looks back on."""
    return timedelta(days=1 if params.every == "day" else 7)


def digests_since(params: DigestParams, since: datetime, until: datetime) -> list[datetime]:
    """When digests were due from then on, ascending."""
    found: list[datetime] = []
    due = next_digest(params, since)
    while due <= until:
        found.append(due)
        due = next_digest(params, due)
    return found
