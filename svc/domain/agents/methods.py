"""How an engineer looks into a finding, by the kind of its detector, and what a good report reads like.

`briefs` puts these texts before an agent: how the detector measures and what it cannot see, how to look and
when to stop, and which checks of the analysis by rule make sense for it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from protocol.agents import RunKind
from svc.domain.detect.detectors.base import Detector, Engine
from svc.domain.detect.detectors.table import DETECTORS

_CANNOT_SEE: Final[Mapping[Engine, str]] = {
    "rate": "It counts traces by five minutes and compares the share of those that failed with a reference of"
    " earlier weeks. It does not see why one failed, nor who asked.",
    "drift": "It compares the distribution of a size (duration, cost) with a reference of earlier weeks. It"
    " does not see which requests were made, so a shift of traffic can look like a drift.",
    "event": "One event is enough: nothing is compared. It sees the one trace and no others.",
}

_TRIAGE: Final[Mapping[Engine, str]] = {
    "rate": """
1. Count both sides yourself: query_count with a measure, or query_timeseries by day, at the call site, from a
   week before the onset until now. Is the rise in the counts, and on more than a handful of traces?
2. Compare like hours: the same weekday and hour of the week before. A rise that comes every Monday is none.
3. Look for a gap: were fewer traces recorded, or only those that failed?
4. Open two that failed with get_trace: did they fail in the way the title says?
Stop when counts and two traces agree (positive), contradict the claim (negative), or cannot be had.""",
    "drift": """
1. Ask query_timeseries for the median (duration_p50, cost) by day at the call site, from a week before the
   onset until now. Did the middle move, or only a few large ones?
2. Compare like hours and like requests: facets of model_id and name on both sides. Another mix of requests
   is no drift.
3. Open two traces of each side with get_trace and compare them span by span.
Stop when the middle moved among like requests (positive), did not (negative), or cannot be told.""",
    "event": """
1. Open the trace with get_trace, and the span that the evidence names with get_span.
2. Is it what the title says, in text that the application sent or received, rather than an example, a test or
   a placeholder?
3. Look whether it was there before the onset: query_search or list_spans on the time before.
Stop as soon as the span itself settles it.""",
}

_CAUSE: Final[Mapping[Engine, str]] = {
    "rate": """
1. Ask compare for the traces before the onset and those since, at the call site: which kinds, models,
   releases, users and attributes have another share, and which of them are new?
2. Ask query_facets for error_type since the onset: is it one kind of failure or several?
3. Open three traces that failed and three of the same hours that did not. Find the first step at which they
   part; what differs there, and not what follows from it, is the cause.
4. Test it: does what you found hold most of the failures, and few of the healthy traces?
Stop when one difference passes that test, or when compare and six traces show none: then it is
inconclusive.""",
    "drift": """
1. Ask compare for the traces before the onset and those since, at the call site: did the requests change
   (sizes, users, models), or the work for the same request?
2. Find where the time or money goes: open three traces of each side, and compare calls a trace, tokens a call
   and the time of each child. The child that grew is where to look next.
3. A cost is calls × tokens × price: say which factor moved.
4. Ask query_timeseries for that factor by hour around the onset: does it move with the finding?
Stop when one factor accounts for most of the change, or when none does: then say inconclusive.""",
    "event": """
1. Who and where: which call site, which user or session, which step of the trace?
2. Was it the first? Look for the same thing on the days before with list_spans, query_facets or query_search.
3. What came just before it in the trace, and in the last trace of the same session?
4. What else was new at that time? Ask compare for the day before the onset and the time since.
Stop when you can say what brought it there, or that the traces do not show it: then say inconclusive.""",
}

#: Where one detector is looked into otherwise than its kind.
_OF_DETECTOR: Final[Mapping[str, str]] = {
    "new_signature": """
What is new is a kind of failure. What changed at the onset: a release, a prompt, a tool's definition, a
model, an input that nobody sent before? Compare the first traces that have it with the last that do not.""",
    "model_change": """
Another model answers. Compare the model that was asked for (provided_model_name of the request) before and
since: if it changed, the application did; if it did not, the provider did.""",
    "secret_leak": """
Follow the secret through the trace: did a user type it, a tool return it, or the prompt hold it? Never write
it down; its form and the span are enough.""",
}

#: Groups of checks of the analysis by rule that make sense for a kind of detector.
_CHECKS: Final[Mapping[Engine, frozenset[str]]] = {
    "rate": frozenset({"sample", "who", "definition", "model", "release", "marks", "signatures"}),
    "drift": frozenset({"sample", "who", "definition", "model", "release", "marks", "parts"}),
    "event": frozenset({"definition", "model", "release", "marks"}),
}

_EXAMPLE_TRIAGE: Final = """
An example of a good answer (another project; refs as you would cite them):
verdict positive, summary "In the same hours 31 of 240 traces of checkout failed since Tuesday 14:00 and 2 of
251 a week before (q2, q3); the two that I opened fail in charge_card with HTTP 402." citations q2, q3 and the
two traces."""

_EXAMPLE_CAUSE: Final = """
An example of a good report (another project; refs as you would cite them):
- summary "Since Tuesday 14:00 the tool charge_card answers 402 for cards in USD: 31 of 33 such traces fail, 0
  of 207 others (q4)."
- hypotheses: one, "charge_card refuses USD", high: "It failed in 2 of 251 traces before (q3). Release 41 came
  at 13:52 (q5), and all 31 failing traces have it; so do 120 that succeed, all in EUR (q6), so the release
  alone does not explain it." It cites two failing traces, a healthy one of the same release, and q3 to q6.
- checklist: each check in a sentence with its number: "ruled_out: the same 3 models before and since (q4)".
- detailed_report: what happened, since when, how it is known, what was ruled out, and what to do next: "Look
  at how release 41 passes the currency"."""


def measured_by(name: str) -> str:
    """How a detector measures, and what it cannot see."""
    detector = DETECTORS.get(name)
    if detector is None:
        return "What measured this is not known: judge by the traces alone."
    measures = ", ".join(detector.measures) or "nothing over time"
    return (
        f"{detector.name}: {detector.sentence}\n\nIt measures {measures}; one firing tells of a"
        f" {detector.grain}.\n\n{_CANNOT_SEE[detector.engine]}"
    )


def method_of(kind: RunKind, name: str) -> str:
    """How to look into a finding of a detector, and when to stop, with an example of what comes of it."""
    engine = _engine_of(name)
    steps = (_TRIAGE if kind == "triage" else _CAUSE)[engine].strip()
    example = _EXAMPLE_TRIAGE if kind == "triage" else _EXAMPLE_CAUSE
    return "\n\n".join(filter(None, (steps, _OF_DETECTOR.get(name, "").strip(), example.strip())))


def sensible_checks(name: str, checks: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of the checks of an analysis by rule those that make sense for a detector."""
    if name not in DETECTORS:
        return list(checks)
    groups = _CHECKS[_engine_of(name)]
    return [check for check in checks if str(check.get("check", "")).partition(".")[0] in groups]


def _engine_of(name: str) -> Engine:
    detector: Detector | None = DETECTORS.get(name)
    return "event" if detector is None else detector.engine
