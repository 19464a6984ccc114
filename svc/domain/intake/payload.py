"""The read side of a span: everything it said, in full, for whoever asks for the payload.

Owns: `payload_of`. The query and tool surfaces call it on a span unpacked from its stored envelope; it is
made anew at each reading, so that a better mapping serves history too. Never on the hot path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.otlp.reading import WireSpan
from protocol.rest.query import timestamp
from protocol.text import clean, clean_value
from svc.domain.dialects import Reading, is_usage, read, read_details
from svc.domain.intake.mapping import kind_of, name_after_operation
from svc.domain.spans.documents import documents_in, normal_documents
from svc.domain.spans.messages import normal
from svc.domain.spans.span import Kind, instant
from svc.domain.spans.values import decoded, present


def payload_of(span: WireSpan) -> dict[str, Any]:
    """`{input, output, attributes, provided_usage, events, links, resource, scope}`, fit for JSON.

    Beside these, only when known: `finish_reasons` (texts), `agent`, `workflow`, `time_to_first_token_ms`,
    `parameters` (an object), `documents` (in the normal form of `svc.domain.spans.documents`) and, of a
    tool's span, `tool` (`{name, call_id, description, arguments, result}`, as far as known).

    `input` and `output` are messages in the normal form of `svc.domain.spans.messages`, else the value the
    span gives (opened when it is a JSON object or array), else null. `provided_usage` holds the attributes
    that speak of usage and cost, as they came. Times are ISO 8601 in UTC, ids hexadecimal.
    """
    attributes = span.attributes
    reading = read(attributes)
    if reading.is_silent():
        reading.hear_name(span)
    # What calls a model and has no kind of its own is no tool and no retrieval.
    kind = kind_of(reading.found, False)
    if _is_tool(kind):
        reading.hear_tool(span)
    input_value, output_value = _input(span, reading, kind), _output(span, reading, kind)
    return {
        "input": input_value,
        "output": output_value,
        **_details(span, reading, kind, output_value),
        "attributes": clean_value(attributes),
        "provided_usage": {
            clean(key): clean_value(value) for key, value in attributes.items() if is_usage(key)
        },
        "events": [
            {
                "name": clean(event.name),
                "time": timestamp(instant(event.time_ns)) if event.time_ns else None,
                "attributes": clean_value(event.attributes),
            }
            for event in span.events
        ],
        "links": [
            {
                "trace_id": link.trace_id.hex(),
                "span_id": link.span_id.hex(),
                "attributes": clean_value(link.attributes),
            }
            for link in span.links
        ],
        "resource": {
            "attributes": clean_value(span.resource.attributes),
            "schema_url": clean(span.resource.schema_url),
        },
        "scope": {
            "name": clean(span.scope.name),
            "version": clean(span.scope.version),
            "attributes": clean_value(span.scope.attributes),
            "schema_url": clean(span.scope.schema_url),
        },
    }


def _is_tool(kind: Kind) -> bool:
    return kind == "tool" or kind == "mcp"


def _input(span: WireSpan, reading: Reading, kind: Kind) -> Any:
    if _is_tool(kind) and "tool_arguments" in reading.found:
        return _value(reading.found, "tool_arguments")
    messages = reading.input_messages(span)
    if not messages:
        value = _value(reading.found, "tool_arguments", "input_value", "input_text")
        if value is not None:
            return value
    instructions = reading.instructions(span.attributes)
    if instructions is not None:
        # An agent is made with instructions and no messages.
        messages = [{"role": "system", "content": decoded(instructions) or instructions}, *(messages or ())]
    return _messages(messages) if messages else None


def _output(span: WireSpan, reading: Reading, kind: Kind) -> Any:
    if _is_tool(kind) and "tool_result" in reading.found:
        return _value(reading.found, "tool_result")
    messages = reading.output_messages(span)
    if not messages:
        return _value(reading.found, "tool_result", "output_value")
    return _messages(messages)


def _details(span: WireSpan, reading: Reading, kind: Kind, output_value: Any) -> dict[str, Any]:
    details: dict[str, Any] = {detail: value for detail, value in read_details(span).items()}
    description = details.pop("tool_description", None)
    if "finish_reasons" not in details and type(output_value) is list:
        details["finish_reasons"] = [
            message["finish_reason"]
            for message in output_value
            if type(message) is dict and type(message.get("finish_reason")) is str
        ]
    documents = reading.documents(span)
    if documents is None and (kind == "retrieval" or kind == "reranker"):
        documents = documents_in(output_value)
    details["documents"] = normal_documents(documents) if documents else None
    if _is_tool(kind):
        fields = reading.found
        tool = {
            "name": fields.get("tool_name") or name_after_operation(span.name),
            "call_id": fields.get("tool_call_id"),
            "description": description,
            "arguments": _value(fields, "tool_arguments", "input_value"),
            "result": _value(fields, "tool_result", "output_value"),
        }
        details["tool"] = {key: value for key, value in tool.items() if value is not None}
    try:
        return {key: clean_value(value) for key, value in details.items() if value or value == 0}
    except RecursionError:
        return {}


def _messages(messages: list[Any]) -> Any:
    try:
        return clean_value(normal(messages))
    except RecursionError:
        # Deeper than a reader could use; the attributes still hold it as it came.
        return None


def _value(values: Mapping[Any, Any], *fields: str) -> Any:
    for field in fields:
        if (value := present(values.get(field))) is not None:
            opened = decoded(value)
            try:
                return clean_value(value if opened is None else opened)
            except RecursionError:
                return clean_value(value) if type(value) is str else None
    return None
