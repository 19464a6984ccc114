"""A trace as a file: as this service reads it (JSON), or as it came (OTLP JSON). Bounded, in a thread."""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from protocol.inflate import Unreadable
from protocol.otlp.json_writing import otlp_json
from protocol.refusals import BAD_REQUEST, PAYLOAD_HOLDS_TOO_MUCH, Refusal
from protocol.rest.query import jsonable
from svc.store.reads.payloads import said_in
from svc.store.reads.trace_payloads import (
    EXPORT_BYTES,
    MOST_EXPORTED,
    Exported,
    TooLargeToExport,
    TracePayloads,
)
from svc.web import words
from svc.web.one_trace import TRACE, opened, packers
from svc.web.page import PageRoute, Sent, Visit


async def export(visit: Visit) -> Sent | Refusal:
    """The file."""
    form = visit.query.get("form", "json")
    if form not in ("json", "otlp"):
        return BAD_REQUEST.saying("form is json or otlp")
    found = await opened(visit)
    told = await TracePayloads(visit.means.history).export(visit.project.id, found.trace_id, found.head)
    if isinstance(told, TooLargeToExport):
        return PAYLOAD_HOLDS_TOO_MUCH.saying(
            f"this trace is too large for one file: {words.count(told.spans)} spans; at most"
            f" {words.count(MOST_EXPORTED)} spans of {words.size(EXPORT_BYTES)} together are exported, and"
            " GET …/spans/{trace}/{span}/payload of the API has each span whole"
        )
    name = f"trace-{found.trace_id.hex()}.{'otlp.' if form == 'otlp' else ''}json"
    if form == "otlp":
        body = await trio.to_thread.run_sync(otlp_json, told.envelopes, limiter=packers)
    else:
        body = await trio.to_thread.run_sync(_json, found.fields, told, limiter=packers)
    return Sent(body, file_name=name)


def _json(fields: dict[str, Any], told: Exported) -> bytes:
    pieces = []
    for row, envelope in told.spans:
        try:
            said = said_in(envelope) if envelope is not None else {}
        except Unreadable:
            said = {}
        pieces.append(msgspec.json.encode({**row, **said}, enc_hook=jsonable))
    head = msgspec.json.encode(fields, enc_hook=jsonable)
    return head[:-1] + b',"spans":[' + b",".join(pieces) + b"]}"


PAGES = (PageRoute("GET", TRACE + "/export", "ORG_VIEW", export),)
