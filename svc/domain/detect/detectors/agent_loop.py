"""`agent_loop`: more traces of a call site call one tool again and again with the same arguments.

Owns: what a loop is. A trace whose calls' arguments were not captured says nothing of loops. Pure.
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
    site,
    slot_of,
    tool,
)
from svc.domain.detect.detectors.call_errors import RISE_TUNING
from svc.domain.detect.detectors.settled_trace import CALLED, SettledTrace

#: So many calls of one tool with the same arguments within one trace are a loop.
LOOP_CALLS: Final = 5


def observe(trace: SettledTrace, context: ObserverContext) -> Iterable[Observation]:
    """One unit for each trace that calls tools with known arguments; failed when one call came too often.

    A tool that has spans in the trace is counted by them, any other by the calls inside answers.
    """
    calls: defaultdict[tuple[str, str], list[bytes]] = defaultdict(list)
    spanned: set[str] = set()
    answer_calls: list[tuple[str, str, bytes]] = []
    for row in trace.spans:
        if (texts := trace.texts.get(row.span_id)) is None:
            continue
        if row.kind in CALLED:
            for call in row.tool_calls:
                spanned.add(tool(call.name))
                if texts.arguments is not None:
                    calls[tool(call.name), texts.arguments].append(row.span_id)
        else:
            answer_calls += [
                (tool(call.name), call.arguments, row.span_id)
                for call in texts.calls
                if call.arguments is not None
            ]
    for subject, arguments, span_id in answer_calls:
        if subject not in spanned:
            calls[subject, arguments].append(span_id)
    if not calls:
        return
    (subject, _), longest = max(calls.items(), key=lambda call: (len(call[1]), call[0][0]))
    failed = len(longest) >= LOOP_CALLS
    yield Observation(
        "loop_rate",
        site(trace.call_site_id),
        slot_of(trace.spans[0].started_at),
        failed=failed,
        witnesses=tuple(dict.fromkeys(longest))[:WITNESSES] if failed else (),
        signature=subject if failed else None,
    )


AGENT_LOOP: Final = Detector(
    name="agent_loop",
    sentence=f"More traces call one tool {LOOP_CALLS} times or more with the same arguments.",
    grain="trace",
    engine="rate",
    measures=("loop_rate",),
    observe=observe,
    tuning={"rise": RISE_TUNING},
)
