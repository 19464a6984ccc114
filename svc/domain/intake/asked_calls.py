"""The calls of tools that an answer asks for, where it says nothing else or names them beside its messages.

Owns: `calls_beside`, the calls that attributes of a model's span name, and `text_of_calls`, what is pieces of
an answer that only calls tools. The mapper calls both, off the common path. Never raises over what was sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from svc.domain.dialects.dialect import Found
from svc.domain.spans.messages import PREVIEW_CHARS, Asked, parts, text_of, unwrapped
from svc.domain.spans.values import text

#: How OpenLIT joins the names and the ids of several calls.
_BETWEEN: Final = ", "


def calls_beside(fields: Found, limit: int) -> list[Asked]:
    """The id and name of each call that the attributes of a model's span name, at most `limit`."""
    tool_name, call_id = fields.get("tool_name"), fields.get("tool_call_id")
    if tool_name is None:
        return []
    names = tool_name.split(_BETWEEN)[:limit]
    ids = [] if call_id is None else call_id.split(_BETWEEN)[:limit]
    if len(ids) == len(names):
        return [(text(part), name) for part, name in zip(ids, names, strict=True)]
    return [(call_id if len(names) == 1 else None, name) for name in names]


def text_of_calls(messages: list[Any] | None, fields: Found) -> str | None:
    """The first calls as `name(arguments)`, as many as a preview has room for."""
    pieces: list[str] = []
    length = 0
    for name, arguments in _calls(messages, fields):
        pieces.append(f"{name or ''}({text_of(arguments) or ''})")
        length += len(pieces[-1])
        if length > PREVIEW_CHARS:
            break
    return ", ".join(pieces) or None


def _calls(messages: list[Any] | None, fields: Found) -> Iterable[tuple[str | None, Any]]:
    has_calls = False
    for raw in messages or ():
        for part in parts(unwrapped(raw)):
            if part["type"] == "tool_call":
                has_calls = True
                yield text(part["name"]), part["arguments"]
    if not has_calls:
        yield fields.get("tool_name"), fields.get("tool_arguments")
