"""Stored spans written as OTLP JSON, as another product reads it. Called by the export of a trace.

Envelopes are serialised `TracesData` of one span each. OTLP JSON is the protobuf mapping with ids in
hexadecimal and enums as numbers (OTLP specification, "JSON Protobuf Encoding").
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_IDS: Final = ("traceId", "spanId", "parentSpanId")


def otlp_json(envelopes: Iterable[bytes]) -> bytes:
    """One request that holds the span of each envelope; each is read and written alone."""
    pieces = []
    for envelope in envelopes:
        request: dict[str, Any] = MessageToDict(
            ExportTraceServiceRequest.FromString(envelope), use_integers_for_enums=True
        )
        for resource in request.get("resourceSpans", ()):
            for scope in resource.get("scopeSpans", ()):
                for span in scope.get("spans", ()):
                    _with_hex_ids(span)
            pieces.append(msgspec.json.encode(resource))
    return b'{"resourceSpans":[' + b",".join(pieces) + b"]}"


def _with_hex_ids(span: dict[str, Any]) -> None:
    for holder in (span, *span.get("links", ())):
        for name in _IDS:
            if name in holder:
                holder[name] = base64.b64decode(holder[name]).hex()
