"""`cost_drift`: turns at a call site cost more than they used to.

Owns: what a turn costs. It is the sum over the model calls of the trace that count; when one of them has no
price, or nothing of the trace costs anything, or there is no root, nothing is known. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from svc.domain.detect.detectors.base import (
    Detector,
    Observation,
    ObserverContext,
    calls_by_agent,
    site,
    slot_of,
)
from svc.domain.detect.detectors.duration_drift import FLOOR_TUNING
from svc.domain.detect.detectors.settled_trace import SettledTrace


def observe(trace: SettledTrace, context: ObserverContext) -> Iterable[Observation]:
    """The cost of the turn, and of each agent's calls, as far as it is known. Usage that repeats another
    span's does not count.
    """
    for caller, calls in calls_by_agent(trace).items():
        costs = [row.total_cost for row in calls if row.total_cost is not None]
        if costs and all(row.cost_source != "unpriced" for row in calls):
            slot = slot_of(calls[0].started_at)
            yield Observation("turn_cost", site(*caller), slot, value=math.fsum(costs))
    root = trace.root
    if root is None:
        return
    rows = [row for row in trace.spans if row.usage_repeats is None]
    if any(row.cost_source == "unpriced" for row in rows):
        return
    costs = [row.total_cost for row in rows if row.total_cost is not None]
    if costs:
        yield Observation(
            "turn_cost", site(trace.call_site_id), slot_of(root.started_at), value=math.fsum(costs)
        )


COST_DRIFT: Final = Detector(
    name="cost_drift",
    sentence="Turns at a call site cost more than they used to.",
    grain="trace",
    engine="drift",
    measures=("turn_cost",),
    observe=observe,
    tuning={"w1_floor": FLOOR_TUNING},
)
