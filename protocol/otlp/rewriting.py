"""Changing the texts of a request before its spans are walked.

Owns which fields of a span are texts that somebody said: names, messages, values of attributes of any depth.
Keys, ids and bytes are none. Called by the decoders; where there may be something to change, and what a text
becomes, is told by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from protocol.otlp.variants import packed_span

#: Where in serialised bytes a text to change may be, perhaps with bytes around it; asked before anything is
#: opened.
Suspects = Callable[[bytes], Sequence[tuple[int, int]]]
#: What a text in UTF-8 becomes.
Change = Callable[[bytes], bytes]

_ANYWHERE: Final = ((0, 1 << 62),)


def rewrite(request: Any, suspects: Suspects, change: Change) -> None:
    """Change the texts of a request of `read_clean`, in place.

    A span that is damaged is left as it is: `walk` says so.
    """
    for resource_spans in request.resource_spans:
        _rewrite_surrounding(resource_spans.resource.attributes, suspects, change)
        for scope_spans in resource_spans.scope_spans:
            _rewrite_surrounding(scope_spans.scope.attributes, suspects, change)
            spans = scope_spans.spans
            for index, raw in enumerate(spans):
                if stretches := suspects(raw):
                    spans[index] = _span(raw, stretches, change)


def _rewrite_surrounding(attributes: Any, suspects: Suspects, change: Change) -> None:
    for index, raw in enumerate(attributes):
        if suspects(raw):
            _rewrite_attribute(attributes, index, raw, change)


def _span(raw: bytes, stretches: Sequence[tuple[int, int]], change: Change) -> bytes:
    span: Any
    try:
        span = packed_span().FromString(raw)
    except DecodeError:
        return raw
    _rewrite_text(span, "name", change)
    if span.HasField("status"):
        _rewrite_text(span.status, "message", change)
    _rewrite_attributes(raw, 0, span.attributes, stretches, change)
    for event in span.events:
        _rewrite_text(event, "name", change)
        _rewrite_attributes(raw, 0, event.attributes, _ANYWHERE, change)
    for link in span.links:
        _rewrite_attributes(raw, 0, link.attributes, _ANYWHERE, change)
    rewritten: bytes = span.SerializeToString()
    return rewritten


def _rewrite_text(message: Any, field: str, change: Change) -> None:
    text: str = getattr(message, field)
    if text:
        current = text.encode()
        changed = change(current)
        if changed != current:
            setattr(message, field, changed.decode())


def _rewrite_attributes(
    raw: bytes, offset: int, attributes: Any, stretches: Sequence[tuple[int, int]], change: Change
) -> None:
    """Change those attributes that a stretch touches; they stand in `raw` one behind the other, as a rule."""
    for index, attribute in enumerate(attributes):
        start = -1 if stretches is _ANYWHERE else raw.find(attribute, offset)
        if start >= 0:
            offset = end = start + len(attribute)
            if not any(low < end and start < high for low, high in stretches):
                continue
        _rewrite_attribute(attributes, index, attribute, change)


def _rewrite_attribute(attributes: Any, index: int, raw: bytes, change: Change) -> None:
    try:
        pair = KeyValue.FromString(raw)
    except DecodeError:
        return
    if _rewrite_value(pair.value, change):
        attributes[index] = pair.SerializeToString()


def _rewrite_value(value: Any, change: Change) -> bool:
    """Whether anything changed. No deeper than protobuf reads: a hundred messages."""
    match value.WhichOneof("value"):
        case "string_value":
            current = value.string_value.encode()
            changed = change(current)
            if changed == current:
                return False
            value.string_value = changed.decode()
            return True
        case "array_value":
            return any([_rewrite_value(item, change) for item in value.array_value.values])
        case "kvlist_value":
            return any([_rewrite_value(pair.value, change) for pair in value.kvlist_value.values])
        case _:
            return False
