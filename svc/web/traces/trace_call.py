"""The list of traces as a client asks for it: as a tool of MCP, and as a question to the query API."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

from svc.web.shell.filters import Filters
from svc.web.shell.page import Visit
from svc.web.shell.ranges import TimeRange

#: Fields of spans, and the filters of the list that ask for them.
SPAN_FIELDS: Final = {
    "model_id": "model",
    "kind": "kind",
    "call_site_id": "call_site_id",
    "status": "span_status",
    "session_id": "session_id",
    "user_id": "user_id",
}


def as_call(filters: Filters, range_: TimeRange, visit: Visit, limit: int) -> dict[str, Any]:
    """This view as a question to MCP and to the query API, and what they have no word for."""
    native_fields = {"call_site_id", "model", "kind", "status"}
    span_filters = {
        name: filters.asked[field] for name, field in SPAN_FIELDS.items() if field in filters.asked
    }
    if "status" in filters.asked:
        # Of a trace that failed, the spans that did.
        span_filters.setdefault("status", filters.asked["status"])
    span_filters |= dict(filters.asked.get("attributes", ()))
    arguments: dict[str, Any] = {
        name: value for name, value in filters.asked.items() if name in native_fields
    }
    if filters.asked.keys() & {"attributes", "span_status"}:
        # Several things of one span have one argument.
        arguments = {name: value for name, value in arguments.items() if name == "status"}
        arguments["filters"] = span_filters
    if filters.text:
        arguments["q"] = filters.text
    arguments["range"] = {name: value for name, value in range_.instants.items() if name in ("from", "to")}
    arguments["limit"] = limit
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "list_traces", "arguments": arguments},
    }
    # The query API knows spans: those that such traces hold.
    spans: dict[str, Any] = {"dataset": "spans", "range": arguments["range"], "limit": limit}
    spans |= {"filters": span_filters} if span_filters else {}
    spans |= {"q": filters.text} if filters.text else {}
    origin = visit.origin
    return {
        "rest": f'curl -sS {origin}/v1/query/search \\\n  -H "Authorization: Bearer $QUERY_KEY" \\\n'
        f"  -H 'Content-Type: application/json' \\\n  -d '{_quoted(spans)}'",
        "rest_left_out": _left_out(filters, {"status", *SPAN_FIELDS.values()}),
        "mcp": msgspec.json.format(msgspec.json.encode(call["params"]), indent=2).decode(),
        "curl": f'curl -sS {origin}/mcp \\\n  -H "Authorization: Bearer $ADMIN_KEY" \\\n'
        f"  -H 'Content-Type: application/json' \\\n  -d '{_quoted(call)}'",
        "left_out": _left_out(filters, native_fields),
    }


def _quoted(body: dict[str, Any]) -> str:
    """A body between the single quotes of a shell."""
    return msgspec.json.encode(body).decode().replace("'", "'\\''")


def _left_out(filters: Filters, native_fields: set[str]) -> list[str]:
    excluded = ("without", "without_marks", "without_feedback")
    left_out = {
        "what is excluded" if name in excluded else name
        for name in set(filters.asked) - native_fields - {"one_span", "span_status", "attributes"}
    }
    # An object has one value of a name, the last.
    names = Counter(name for name, _ in filters.asked.get("attributes", ()))
    return sorted(left_out | {f"the first {name}" for name, values in names.items() if values > 1})
