"""What one key and one project may send: bytes a minute, spans of one trace, distinct span names a day.

Owns the counts of this process, in memory and bounded; a restart begins them anew, and each copy has its own.
`svc.front.otlp.intake` asks it for each body, in the event loop, and for each span, perhaps in a thread that
reads a large body: two threads that count at once may count one span less. It stores nothing and waits for
nobody.
"""

from __future__ import annotations

from datetime import date
from typing import Final

import attrs

from protocol.otlp.limits import Limits, QuotaUse

#: Traces of a project that are counted at once, at the least; twice as many at most. Whoever sends into more
#: than so many by turns has small ones.
COUNTED_TRACES: Final = 5_000
_MINUTE_S: Final = 60


@attrs.frozen
class QuotaSizes:
    """The quotas in force; 0 is none."""

    key_bytes_per_minute: int = 0
    trace_spans: int = 0
    names_per_day: int = 0


@attrs.define(eq=False)
class ProjectQuota:
    """The counts of one project. Called for each span that could be stored."""

    sizes: QuotaSizes
    day: date
    #: Spans by trace. What is not met again while `COUNTED_TRACES` others are is forgotten.
    traces: dict[bytes, int] = attrs.field(factory=dict)
    earlier_traces: dict[bytes, int] = attrs.field(factory=dict)
    #: Hashes of the names of this day.
    names: set[int] = attrs.field(factory=set)
    refused_spans: int = 0

    def __call__(self, trace_id: bytes, name: str) -> str | None:
        """Count a span of this trace and name; why it is refused, or None."""
        sizes, refusal = self.sizes, None
        if sizes.names_per_day and (hashed := hash(name)) not in self.names:
            if len(self.names) >= sizes.names_per_day:
                refusal = f"more than {sizes.names_per_day} span names today (SVC_QUOTA_NAMES_PER_DAY)"
            else:
                self.names.add(hashed)
        if sizes.trace_spans and refusal is None:
            traces = self.traces
            count = traces.get(trace_id)
            if count is None:
                count = self.earlier_traces.pop(trace_id, 0)
                if len(traces) >= COUNTED_TRACES:
                    self.earlier_traces, self.traces = traces, {}
            if count >= sizes.trace_spans:
                refusal = f"more than {sizes.trace_spans} spans of one trace (SVC_QUOTA_TRACE_SPANS)"
            self.traces[trace_id] = min(count + 1, sizes.trace_spans)
        if refusal is not None:
            self.refused_spans += 1
        return refusal


@attrs.define(eq=False)
class Quotas:
    """The quotas of every key and project that sends."""

    sizes: QuotaSizes = QuotaSizes()
    #: Requests refused for the bytes of their minute.
    refused_requests: int = 0
    _minute: int = 0
    _sent_bytes: dict[str, int] = attrs.field(factory=dict)
    _projects: dict[int, tuple[ProjectQuota, Limits]] = attrs.field(factory=dict)

    def sent(self, key_id: str, size_bytes: int, now_s: float) -> int | None:
        """Count a body of this key; None if it may be taken, else the seconds until it may."""
        if not self.sizes.key_bytes_per_minute:
            return None
        minute = int(now_s // _MINUTE_S)
        if minute != self._minute:
            self._minute, self._sent_bytes = minute, {}
        sent_bytes = self._sent_bytes.get(key_id, 0)
        # The first body of a minute is taken however large it is, or it never could be.
        if sent_bytes and sent_bytes + size_bytes > self.sizes.key_bytes_per_minute:
            self.refused_requests += 1
            return int(_MINUTE_S - now_s % _MINUTE_S) + 1
        self._sent_bytes[key_id] = sent_bytes + size_bytes
        return None

    def limits(self, project_id: int, limits: Limits, today: date) -> Limits:
        """The limits of a body of this project, with its quota."""
        if not self.sizes.trace_spans and not self.sizes.names_per_day:
            return limits
        quota, bounded = self._projects.get(project_id) or (None, limits)
        if quota is None:
            quota = ProjectQuota(self.sizes, today)
            bounded = attrs.evolve(limits, quota=quota)
            self._projects[project_id] = (quota, bounded)
        elif quota.day != today:
            quota.day, quota.names = today, set()
        return bounded

    def uses(self, project_id: int) -> list[QuotaUse]:
        """For the page of sources: each quota of a project, and the most that is used of it."""
        quota, _ = self._projects.get(project_id, (ProjectQuota(self.sizes, date.min), None))
        largest = max((*quota.traces.values(), *quota.earlier_traces.values()), default=0)
        return [
            QuotaUse("SVC_QUOTA_TRACE_SPANS", self.sizes.trace_spans, largest),
            QuotaUse("SVC_QUOTA_NAMES_PER_DAY", self.sizes.names_per_day, len(quota.names)),
        ]

    @property
    def refused_spans(self) -> int:
        """Spans refused since the start."""
        return sum(quota.refused_spans for quota, _ in self._projects.values())
