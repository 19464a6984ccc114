"""`tool_error`: a tool fails in more of the traces that call it than it used to.

Owns: what of a trace counts as a call of a tool and as its failure. What a failing call is was decided when
its span was mapped: a status, an error type, an exception, a result that says so. An empty result, slowness
and prose are none. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from svc.domain.detect.detectors.base import (
    WITNESSES,
    Detector,
    Observation,
    ObserverContext,
    Tunable,
    slot_of,
    tool,
)
from svc.domain.detect.detectors.new_signature import signature_of
from svc.domain.detect.detectors.settled_trace import SettledTrace, TracedSpan
from svc.domain.detect.engine.rate_engine import RISE
from svc.domain.span import ToolCall

#: The rise that is found soonest, for every detector of rates. Measured 2026-11, 500 calls a day at 5 %,
#: 60 buckets: a half more takes 71, 62, 82 and 366 hours by 1.25, 1.5, 2 and 4 (by 4 found in 0.35 of them),
#: twice as many 28, 22, 20 and 54, six times as many 4.6, 3.7, 2.7 and 2.0.
RISE_TUNING: Final = Tunable(RISE, 1.25, 10.0)


def observe(trace: SettledTrace, context: ObserverContext) -> Iterable[Observation]:
    """One unit for each tool that the trace calls; failed when any of its calls failed."""
    calls: defaultdict[str, list[tuple[TracedSpan, ToolCall]]] = defaultdict(list)
    for row in trace.spans:
        for call in row.tool_calls:
            calls[tool(call.name)].append((row, call))
    for subject, tool_calls in calls.items():
        failures = [(row, call) for row, call in tool_calls if call.status == "error"]
        yield Observation(
            "tool_error_rate",
            subject,
            slot_of(tool_calls[0][0].started_at),
            failed=bool(failures),
            witnesses=tuple(dict.fromkeys(row.span_id for row, _ in failures))[:WITNESSES],
            signature=signature_of(failures[0][1].error_type, failures[0][1].error_message)
            if failures
            else None,
        )


TOOL_ERROR: Final = Detector(
    name="tool_error",
    sentence="A tool fails in more of the traces that call it than it used to.",
    grain="trace",
    engine="rate",
    measures=("tool_error_rate",),
    observe=observe,
    tuning={"rise": RISE_TUNING},
)
