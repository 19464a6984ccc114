"""How long data is kept: terms in days, and the moments before which data has expired.

A term counts whole UTC days, so that a day's partition expires at once. Payloads go one day ahead of their
spans (spec, "Semantics that must hold"); with a term of one day both go together, because a payload must
outlive the midnight after it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import attrs

from svc.domain.calendar import day_of


@attrs.frozen
class Terms:
    """Days that traces and detections are kept; 0 keeps them for ever."""

    traces: int
    detections: int


@attrs.frozen
class Override:
    """What a project sets in place of the install's terms; None leaves the install's."""

    traces: int | None = None
    detections: int | None = None

    def over(self, defaults: Terms) -> Terms:
        """The terms in effect."""
        return Terms(
            defaults.traces if self.traces is None else self.traces,
            defaults.detections if self.detections is None else self.detections,
        )


@attrs.frozen
class RetentionRule:
    """Traces with a span that has this value of an attribute field are kept for so many days only."""

    field: str
    value: str
    days: int


@attrs.frozen
class Cutoffs:
    """Midnights before which data has expired; None where it never does. `payloads` is never earlier."""

    traces: datetime | None
    payloads: datetime | None
    detections: datetime | None


def payload_days(terms: Terms) -> int:
    """How many days what spans said is kept; 0 keeps it for ever."""
    return max(terms.traces - 1, 1) if terms.traces else 0


def cutoffs(terms: Terms, now: datetime) -> Cutoffs:
    """The cutoffs of these terms at this moment."""
    return Cutoffs(
        traces=_before(terms.traces, now),
        payloads=_before(payload_days(terms), now),
        detections=_before(terms.detections, now),
    )


def _before(days: int, now: datetime) -> datetime | None:
    if not days:
        return None
    try:
        return day_of(now) - timedelta(days=days)
    except OverflowError:
        # A term that reaches behind the calendar.
        return None
