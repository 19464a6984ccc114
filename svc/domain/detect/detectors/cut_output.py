"""`cut_output`: more answers of a call site are cut off or say nothing.

Owns: when an answer is cut. A failed call has no answer, and where neither the reason it stopped nor its text
was captured nobody knows. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from svc.domain.detect.detectors.base import (
    WITNESSES,
    Caller,
    Detector,
    Observation,
    ObserverContext,
    caller_of,
    site,
    slot_of,
)
from svc.domain.detect.detectors.call_errors import RISE_TUNING
from svc.domain.detect.detectors.settled_trace import SettledTrace, SpanTexts, TracedSpan, is_blank

#: How providers say that an answer ran into its limit, in lower case.
CUT: Final = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "token_limit"})


def observe(trace: SettledTrace, context: ObserverContext) -> Iterable[Observation]:
    """One unit for each agent that answers at a call site; failed when any of its answers is cut or blank."""
    units: defaultdict[Caller, list[tuple[TracedSpan, str | None]]] = defaultdict(list)
    for row in trace.spans:
        if row.kind != "llm" or row.status != "ok" or (texts := trace.texts.get(row.span_id)) is None:
            continue
        if texts.finish_reasons or texts.answered:
            units[caller_of(trace, row)].append((row, _fault(row, texts)))
    for caller, answers in units.items():
        faulty = [(row, fault) for row, fault in answers if fault is not None]
        yield Observation(
            "cut_rate",
            site(*caller),
            slot_of(answers[0][0].started_at),
            failed=bool(faulty),
            witnesses=tuple(row.span_id for row, _ in faulty)[:WITNESSES],
            signature=faulty[0][1] if faulty else None,
        )


def _fault(row: TracedSpan, texts: SpanTexts) -> str | None:
    if not CUT.isdisjoint(texts.finish_reasons):
        return "length"
    silent = texts.answered and not texts.media and is_blank(texts.said)
    if silent and not texts.calls and not row.tool_calls:
        return "blank"
    return None


CUT_OUTPUT: Final = Detector(
    name="cut_output",
    sentence="More answers of a call site are cut off at their token limit, or are empty.",
    grain="span",
    engine="rate",
    measures=("cut_rate",),
    observe=observe,
    tuning={"rise": RISE_TUNING},
    by_agent=True,
)
