"""What a project's terms of retention come to: what it holds, what a shorter term frees, how large it gets.

Called by the page of the project. Bytes are shares of what lies on disk by the number of spans, and said to
be about so many.
"""

from __future__ import annotations

from datetime import datetime

import attrs

from svc.domain.calendar import day_of
from svc.domain.retention.terms import Terms, cutoffs
from svc.store.retention.disk import DiskReads, HeldTraces
from svc.web.shell.page import Visit


@attrs.frozen
class Frees:
    """What a term lets go at its first sweep: what began before a moment."""

    before: datetime
    held: HeldTraces
    bytes: int


@attrs.frozen
class RetentionForecast:
    """How much comes in on a day, what that comes to within the term, and when the disk is full."""

    a_day: HeldTraces
    bytes_a_day: int
    #: None: nothing is ever deleted.
    settles_bytes: int | None
    free_bytes: int | None

    @property
    def full_in_days(self) -> int | None:
        """Days until the disk is full; None when it never is, or when that cannot be told."""
        if self.free_bytes is None or not self.bytes_a_day:
            return None
        days = self.free_bytes // self.bytes_a_day
        return None if self.settles_bytes is not None and self.settles_bytes <= self.free_bytes else days


async def forecast_of(visit: Visit, terms: Terms) -> RetentionForecast:
    """The forecast under these terms."""
    reads = DiskReads(visit.means.questions)
    disk = await reads.now()
    a_day = await reads.a_day(visit.project.id, day_of(visit.means.now()))
    bytes_a_day = round(a_day.spans * (disk.bytes_per_span or 0.0))
    settles = bytes_a_day * terms.traces if terms.traces else None
    return RetentionForecast(a_day, bytes_a_day, settles, visit.process_view.process.disk_free())


async def frees(visit: Visit, terms: Terms) -> Frees | None:
    """What these terms let go of the project's traces; None when they keep all for ever."""
    cutoff = cutoffs(terms, visit.means.now()).traces
    if cutoff is None:
        return None
    reads = DiskReads(visit.means.questions)
    usage = await reads.before(visit.project.id, cutoff)
    disk = await reads.now()
    return Frees(cutoff, usage, round(usage.spans * (disk.bytes_per_span or 0.0)))
