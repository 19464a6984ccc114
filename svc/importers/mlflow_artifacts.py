"""Spans of MLflow as they lie in its artifact store, as OTLP JSON.

MLflow keeps a trace there as one file, `traces.json`, where it does not keep spans in its database: each span
a dictionary, its attributes JSON inside texts. Three forms are read: that of releases 2 (`context`), of early
releases 3 (ids in base64), and of later ones (`otel_trace_id`). Never fetches.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from svc.importers.source import hex_id, pairs_of


def artifact_spans(answer: bytes) -> list[dict[str, Any]]:
    """The spans of a file, without those that have no id or no start. `ValueError` for another file."""
    try:
        document = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ValueError("no JSON") from None
    if not isinstance(document, dict) or not isinstance(document.get("spans"), list):
        raise ValueError("no spans in it")
    spans = (_otlp(span) for span in document["spans"] if isinstance(span, dict))
    return [span for span in spans if span["traceId"] and span["spanId"] and span["startTimeUnixNano"] != "0"]


def _otlp(span: Mapping[str, Any]) -> dict[str, Any]:
    trace_id, span_id, parent_id = _ids(span)
    status = span.get("status") or {"code": span.get("status_code"), "message": span.get("status_message")}
    wire: dict[str, Any] = {
        "traceId": trace_id,
        "spanId": span_id,
        "parentSpanId": parent_id,
        "name": str(span.get("name") or ""),
        "startTimeUnixNano": _nanoseconds(span, "start_time_unix_nano", "start_time"),
        "status": {
            "code": "STATUS_CODE_" + str(status.get("code") or "UNSET").removeprefix("STATUS_CODE_"),
            "message": str(status.get("message") or ""),
        },
        "attributes": pairs_of(
            {key: _attribute_value(text) for key, text in (span.get("attributes") or {}).items()}
        ),
        "events": [
            {
                "name": str(event.get("name") or ""),
                "timeUnixNano": _nanoseconds(event, "time_unix_nano", "timestamp"),
                "attributes": pairs_of(event.get("attributes") or {}),
            }
            for event in span.get("events") or ()
        ],
    }
    end = _nanoseconds(span, "end_time_unix_nano", "end_time")
    return wire if end == "0" else {**wire, "endTimeUnixNano": end}


def _ids(span: Mapping[str, Any]) -> tuple[str, str, str]:
    """Trace, span and parent, in hexadecimal; blank where there is none."""
    if isinstance(context := span.get("context"), dict):
        texts = context.get("trace_id"), context.get("span_id"), span.get("parent_id")
    elif span.get("otel_trace_id"):
        texts = span["otel_trace_id"], span.get("span_id"), span.get("parent_span_id")
    else:
        ids = (_unbased(span.get(name)) for name in ("trace_id", "span_id", "parent_span_id"))
        return next(ids), next(ids), next(ids)
    trace_id, span_id, parent_id = (str(text or "").removeprefix("0x") for text in texts)
    return (
        hex_id(trace_id, 16) if trace_id else "",
        hex_id(span_id, 8) if span_id else "",
        hex_id(parent_id, 8) if parent_id else "",
    )


def _unbased(text: Any) -> str:
    try:
        return base64.b64decode(text or "", validate=True).hex()
    except (binascii.Error, ValueError, TypeError):
        return ""


def _nanoseconds(fields: Mapping[str, Any], *names: str) -> str:
    """The first of these that is a number, as OTLP JSON has it; 0 where none is."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
            return str(int(value))
    return "0"


def _attribute_value(text: Any) -> Any:
    """The value of an attribute, which is kept as JSON inside a text."""
    if not isinstance(text, str):
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
