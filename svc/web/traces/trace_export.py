"""A trace as a file: as this service reads it (JSON), or as it came (OTLP JSON). Bounded, in a thread."""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from protocol.inflate import Unreadable
from protocol.otlp.json_writing import otlp_json
from protocol.refusals import BAD_REQUEST, PAYLOAD_HOLDS_TOO_MUCH, Refusal
from protocol.rest.query import jsonable
from svc.store.reads.one_trace.trace_payloads import (
    EXPORT_BYTES,
    MOST_EXPORTED,
    Exported,
    TooLargeToExport,
    TracePayloads,
)
from svc.store.reads.payloads import said_in
from svc.web.shell import words
from svc.web.shell.page import PageRoute, Sent, Visit
from svc.web.shell.render import packers
from svc.web.traces.one_trace import TRACE, opened


async def export(visit: Visit) -> Sent | Refusal:
    """The file."""
    form = visit.query.get("form", "json")
    if form not in ("json", "otlp"):
        return BAD_REQUEST.saying("form is json or otlp")
    opened_trace = await opened(visit)
    contents = await TracePayloads(visit.means.history).export(
        visit.project.id, opened_trace.trace_id, opened_trace.head
    )
    if isinstance(contents, TooLargeToExport):
        return PAYLOAD_HOLDS_TOO_MUCH.saying(
            f"this trace is too large for one file: {words.count(contents.spans)} spans; at most"
            f" {words.count(MOST_EXPORTED)} spans of {words.size(EXPORT_BYTES)} together are exported, and"
            " GET …/spans/{trace}/{span}/payload of the API has each span whole"
        )
    name = f"trace-{opened_trace.trace_id.hex()}.{'otlp.' if form == 'otlp' else ''}json"
    if form == "otlp":
        body = await trio.to_thread.run_sync(_otlp, contents, limiter=packers)
    else:
        body = await trio.to_thread.run_sync(_json, opened_trace.fields, contents, limiter=packers)
    return Sent(body, file_name=name)


def _otlp(contents: Exported) -> bytes:
    return otlp_json(contents.envelopes())


def _json(fields: dict[str, Any], contents: Exported) -> bytes:
    pieces = []
    for row, envelope in contents.spans():
        try:
            payload = said_in(envelope) if envelope is not None else {}
        except Unreadable:
            payload = {}
        pieces.append(msgspec.json.encode({**row, **payload}, enc_hook=jsonable))
    head = msgspec.json.encode(fields, enc_hook=jsonable)
    return head[:-1] + b',"spans":[' + b",".join(pieces) + b"]}"


PAGES = (PageRoute("GET", TRACE + "/export", "ORG_VIEW", export),)
