"""The read side of a span: everything it said, in full, for whoever asks for the payload.

Owns: `payload_of`. The query and tool surfaces call it on a span unpacked from its stored envelope; it is
made anew at each reading, so that a better mapping serves history too. Never on the hot path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.otlp import WireSpan
from protocol.text import clean, clean_value
from svc.domain.dialects import USAGE_PREFIXES, Reading, read
from svc.domain.messages import normal
from svc.domain.span import instant
from svc.domain.values import decoded, present


def payload_of(span: WireSpan) -> dict[str, Any]:
    """`{input, output, attributes, provided_usage, events, links, resource, scope}`, fit for JSON.

    `input` and `output` are messages in the normal form of `svc.domain.messages`, else the value the span
    gives (opened when it is a JSON object or array), else null. `provided_usage` holds the attributes that
    speak of usage and cost, as they came. Times are ISO 8601 in UTC, ids hexadecimal.
    """
    attributes = span.attributes
    reading = read(attributes)
    return {
        "input": _input(span, reading),
        "output": _output(span, reading),
        "attributes": clean_value(attributes),
        "provided_usage": {
            clean(key): clean_value(value)
            for key, value in attributes.items()
            if key.startswith(USAGE_PREFIXES)
        },
        "events": [
            {
                "name": clean(event.name),
                "time": _iso(event.time_ns),
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


def _iso(unix_ns: int) -> str | None:
    return instant(unix_ns).isoformat(timespec="microseconds").replace("+00:00", "Z") if unix_ns else None


def _input(span: WireSpan, reading: Reading) -> Any:
    messages = reading.input_messages(span)
    if messages is None:
        return _value(reading.found, "tool_arguments", "input_value", "input_text")
    told = reading.instructions(span.attributes)
    if told is not None:
        messages = [{"role": "system", "content": decoded(told) or told}, *messages]
    return _messages(messages)


def _output(span: WireSpan, reading: Reading) -> Any:
    messages = reading.output_messages(span)
    if messages is None:
        return _value(reading.found, "tool_result", "output_value")
    return _messages(messages)


def _messages(messages: list[Any]) -> Any:
    try:
        return clean_value(normal(messages))
    except RecursionError:
        # Deeper than a reader could use; the attributes still hold it as it came.
        return None


def _value(found: Mapping[Any, Any], *fields: str) -> Any:
    for field in fields:
        if (value := present(found.get(field))) is not None:
            opened = decoded(value)
            try:
                return clean_value(value if opened is None else opened)
            except RecursionError:
                return clean_value(value) if type(value) is str else None
    return None
