"""What makes each mark: the rules over one settled trace, which say nothing when they are not sure.

Owns: `marks_of`. Whoever tallies traces calls it once a trace, and keeps what it yields. A rule speaks of
what was recorded alone: what was not captured, was cut or may have happened outside of the trace makes it
silent. Pure; a mark never quotes what a user or a tool said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from svc.domain.detect.detectors.cut_output import CUT
from svc.domain.detect.detectors.new_signature import signature_of
from svc.domain.detect.detectors.settled_trace import SettledTrace, is_blank
from svc.domain.marks.claims import claim_in, hedge_in
from svc.domain.marks.forms import lacks
from svc.domain.marks.results import http_error_in, own_fault
from svc.domain.marks.table import MarkName, TraceMark
from svc.domain.marks.tool_calls import CallsOfTrace, ModelCall, TracedCall, calls_of
from svc.domain.spans.span import Kind

#: Marks of one trace, the first ones: a loop of a thousand calls needs no thousand.
TRACE_MARKS: Final = 50
#: Kinds of spans that bring something from outside, besides tools.
_SOURCES: Final[frozenset[Kind]] = frozenset({"retrieval", "reranker", "memory"})


def marks_of(trace: SettledTrace, calls: CallsOfTrace | None = None) -> list[TraceMark]:
    """The marks of a trace, at most `TRACE_MARKS`; `calls` are its calls, where they were read before."""
    calls = calls or calls_of(trace)
    marks: list[TraceMark] = []
    for rule in (_broken_arguments, _by_results, _repeats, _forms, _without_evidence):
        for mark in rule(trace, calls):
            if len(marks) == TRACE_MARKS:
                return marks
            marks.append(mark)
    return marks


def _broken_arguments(trace: SettledTrace, calls: CallsOfTrace) -> Iterator[TraceMark]:
    for model in calls.models:
        texts = model.texts
        if texts is None or not texts.calls or texts.tool_schemas is None:
            continue
        for request in texts.calls:
            if (fault := texts.tool_schemas.fault(request.name, request.arguments)) is None:
                continue
            answer = calls.answer_to(model, request)
            cause = model.row.span_id
            effect = cause if answer is None else answer.row.span_id
            yield TraceMark("args_break_schema", cause, effect, model.row.call_site_id, fault)


def _by_results(trace: SettledTrace, calls: CallsOfTrace) -> Iterator[TraceMark]:
    for tool in calls.tools:
        call, texts = tool.call, tool.texts
        if call.status == "error":
            arguments = None if texts is None else texts.arguments
            if (fault := own_fault(call.error_type, call.error_message, arguments)) is not None:
                yield _mark_at("tool_broken_inside", calls, tool, fault)
        elif texts is not None and texts.result and (error := http_error_in(texts.result)) is not None:
            yield _mark_at("http_error_in_ok_result", calls, tool, error)


def _repeats(trace: SettledTrace, calls: CallsOfTrace) -> Iterator[TraceMark]:
    for earlier, tool in zip(calls.tools, calls.tools[1:], strict=False):
        if not _is_next(earlier, tool):
            continue
        if earlier.call.status == "error" and tool.call.status == "error":
            if _fails_alike(earlier, tool):
                yield _mark_at("retry_of_same_failure", calls, tool)
        elif earlier.call.status == "ok" and tool.call.status == "ok" and _is_alike(earlier, tool):
            yield _mark_at("same_call_again", calls, tool)


def _is_next(earlier: TracedCall, tool: TracedCall) -> bool:
    """Whether the tool was called again, after it had returned; `earlier` is the call before."""
    ended_at = earlier.row.ended_at
    return (
        earlier.call.name == tool.call.name
        and earlier.row.span_id != tool.row.span_id
        and ended_at is not None
        and ended_at <= tool.row.started_at
        # Two recordings of one call.
        and (earlier.call.call_id is None or earlier.call.call_id != tool.call.call_id)
    )


def _fails_alike(earlier: TracedCall, tool: TracedCall) -> bool:
    failure, failure_again = earlier.call, tool.call
    if failure.error_message is None or failure_again.error_message is None:
        return False
    signature = signature_of(failure.error_type, failure.error_message)
    return signature == signature_of(failure_again.error_type, failure_again.error_message)


def _is_alike(earlier: TracedCall, tool: TracedCall) -> bool:
    """Whether both were given the same and returned the same: so nothing changed the answer meanwhile."""
    texts, texts_again = earlier.texts, tool.texts
    if texts is None or texts_again is None or texts.arguments is None or not texts.result:
        return False
    return texts.arguments == texts_again.arguments and texts.result == texts_again.result


def _without_evidence(trace: SettledTrace, calls: CallsOfTrace) -> Iterator[TraceMark]:
    first_answer = min((tool.row.started_at for tool in calls.tools), default=None)
    sourced: bool | None = None
    for model in calls.models:
        texts = model.texts
        if texts is None or is_blank(texts.said) or texts.calls or texts.tool_schemas is None:
            continue
        if not texts.tool_schemas.schemas or not texts.tool_schemas.only_functions:
            continue
        if first_answer is not None and first_answer <= model.row.started_at:
            return
        if model.row.status != "ok" or model.row.tool_calls:
            continue
        if sourced is None:
            sourced = any(row.kind in _SOURCES for row in trace.spans) or _has_calls(calls)
        if sourced:
            return
        if not texts.tools_heard():
            span_id, site = model.row.span_id, model.row.call_site_id
            said = texts.said or ""
            if (words := claim_in(said)) is not None:
                yield TraceMark("claim_without_call", span_id, span_id, site, words)
            if (words := hedge_in(said)) is not None:
                yield TraceMark("hedge_without_evidence", span_id, span_id, site, words)
            yield TraceMark("answer_without_evidence", span_id, span_id, site)


def _forms(trace: SettledTrace, calls: CallsOfTrace) -> Iterator[TraceMark]:
    answers: defaultdict[tuple[str, str], list[tuple[ModelCall, bool]]] = defaultdict(list)
    for model in calls.models:
        texts = model.texts
        if texts is None or not texts.demanded or model.row.status != "ok" or is_blank(texts.said):
            continue
        # A call of a tool is no answer, and of one that was cut the rest may hold it.
        if texts.calls or model.row.tool_calls or texts.media or not CUT.isdisjoint(texts.finish_reasons):
            continue
        for block in texts.demanded:
            answers[model.row.call_site_id, block].append((model, lacks(block, texts.said or "")))
    for (site, block), outcomes in answers.items():
        broken = [model for model, lacking in outcomes if lacking]
        # One that no answer has is probably where the model is told to stop.
        for model in broken[:1] if len(broken) == len(outcomes) else broken:
            yield TraceMark("form_broken", model.row.span_id, model.row.span_id, site, f"`{block}`")


def _has_calls(calls: CallsOfTrace) -> bool:
    """Whether a model asked for a tool: then it may have answered without a span of its own."""
    return any(model.texts is not None and model.texts.calls for model in calls.models)


def _mark_at(name: MarkName, calls: CallsOfTrace, tool: TracedCall, detail: str = "") -> TraceMark:
    model = calls.asked_by(tool)
    site = tool.row.call_site_id if model is None else model.row.call_site_id
    return TraceMark(name, None if model is None else model.row.span_id, tool.row.span_id, site, detail)
