"""The calls of tools in a settled trace, each with the model call that asked for it.

Owns: `TracedCall`, `ModelCall`, `CallsOfTrace` and `calls_of`. The rules of marks and the detector of failing
tools read them. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Final

import attrs
import msgspec

from svc.domain.detect.detectors.answers import AskedCall
from svc.domain.detect.detectors.settled_trace import CALLED, SettledTrace, SpanTexts, TracedSpan
from svc.domain.spans.span import ToolCall

#: A call is answered by one of so many that begin after it was asked for.
_LOOKED_AT: Final = 500


# Structs: one for each span.
class TracedCall(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A call of a tool that has a span of its own; `texts` are None where its payload is not there."""

    row: TracedSpan
    call: ToolCall
    texts: SpanTexts | None


class ModelCall(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A call of a model; `texts` are None where its payload is not there."""

    row: TracedSpan
    texts: SpanTexts | None


@attrs.frozen(eq=False)
class CallsOfTrace:
    """Calls of tools and of models, in order of start."""

    tools: Sequence[TracedCall]
    models: Sequence[ModelCall]
    _by_call_id: Mapping[str, Sequence[ModelCall]]
    _by_parent: Mapping[bytes | None, Sequence[ModelCall]]

    def asked_by(self, tool: TracedCall) -> ModelCall | None:
        """The model call that asked for this one: by the id of the call, else the nearest earlier one beside
        it, else the one above it, unless that is known to have asked for something else.
        """
        if tool.call.call_id is not None and (requests := self._by_call_id.get(tool.call.call_id)):
            return _latest(requests, tool)
        parent = tool.row.parent_span_id
        candidate = _latest(self._by_parent.get(parent, ()), tool) or self._by_span_id.get(parent or b"")
        return candidate if candidate is not None and _may_have_asked(candidate, tool) else None

    def answer_to(self, model: ModelCall, request: AskedCall) -> TracedCall | None:
        """The tool's own span for a call that this model call asked for, None where it has none."""
        first = bisect_left(self.tools, model.row.started_at, key=_start)
        for tool in self.tools[first : first + _LOOKED_AT]:
            if request.call_id is not None and tool.call.call_id is not None:
                if tool.call.call_id == request.call_id:
                    return tool
            elif tool.call.name == request.name and self.asked_by(tool) is model:
                arguments = None if tool.texts is None else tool.texts.arguments
                if arguments is None or arguments == request.arguments:
                    return tool
        return None

    @cached_property
    def _by_span_id(self) -> Mapping[bytes, ModelCall]:
        return {model.row.span_id: model for model in self.models}


def _start(call: TracedCall | ModelCall) -> datetime:
    return call.row.started_at


def _latest(models: Sequence[ModelCall], tool: TracedCall) -> ModelCall | None:
    """The last that started before the tool did."""
    count = bisect_right(models, tool.row.started_at, key=_start)
    return models[count - 1] if count else None


def _may_have_asked(model: ModelCall, tool: TracedCall) -> bool:
    """Whether nothing that the model answered speaks against it."""
    if model.texts is None or not model.texts.answered:
        return True
    return any(
        request.name == tool.call.name
        and (request.call_id is None or tool.call.call_id is None or request.call_id == tool.call.call_id)
        for request in model.texts.calls
    )


def calls_of(trace: SettledTrace) -> CallsOfTrace:
    """The calls of a trace."""
    tools: list[TracedCall] = []
    models: list[ModelCall] = []
    by_call_id: defaultdict[str, list[ModelCall]] = defaultdict(list)
    by_parent: defaultdict[bytes | None, list[ModelCall]] = defaultdict(list)
    texts_by_id = trace.texts
    for row in trace.spans:
        kind = row.kind
        if kind in CALLED:
            # A span whose call another one tells has none of its own.
            for call in row.tool_calls:
                tools.append(TracedCall(row, call, texts_by_id.get(row.span_id)))
        elif kind == "llm":
            model = ModelCall(row, texts_by_id.get(row.span_id))
            models.append(model)
            by_parent[row.parent_span_id].append(model)
            if model.texts is not None:
                for request in model.texts.calls:
                    if request.call_id is not None:
                        by_call_id[request.call_id].append(model)
    return CallsOfTrace(tools, models, by_call_id, by_parent)
