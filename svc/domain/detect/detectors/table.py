"""The table of detectors: which there are, and what each says of itself.

Owns: `DETECTORS`, and `observe`, which asks all of them about one trace, and for its marks. Whoever tallies
traces calls it; the README, REST, MCP and the pages show the rows. A new detector is one file beside this one
and one line here. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import attrs

from svc.domain.detect.detectors import first_seen
from svc.domain.detect.detectors.agent_loop import AGENT_LOOP
from svc.domain.detect.detectors.base import AGENT, Detector, Observation, ObserverContext
from svc.domain.detect.detectors.call_errors import MODEL_ERROR, TOOL_ERROR
from svc.domain.detect.detectors.cost_drift import COST_DRIFT
from svc.domain.detect.detectors.cut_output import CUT_OUTPUT
from svc.domain.detect.detectors.duration_drift import DURATION_DRIFT
from svc.domain.detect.detectors.encoded import FRUSTRATION, GROUNDEDNESS
from svc.domain.detect.detectors.malformed_output import MALFORMED_OUTPUT
from svc.domain.detect.detectors.model_change import MODEL_CHANGE
from svc.domain.detect.detectors.new_signature import NEW_SIGNATURE
from svc.domain.detect.detectors.secret_leak import SECRET_LEAK
from svc.domain.detect.detectors.settled_trace import SettledTrace
from svc.domain.feedback.rating_detectors import FEEDBACK, FEEDBACK_DRIFT
from svc.domain.marks.detector import MARKS_DETECTOR
from svc.domain.marks.table import TraceMark

DETECTORS: Final[Mapping[str, Detector]] = {
    detector.name: detector
    for detector in (
        TOOL_ERROR,
        MODEL_ERROR,
        DURATION_DRIFT,
        COST_DRIFT,
        SECRET_LEAK,
        MALFORMED_OUTPUT,
        AGENT_LOOP,
        CUT_OUTPUT,
        NEW_SIGNATURE,
        MODEL_CHANGE,
        MARKS_DETECTOR,
        FEEDBACK,
        FEEDBACK_DRIFT,
        FRUSTRATION,
        GROUNDEDNESS,
    )
}


@attrs.frozen(eq=False)
class Observed:
    """What was seen of one trace, its marks, and the detectors that could not look at it, each with the
    error's type.
    """

    observations: tuple[Observation, ...]
    failed: Mapping[str, str]
    marks: Sequence[TraceMark] = ()


def observe(trace: SettledTrace, context: ObserverContext) -> Observed:
    """What every detector sees of a trace. One that raises is left out alone, all that it saw with it."""
    observations: list[Observation] = list(first_seen.observe(trace))
    failed: dict[str, str] = {}
    marks: list[TraceMark] = []
    for detector in DETECTORS.values():
        if detector.observe is None:
            continue
        try:
            outcome = tuple(detector.observe(trace, context))
            if context.whole_sites and detector.by_agent and trace.paths:
                whole = detector.observe(attrs.evolve(trace, paths={}), context)
                outcome = (*(item for item in outcome if _is_of_agent(item)), *whole)
        except Exception as error:  # what one detector cannot stand must not cost the others their sight
            failed[detector.name] = type(error).__name__
            continue
        for observed in outcome:
            if isinstance(observed, TraceMark):
                marks.append(observed)
            else:
                observations.append(observed)
    return Observed(tuple(observations), failed, marks)


def _is_of_agent(item: Observation | TraceMark) -> bool:
    return isinstance(item, Observation) and item.subject.startswith(AGENT)


def lacking(detector: Detector, installed: Collection[str]) -> str | None:
    """Why a detector cannot run where this is installed; None when it can."""
    if detector.needs is not None and detector.needs not in installed:
        return detector.unavailable
    return None


def detectors_table() -> str:
    """The table as the documentation shows it."""
    rows = [
        f"| `{detector.name}` | {detector.sentence} | {detector.grain} |"
        + (f" {detector.unavailable} |" if detector.unavailable else " always |")
        for detector in DETECTORS.values()
    ]
    return "\n".join(("| Detector | What it finds | Fires on a | Runs |", "|---|---|---|---|", *rows))
