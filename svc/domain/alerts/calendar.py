"""When rules look: a digest at its hour, in UTC, anything else at once."""

from __future__ import annotations

from datetime import datetime, timedelta

from protocol.alerts import TOLD_KINDS, RuleKind
from svc.domain.alerts.params import DigestParams, RuleParams


def next_digest(params: DigestParams, after: datetime) -> datetime:
    """The first moment behind this one at which a digest is made."""
    hour, minute = (int(part) for part in params.at.split(":"))
    due = after.replace(hour=hour, minute=minute, second=0, microsecond=0)
    step = timedelta(days=1)
    while due <= after or (params.every == "week" and due.weekday() != params.weekday):
        due += step
    return due


def first_look(kind: RuleKind, params: RuleParams, now: datetime) -> datetime | None:
    """When a rule checks first; None for one that an event notifies."""
    if kind in TOLD_KINDS:
        return None
    return next_digest(params, now) if isinstance(params, DigestParams) else now


def period_of(params: DigestParams) -> timedelta:
    """What one digest looks back on."""
    return timedelta(days=1 if params.every == "day" else 7)


def digests_since(params: DigestParams, since: datetime, until: datetime) -> list[datetime]:
    """When digests were due from then on, ascending."""
    moments: list[datetime] = []
    due = next_digest(params, since)
    while due <= until:
        moments.append(due)
        due = next_digest(params, due)
    return moments
