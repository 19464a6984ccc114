"""What a dead letter holds, as people may see it: whose it is, and its spans with their secrets masked. Pure.

Called by the REST API and the pages, in a thread: masking reads every text.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

import attrs

from protocol.inflate import Unreadable
from protocol.otlp.reading import WireSpan, read_protobuf, walk
from protocol.text import clean_value
from svc.domain.detect.secrets.masking import masked_value

SERVICE_CHARS: Final = 100


@attrs.frozen
class DeadLetterView:
    """Its spans, or why these bytes are none."""

    spans: list[dict[str, Any]]
    fault: str | None


def service_of(body: bytes) -> str | None:
    """The service of its first span; None when it says none."""
    try:
        first = next(iter(walk(read_protobuf(body))), None)
    except Unreadable:
        return None
    name = "" if first is None else str(clean_value(first.resource.attributes.get("service.name", "")))
    return name[:SERVICE_CHARS] or None


def view_of(body: bytes, most: int | None = None) -> DeadLetterView:
    """What it holds, or the first so many spans of it."""
    try:
        return DeadLetterView([_span_fields(span) for span in islice(walk(read_protobuf(body)), most)], None)
    except Unreadable as error:
        return DeadLetterView([], str(error))


def _span_fields(span: WireSpan) -> dict[str, Any]:
    return {
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "name": masked_value(clean_value(span.name)),
        "attributes": masked_value(clean_value(span.attributes)),
        "resource": masked_value(clean_value(span.resource.attributes)),
    }
