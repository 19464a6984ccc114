"""`duration_drift`: turns at a call site, or calls of a tool, take longer than they used to.

Owns: which durations of a trace count. A trace without a root has no turn; a span without an end has no
duration. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from svc.domain.detect.detectors.base import (
    Detector,
    Observation,
    ObserverContext,
    Tunable,
    calls_by_agent,
    site,
    slot_of,
    tool,
)
from svc.domain.detect.detectors.settled_trace import CALLED, SettledTrace
from svc.domain.detect.engine.drift_reference import FLOOR

_MS: Final = timedelta(milliseconds=1)
#: The least shift of ln(size) worth telling, for every detector of sizes.
FLOOR_TUNING: Final = Tunable(FLOOR, math.log(1.05), math.log(4))


def observe(trace: SettledTrace, context: ObserverContext) -> Iterable[Observation]:
    """The root's own duration, what each agent's model calls took together, and each span of a tool."""
    root = trace.root
    if root is not None and root.ended_at is not None:
        took_ms = (root.ended_at - root.started_at) / _MS
        yield Observation("turn_duration", site(trace.call_site_id), slot_of(root.started_at), value=took_ms)
    for caller, calls in calls_by_agent(trace).items():
        ended_ms = [(row.ended_at - row.started_at) / _MS for row in calls if row.ended_at is not None]
        if len(ended_ms) == len(calls):
            slot = slot_of(calls[0].started_at)
            yield Observation("turn_duration", site(*caller), slot, value=math.fsum(ended_ms))
    for row in trace.spans:
        if row.kind in CALLED and row.ended_at is not None and row.tool_calls:
            took_ms = (row.ended_at - row.started_at) / _MS
            subject = tool(row.tool_calls[0].name)
            yield Observation("tool_duration", subject, slot_of(row.started_at), value=took_ms)


DURATION_DRIFT: Final = Detector(
    name="duration_drift",
    sentence="Turns at a call site, or calls of a tool, take longer than they used to.",
    grain="trace",
    engine="drift",
    measures=("turn_duration", "tool_duration"),
    observe=observe,
    tuning={"w1_floor": FLOOR_TUNING},
)
