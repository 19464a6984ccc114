"""`tool_error` and `model_error`: a tool, or the models of a call site, fail in more of the traces that call
them than they used to.

Owns: what of a trace counts as a call and as its failure. What a failing call is was decided when its span
was mapped: a status, an error type, an exception, and of a tool a result that says so. An empty result,
slowness and prose are none. Beside each failing call of a tool stands the model call that asked for it,
because that is where people see the error far more often. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from svc.domain.detect.detectors.base import (
    WITNESSES,
    Caller,
    Detector,
    Observation,
    ObserverContext,
    Tunable,
    caller_of,
    site,
    slot_of,
    tool,
)
from svc.domain.detect.detectors.new_signature import signature_of
from svc.domain.detect.detectors.settled_trace import SettledTrace, TracedSpan
from svc.domain.detect.engine.rate_engine import RISE
from svc.domain.marks.tool_calls import calls_of
from svc.domain.spans.span import MODEL_KINDS, ToolCall

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
    askers: Mapping[bytes, bytes] | None = None
    for subject, tool_calls in calls.items():
        failures = [(row, call) for row, call in tool_calls if call.status == "error"]
        if failures and askers is None:
            askers = _askers(trace)
        yield Observation(
            "tool_error_rate",
            subject,
            slot_of(tool_calls[0][0].started_at),
            failed=bool(failures),
            witnesses=_witnesses([row.span_id for row, _ in failures], askers or {}),
            signature=signature_of(failures[0][1].error_type, failures[0][1].error_message)
            if failures
            else None,
        )


def _witnesses(failing: Iterable[bytes], askers: Mapping[bytes, bytes]) -> tuple[bytes, ...]:
    """The failing calls, then the model calls that asked for them."""
    failures = tuple(dict.fromkeys(failing))[:WITNESSES]
    models = dict.fromkeys(askers[span_id] for span_id in failures if span_id in askers)
    return failures + tuple(span_id for span_id in models if span_id not in failures)


def _askers(trace: SettledTrace) -> Mapping[bytes, bytes]:
    """By the span of each failing call the model call that asked for it, where that is known."""
    calls = calls_of(trace)
    askers: dict[bytes, bytes] = {}
    for traced in calls.tools:
        if traced.call.status == "error" and (model := calls.asked_by(traced)) is not None:
            askers[traced.row.span_id] = model.row.span_id
    return askers


def observe_models(trace: SettledTrace, context: ObserverContext) -> Iterable[Observation]:
    """One unit for each agent that calls a model at a call site; failed when any of its calls failed, though
    another try of it went well: whoever waits or pays for tries wants to know.
    """
    calls: defaultdict[Caller, list[TracedSpan]] = defaultdict(list)
    for row in trace.spans:
        if row.kind in MODEL_KINDS:
            calls[caller_of(trace, row)].append(row)
    for caller, model_calls in calls.items():
        failures = [row for row in model_calls if row.status == "error"]
        yield Observation(
            "model_error_rate",
            site(*caller),
            slot_of(model_calls[0].started_at),
            failed=bool(failures),
            witnesses=tuple(row.span_id for row in failures)[:WITNESSES],
            signature=signature_of(failures[0].error_type, failures[0].error_message) if failures else None,
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
MODEL_ERROR: Final = Detector(
    name="model_error",
    sentence="Calls of models at a call site fail in more traces than they used to.",
    grain="trace",
    engine="rate",
    measures=("model_error_rate",),
    observe=observe_models,
    tuning={"rise": RISE_TUNING},
    by_agent=True,
)
