"""What the address of the list of traces asks for, its columns, and its histogram as it is drawn. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from protocol.rest.query import timestamp
from svc.store.reads.traces.trace_drawing import TraceHistogram
from svc.web.shell.filters import Filters, read_filters
from svc.web.shell.page import Visit
from svc.web.shell.ranges import TimeRange
from svc.web.shell.render import query


@attrs.frozen
class ListColumn:
    """A column that one can have; the template knows what its cells hold."""

    name: str
    heading: str
    classes: str
    #: Whether a list that nobody has chosen columns for has it.
    usual: bool = True


#: In their order; when it started always comes first.
COLUMNS: Final = {
    column.name: column
    for column in (
        ListColumn("name", "Name", "w-name"),
        ListColumn("asked", "Input", "w-text"),
        ListColumn("answered", "Output", "w-text", usual=False),
        ListColumn("site", "Call site", "w-name", usual=False),
        ListColumn("session", "Session", "w-id", usual=False),
        ListColumn("user", "User", "w-id", usual=False),
        ListColumn("took", "Duration", "num w-num"),
        ListColumn("tokens", "Tokens", "num w-num also"),
        ListColumn("cost", "Cost", "num w-num also"),
        ListColumn("spans", "Spans", "num w-few also"),
        ListColumn("agents", "Agents", "w-name", usual=False),
        ListColumn("feedback", "Feedback", "w-name", usual=False),
        ListColumn("errors", "Failed", "num w-few also", usual=False),
    )
}
USUAL: Final = tuple(name for name, column in COLUMNS.items() if column.usual)


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """Those of these names that are columns, in the order of the table; the usual ones when none is."""
    return tuple(name for name in COLUMNS if name in names) or USUAL


@attrs.frozen
class Asking:
    """What the address asks for."""

    filters: Filters
    range: TimeRange
    base: str

    @classmethod
    def of(cls, visit: Visit, given: Mapping[str, str] | None = None) -> Asking:
        """From the address, or from a form's fields. Raises `Refused` for a range that cannot be read."""
        parameters = visit.query if given is None else given
        range_ = TimeRange.of(parameters, visit.means.now())
        return cls(read_filters(parameters.get("q", "")), range_, visit.base)

    def address(self, q: str | None = None, *, kept: bool = False, **more: Any) -> str:
        """The address of this list with another bar, or more; `kept`: its range as two instants."""
        range_ = self.range.instants if kept else self.range.parameters
        return query(f"{self.base}/traces", q=str(self.filters) if q is None else q, **range_, **more)

    @property
    def saved(self) -> str:
        """What a saved view keeps: what stands behind the question mark."""
        return self.address().partition("?")[2]

    def ranged(self, low: datetime, high: datetime) -> str:
        """The address over another range."""
        instants = {"from": timestamp(low), "to": timestamp(high)}
        return query(f"{self.base}/traces", q=str(self.filters), **instants)

    def around(self, at: datetime) -> str:
        """The address over the half hour around an instant."""
        return self.ranged(at - timedelta(minutes=15), at + timedelta(minutes=15))

    def preset(self, name: str) -> str:
        """The address over a range that is relative to now."""
        return query(f"{self.base}/traces", q=str(self.filters), range=name)

    def part(self, name: str) -> str:
        """The address of a fragment of this list."""
        return query(f"{self.base}/traces/{name}", q=str(self.filters), **self.range.instants)

    @property
    def facets(self) -> str:
        """The address of the values to narrow by, with links to the range as it was asked for."""
        return query(self.part("facets"), given=self.range.preset)


@attrs.frozen
class Bar:
    """One bar of the drawing, in parts of the whole: place, width, height, and the failed part of it."""

    x: float
    width: float
    height: float
    failed: float
    start: datetime
    end: datetime
    count: int
    failures: int
    address: str


@attrs.frozen
class Bars:
    """The drawing: its bars, its ends, how long one bar is, and since when traces are counted, if not all."""

    bars: list[Bar]
    low: datetime
    high: datetime
    width: timedelta
    since: datetime | None
    #: The part of the whole that is not counted.
    uncounted: float


def drawn(
    asking: Asking, drawing: TraceHistogram | None, over: tuple[datetime, datetime] | None
) -> Bars | None:
    """A histogram over a stretch of time, drawn; None without one, or of nothing where all is counted."""
    if drawing is None or over is None or not (drawing.buckets or drawing.since):
        return None
    low, high = over
    width, since = drawing.width, drawing.since
    if asking.range.low is None and drawing.buckets:
        low = min(low, drawing.buckets[0].start)
        high = max(high, drawing.buckets[-1].start + width)
    whole_s = max((high - low).total_seconds(), width.total_seconds())
    most = max((bucket.count for bucket in drawing.buckets), default=1)
    bars = []
    for bucket in drawing.buckets:
        start, end = max(bucket.start, low, since or low), min(bucket.start + width, high)
        height = bucket.count / most
        bars.append(
            Bar(
                (start - low).total_seconds() / whole_s,
                max((end - start).total_seconds() / whole_s, 0.002),
                height,
                height * bucket.failed / bucket.count,
                start,
                end,
                bucket.count,
                bucket.failed,
                asking.ranged(start, end),
            )
        )
    uncounted = 0.0 if since is None else min(max((since - low).total_seconds() / whole_s, 0.0), 1.0)
    return Bars(bars, low, high, width, since, uncounted)
