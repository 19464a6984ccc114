"""The resources: cases and traces by address, as assistants attach them to a conversation. Pure.

`svc.front.mcp.methods` lists and reads them, through the tools `get_case` and `get_trace`: one permission,
one redaction, one bound. Here is what addresses mean and how rows of cases are listed. Reads no store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from svc.front.mcp.cut import encoded

CASE_URI: Final = "case://{reference}"
TRACE_URI: Final = "trace://{trace_id}"
JSON_TYPE: Final = "application/json"
#: Longer addresses name nothing.
URI_BOUND: Final = 200

#: Scheme of an address to the tool that reads it and the argument that names the thing.
_READERS: Final = {"case": ("get_case", "id"), "trace": ("get_trace", "trace_id")}
_URI: Final = re.compile(r"([A-Za-z]+)://([^/?#]+)/?")

#: `resources/templates/list` as it is sent.
TEMPLATES: Final = msgspec.Raw(
    msgspec.json.encode(
        {
            "resourceTemplates": [
                {
                    "uriTemplate": CASE_URI,
                    "name": "case",
                    "title": "Case",
                    "description": "A case by its reference, such as case://C-12: what get_case answers.",
                    "mimeType": JSON_TYPE,
                },
                {
                    "uriTemplate": TRACE_URI,
                    "name": "trace",
                    "title": "Trace",
                    "description": "A trace with its spans, by its id of 32 hexadecimal characters: what"
                    " get_trace answers.",
                    "mimeType": JSON_TYPE,
                },
            ]
        }
    )
)


def reader_of(uri: str) -> tuple[str, dict[str, str]] | None:
    """The tool that reads an address, and its arguments; None where it can name nothing."""
    match = _URI.fullmatch(uri.strip()) if len(uri) <= URI_BOUND else None
    reader = None if match is None else _READERS.get(match[1].lower())
    if match is None or reader is None:
        return None
    tool, argument = reader
    return tool, {argument: unquote(match[2])}


def page_of(cases: Iterable[Mapping[str, Any]], next_cursor: str | None) -> dict[str, Any]:
    """A page of `resources/list`, of rows of `list_cases`."""
    page: dict[str, Any] = {"resources": [_listed(case) for case in cases]}
    return page if next_cursor is None else {**page, "nextCursor": next_cursor}


def contents(uri: str, answer: dict[str, Any], room_bytes: int) -> msgspec.Raw:
    """A resource as it is read. Raises `ToolError` when it has no room."""
    text = encoded(answer, room_bytes).decode()
    return msgspec.Raw(
        b'{"contents":[{"uri":%b,"mimeType":"application/json","text":%b}]}'
        % (msgspec.json.encode(uri), msgspec.json.encode(text))
    )


def _listed(case: Mapping[str, Any]) -> dict[str, Any]:
    reference = case["reference"]
    return {
        "uri": CASE_URI.format(reference=reference),
        "name": reference,
        "title": f"{reference}: {case['title']}",
        "description": f"Open case of {case['detector']}, severity {case['severity']}.",
        "mimeType": JSON_TYPE,
        "annotations": {"lastModified": case["last_seen_at"]},
    }
