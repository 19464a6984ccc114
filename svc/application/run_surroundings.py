"""What an engineer would know before looking into a finding: when it is, what the application does and how
much, and traces from before the onset and since.

`run_requests` puts it into the brief of a run. Reads only, each read with a deadline; what cannot be had in
time is left out and said to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import attrs

from protocol.detection import EvidenceRole
from protocol.storage import Slow
from svc.domain.agents.briefs import BriefFacts
from svc.domain.calendar import hour_of
from svc.runtime.clock import now
from svc.store.aggregates.vitals import What
from svc.store.detection.cases.evidence import EvidenceStore
from svc.store.postgres.database import Database
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.trace_filter import TraceFilter
from svc.store.reads.traces.traces import TraceReads
from svc.store.reads.usage.vitals import Vital, VitalsReads, Window

#: The days that are told of, and as many before them.
WINDOW: Final = timedelta(days=7)
#: What counting one part of the map may take.
MAP_TIMEOUT_S: Final = 8.0
#: Call sites, models, tools and agents that are named, each the busiest; traces of a side; spans of a trace.
NAMED: Final = 12
TRACES_A_SIDE: Final = 3
SPANS_SHOWN: Final = 20
MAP: Final[Mapping[str, What]] = {
    "call_sites": "sites",
    "models": "models",
    "tools": "tools",
    "agents": "agents",
}
_SINCE_ROLES: Final[Sequence[EvidenceRole]] = ("witness", "exemplar", "changepoint", "member")
_TRACE: Final = ("trace_id", "name", "started_at", "latency_ms", "status", "error_count", "total_cost")
_SPAN: Final = ("span_id", "parent_span_id", "kind", "name", "status", "error_type", "latency_ms")


@attrs.frozen
class RunSurroundings:
    """Reads one project at a time."""

    database: Database

    async def of(self, project_id: int, finding: Mapping[str, Any]) -> BriefFacts:
        """What surrounds a finding. Raises `Outage` when the store is away."""
        instant = now()
        return BriefFacts(
            instant, await self._map(project_id, instant), await self._samples(project_id, finding)
        )

    async def _map(self, project_id: int, end: datetime) -> dict[str, Any]:
        start, middle = hour_of(end - 2 * WINDOW), hour_of(end - WINDOW)
        reads = VitalsReads(self.database)
        traffic: dict[str, Any] = {"days": WINDOW.days}
        for name, what in MAP.items():
            try:
                vitals = await reads.of(project_id, what, start, middle, end, MAP_TIMEOUT_S)
            except Slow:
                traffic[name] = "could not be counted in time"
                continue
            traffic[name] = [_vital(vital) for vital in vitals[:NAMED]]
            if len(vitals) > NAMED:
                traffic[f"{name}_left_out"] = len(vitals) - NAMED
        return traffic

    async def _samples(
        self, project_id: int, finding: Mapping[str, Any]
    ) -> dict[str, Sequence[Mapping[str, Any]]]:
        site, onset = finding.get("call_site_id"), finding.get("onset_at")
        earlier, later = TraceFilter(call_site_id=site), TraceFilter(call_site_id=site)
        if onset is not None:
            moment = datetime.fromisoformat(onset)
            earlier, later = attrs.evolve(earlier, high=moment), attrs.evolve(later, low=moment)
        finding_id = UUID(str(finding["id"]))
        return {
            "before": await self._side(project_id, finding_id, ("baseline",), earlier),
            "since": await self._side(project_id, finding_id, _SINCE_ROLES, later),
        }

    async def _side(
        self, project_id: int, finding_id: UUID, roles: Sequence[EvidenceRole], otherwise: TraceFilter
    ) -> list[Mapping[str, Any]]:
        """Traces of the evidence in these roles; where it has none, the newest of that time."""
        ids: dict[str, None] = {}
        for role in roles:
            if len(ids) >= TRACES_A_SIDE:
                break
            page = await EvidenceStore(self.database).page(
                project_id, finding_id, role=role, count_only=False, limit=4 * TRACES_A_SIDE, cursor=None
            )
            for ref in () if page is None else page["refs"]:
                if ref.get("trace_id"):
                    ids[ref["trace_id"]] = None
        traces = TraceReads(self.database, SpanReads(self.database))
        if not ids and (otherwise.low or otherwise.high):
            page = await traces.page(project_id, otherwise, limit=TRACES_A_SIDE, cursor=None)
            ids = dict.fromkeys(row["trace_id"] for row in page["traces"])
        samples = [
            await traces.one(project_id, bytes.fromhex(trace_id), payload=False)
            for trace_id in list(ids)[:TRACES_A_SIDE]
        ]
        return [_trace(trace) for trace in samples if trace is not None]


def _vital(vital: Vital) -> dict[str, Any]:
    return {"name": vital.subject, **_window(vital.now), "week_before": _window(vital.before)}


def _window(window: Window) -> dict[str, Any]:
    """What was done, without what is not known."""
    figures = {
        "calls": window.n,
        "failed": window.failed,
        "p95_ms": None if window.p95_ms is None else round(window.p95_ms),
        "cost_usd": None if window.cost is None else round(window.cost, 4),
    }
    return {name: value for name, value in figures.items() if value is not None}


def _trace(trace: Mapping[str, Any]) -> dict[str, Any]:
    """A trace by its steps, without what was said in it."""
    spans = [_known(span, _SPAN) for span in trace["spans"][:SPANS_SHOWN]]
    outline = {**_known(trace, _TRACE), "spans": spans}
    left_out = trace["span_count"] - len(spans)
    return {**outline, "spans_left_out": left_out} if left_out > 0 else outline


def _known(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in names if row.get(name) is not None}
