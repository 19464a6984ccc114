"""`marks`: more traces of a call site have a mark than used to, or many have it from the first ones on.

Owns: which traces are units of which mark. A trace counts for a mark where the mark could have been stated,
at the call site of the trace, whoever of its agents caused it. The same pass yields the marks. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from svc.domain.detect.detectors.base import (
    WITNESSES,
    Detector,
    MeasureName,
    Observation,
    ObserverContext,
    site,
    slot_of,
)
from svc.domain.detect.detectors.call_errors import RISE_TUNING
from svc.domain.detect.detectors.settled_trace import SettledTrace
from svc.domain.marks.rules import marks_of
from svc.domain.marks.table import EVIDENCE_MARKS, MarkName, TraceMark
from svc.domain.marks.tool_calls import CallsOfTrace, calls_of
from svc.domain.spans.values import identifier

#: Under which measure each mark is counted.
MARK_MEASURES: Final[Mapping[MarkName, MeasureName]] = {
    "args_break_schema": "mark_args_break_schema",
    "same_call_again": "mark_same_call_again",
    "retry_of_same_failure": "mark_retry_of_same_failure",
    "http_error_in_ok_result": "mark_http_error_in_ok_result",
    "tool_broken_inside": "mark_tool_broken_inside",
    "claim_without_call": "mark_claim_without_call",
    "answer_without_evidence": "mark_answer_without_evidence",
    "hedge_without_evidence": "mark_hedge_without_evidence",
    "form_broken": "mark_form_broken",
}
#: The mark that a measure counts.
MARK_OF: Final[Mapping[str, MarkName]] = {measure: name for name, measure in MARK_MEASURES.items()}


def observe(trace: SettledTrace, context: ObserverContext) -> Iterable[Observation | TraceMark]:
    """The marks of the trace, and one unit for each mark that it could have; failed when it has it."""
    if not context.marks:
        return
    calls = calls_of(trace)
    marks = [mark for mark in marks_of(trace, calls) if mark.name not in context.marks_off]
    yield from marks
    slot = slot_of(trace.spans[0].started_at)
    subject = site(trace.call_site_id)
    for name in _possible(calls):
        if name in context.marks_off:
            continue
        stated = [mark for mark in marks if mark.name == name]
        if not stated:
            yield Observation(MARK_MEASURES[name], subject, slot)
            continue
        yield Observation(
            MARK_MEASURES[name],
            subject,
            slot,
            failed=True,
            witnesses=_witnesses(stated),
            signature=identifier(stated[0].detail) or None,
        )


def _possible(calls: CallsOfTrace) -> Iterable[MarkName]:
    """The marks that something in the trace could show."""
    if calls.tools:
        yield "retry_of_same_failure"
        yield "tool_broken_inside"
        if any(tool.texts is not None and tool.texts.result for tool in calls.tools):
            yield "same_call_again"
            yield "http_error_in_ok_result"
    has_calls = has_answer = has_form = False
    for model in calls.models:
        texts = model.texts
        has_form = has_form or (texts is not None and bool(texts.demanded and texts.said))
        if texts is not None and texts.tool_schemas is not None:
            if texts.calls:
                has_calls = True
            elif texts.said:
                has_answer = True
    if has_calls:
        yield "args_break_schema"
    if has_answer:
        yield from EVIDENCE_MARKS
    if has_form:
        yield "form_broken"


def _witnesses(marks: Iterable[TraceMark]) -> tuple[bytes, ...]:
    """The spans at which the marks show, then the model calls that asked."""
    effects = tuple(dict.fromkeys(mark.effect for mark in marks))[:WITNESSES]
    causes = dict.fromkeys(mark.cause for mark in marks if mark.effect in effects)
    return (
        effects + tuple(cause for cause in causes if cause is not None and cause not in effects)[:WITNESSES]
    )


MARKS_DETECTOR: Final = Detector(
    name="marks",
    sentence="More traces of a call site have a mark, such as arguments that break the schema of a tool.",
    grain="trace",
    engine="rate",
    measures=tuple(MARK_MEASURES.values()),
    observe=observe,
    tuning={"rise": RISE_TUNING},
)
