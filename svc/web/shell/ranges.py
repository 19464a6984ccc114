"""The range of time that a page is about: relative to now, or two instants. Pure; written in the address."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Final

import attrs

from protocol.refusals import INVALID_RANGE, Refused
from protocol.rest.query import instant, timestamp
from svc.web.shell import words

#: By their name in the address: how long, and how they are called.
PRESETS: Final[dict[str, tuple[timedelta | None, str]]] = {
    "15m": (timedelta(minutes=15), "15 minutes"),
    "1h": (timedelta(hours=1), "hour"),
    "6h": (timedelta(hours=6), "6 hours"),
    "24h": (timedelta(hours=24), "24 hours"),
    "7d": (timedelta(days=7), "7 days"),
    "30d": (timedelta(days=30), "30 days"),
    "90d": (timedelta(days=90), "90 days"),
    "all": (None, ""),
}
DEFAULT: Final = "24h"

_WIDTHS_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 2 * 86_400, 7 * 86_400, 28 * 86_400),
)
_BARS: Final = 72


@attrs.frozen
class TimeRange:
    """What the address says. `low` is None for all there is, `high` is None up to now."""

    preset: str | None
    low: datetime | None
    high: datetime | None
    now: datetime

    @classmethod
    def of(cls, query: Mapping[str, str], now: datetime, *, default: str = DEFAULT) -> TimeRange:
        """The range of an address. Raises `Refused` when it cannot be read."""
        low, high = query.get("from"), query.get("to")
        if low or high:
            first = instant(low, "from") if low else None
            end = instant(high, "to") if high else None
            if first is not None and end is not None and first > end:
                raise Refused(INVALID_RANGE.saying("the range ends before it begins"))
            return cls(None, first, end, now)
        preset = query.get("range", default)
        length = PRESETS.get(preset)
        if length is None:
            raise Refused(INVALID_RANGE.saying(f"range is one of {', '.join(PRESETS)}"))
        return cls(preset, None if length[0] is None else now - length[0], None, now)

    @property
    def parameters(self) -> dict[str, str]:
        """How it stands in an address, as it was asked for."""
        if self.preset is not None:
            return {} if self.preset == DEFAULT else {"range": self.preset}
        return self.instants

    @property
    def instants(self) -> dict[str, str]:
        """How it stands in an address that is kept or paged: two instants."""
        parameters = {} if self.low is None else {"from": timestamp(self.low)}
        parameters["to"] = timestamp(self.high or self.now)
        return parameters

    def said(self, zone: tzinfo) -> str:
        """In a sentence: "in the last 24 hours", "since 14 Nov 09:00"."""
        if self.preset == "all":
            return "in all"
        if self.preset is not None:
            return f"in the last {PRESETS[self.preset][1]}"
        if self.low is not None and self.high is not None:
            return f"from {' to '.join(self._bounds_text(self.low, self.high, zone))}"
        if self.low is not None:
            return f"since {words.minute(self.low, zone, self.now)}"
        assert self.high is not None, "one of the bounds is given"
        return f"until {words.minute(self.high, zone, self.now)}"

    def _bounds_text(self, low: datetime, high: datetime, zone: tzinfo) -> list[str]:
        """Both moments. Of two days both are named, today too: a time alone would read as the first day."""
        if low.astimezone(zone).date() == high.astimezone(zone).date():
            return [words.minute(bound, zone, self.now) for bound in (low, high)]
        return [words.dated_minute(bound, zone, self.now) for bound in (low, high)]

    def label(self, zone: tzinfo) -> str:
        """On a button: "Last 24 hours"."""
        sentence = self.said(zone).removeprefix("in the ")
        return "All time" if self.preset == "all" else sentence[0].upper() + sentence[1:]


def bar_width(low: datetime, high: datetime) -> timedelta:
    """How wide the bars of a drawing over this range are: a round time, at most 72 of them."""
    whole_s = max(1.0, (high - low).total_seconds())
    return timedelta(seconds=next((width for width in _WIDTHS_S if whole_s / width <= _BARS), _WIDTHS_S[-1]))
