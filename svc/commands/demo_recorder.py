"""Spans of the demo's story in the making, and the shapes that they are sent in.

Owns: `Recorder`, which puts one span after another into a trace, `StoryTrace`, what it becomes, and the
conversions to OTLP. Called by the applications of the story and by whoever sends it. Pure: times and dice are
handed in.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from svc.commands.demo_pictures import as_base64

Attributes = dict[str, str | int | float | list[str]]

#: By this attribute an application names its call site itself.
CALL_SITE: Final = "svc.call_site.id"
#: How long after its start a parent calls its first child.
CALLS_AFTER_NS: Final = 1_000_000


def pairs(attributes: Attributes) -> list[KeyValue]:
    """Attributes as OTLP has them."""
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: str | int | float | list[str]) -> AnyValue:
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=map(_value, value)))
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(double_value=value)


def as_json(value: Any) -> str:
    """A value as the text of an attribute."""
    return msgspec.json.encode(value).decode()


def request_of(resource: Attributes, scope: str, spans: list[Span]) -> ExportTraceServiceRequest:
    """One export request."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.extend(pairs(resource))
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = scope
    scope_spans.spans.extend(spans)
    return request


@attrs.frozen(eq=False)
class StoryTrace:
    """One trace of the story: the resource that sends it, its spans, and what people thought of it, as
    `POST /v1/feedback` takes it.
    """

    resource: Attributes
    spans: list[Span]
    feedback: Sequence[Mapping[str, Any]] = ()

    @property
    def ended_at_ns(self) -> int:
        """When its last span ended."""
        return max(span.end_time_unix_nano for span in self.spans)


class Recorder:
    """Spans one after the other under a root. `extras` are dice of their own, for what came to the story
    later: `dice` make the ids, which stay as they are.
    """

    def __init__(self, dice: random.Random, at: datetime, who: Attributes) -> None:
        self.dice, self.who = dice, who
        self.spans: list[Span] = []
        self._at_ns = int(at.timestamp() * 1e6) * 1000
        self._trace_id = dice.randbytes(16)
        self._by_id: dict[bytes, Span] = {}
        self.extras = random.Random(self._trace_id)  # noqa: S311 - sample data

    def span(
        self,
        name: str,
        took_s: float,
        attributes: Attributes,
        error: str | None = None,
        parent: Span | None = None,
    ) -> Span:
        """The first one is the root, and the parent of all that name none; a parent takes no time but that
        of its children, and ends with the last of them.
        """
        if parent is None and self.spans:
            parent = self.spans[0]
        span = Span(
            trace_id=self._trace_id,
            span_id=self.dice.randbytes(8),
            parent_span_id=b"" if parent is None else parent.span_id,
            name=name,
            kind=Span.SPAN_KIND_CLIENT if parent is not None and took_s else Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=self._at_ns,
            end_time_unix_nano=self._at_ns + int(took_s * 1e9),
            attributes=pairs(self.who | attributes),
        )
        if error is not None:
            span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=error))
        self.spans.append(span)
        self._by_id[span.span_id] = span
        if parent is not None:
            self._at_ns = span.end_time_unix_nano
        if not took_s:
            # Who calls starts before whom it calls.
            self._at_ns += CALLS_AFTER_NS
        while parent is not None:
            parent.end_time_unix_nano = max(parent.end_time_unix_nano, self._at_ns)
            parent = self._by_id.get(parent.parent_span_id)
        return span

    def took(self, usual_s: float, spread: float = 0.35) -> float:
        """A duration around the usual one."""
        return usual_s * self.dice.lognormvariate(0, spread)

    def opinion(self, name: str, **entry: Any) -> dict[str, Any]:
        """What somebody thought of the trace, right after it."""
        root = self.spans[0]
        at = datetime.fromtimestamp(root.end_time_unix_nano / 1e9, UTC)
        trace_id = root.trace_id.hex()
        return {
            "id": f"demo-{name}-{trace_id}",
            "name": name,
            "trace_id": trace_id,
            "at": at.isoformat(),
            **entry,
        }


def chat(
    model: tuple[str, str, str], inputs: list[Any], outputs: list[Any], tokens: tuple[int, int, int]
) -> Attributes:
    """A call of a model as the GenAI conventions tell it: provider, model asked and model that answered;
    messages; input, cached and output tokens.
    """
    provider, request_model, response_model = model
    reason = "tool_call" if any(part["type"] == "tool_call" for part in outputs) else "stop"
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": request_model,
        "gen_ai.response.model": response_model,
        "gen_ai.input.messages": as_json(inputs),
        "gen_ai.response.finish_reasons": [reason],
        "gen_ai.output.messages": as_json([{"role": "assistant", "parts": outputs, "finish_reason": reason}]),
        "gen_ai.usage.input_tokens": tokens[0],
        "gen_ai.usage.cache_read.input_tokens": tokens[1],
        "gen_ai.usage.output_tokens": tokens[2],
    }


def streamed(recorder: Recorder, took_s: float) -> Attributes:
    """That an answer came in pieces, and after how many seconds its first one."""
    return {
        "gen_ai.request.stream": True,
        "gen_ai.response.time_to_first_chunk": round(took_s * recorder.extras.uniform(0.12, 0.3), 3),
    }


def message(role: str, *parts: Mapping[str, Any]) -> dict[str, Any]:
    """A message as the GenAI conventions have it."""
    return {"role": role, "parts": list(parts)}


def text_part(content: str) -> dict[str, Any]:
    """A part that is text."""
    return {"type": "text", "content": content}


def picture_part(png: bytes) -> dict[str, Any]:
    """A part that is a picture, in the message itself."""
    return {"type": "blob", "modality": "image", "mime_type": "image/png", "content": as_base64(png)}


def call_part(call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A part by which a model asks for a tool."""
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def result_part(call_id: str, value: Any) -> dict[str, Any]:
    """A part that answers such a call."""
    return {"type": "tool_call_response", "id": call_id, "response": value}
