"""The calls of tools that an answer asks for, or that only the next request holds.

Owns: `calls_in_answer`, the rows of what an answer asks for; `calls_beside`, the calls that attributes of a
model's span name; `calls_in_request`, those that the end of a request holds; `text_of_calls`, the preview of
an answer that only calls tools. The mapper calls them. Never raises over what a client sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from protocol.text import clean
from svc.domain.dialects.dialect import Found
from svc.domain.spans.messages import PREVIEW_CHARS, Asked, answer, parts, role_of, text_of, unwrapped
from svc.domain.spans.span import FIRST_IN_REQUEST, ToolCall
from svc.domain.spans.tool_results import Failure
from svc.domain.spans.values import MESSAGE_CHARS, identifier, name, text

#: How OpenLIT joins the names and the ids of several calls.
_BETWEEN: Final = ", "
_UNNAMED: Final = "unknown"
#: Who may speak between a call and its result.
_ASIDE: Final = ("system", "developer")


def calls_in_answer(
    calls: Sequence[Asked], failures: Mapping[str, Failure], first: int = 0
) -> tuple[ToolCall, ...]:
    """The calls an answer asks for; how one went is known only where the answer holds its result too."""
    tool_calls = [
        ToolCall(index, name(tool_name or _UNNAMED), call_id and identifier(call_id), "ok", None, None)
        for index, (call_id, tool_name) in enumerate(calls, first)
    ]
    if failures:
        for call, (call_id, _) in zip(tool_calls, calls, strict=True):
            # No id is empty.
            if (failure := failures.get(call_id or "")) is not None:
                error_type, message = failure
                call.status, call.error_type = "error", name(error_type)
                call.error_message = message and clean(message[:MESSAGE_CHARS])
    return tuple(tool_calls)


def calls_in_request(messages: list[Any] | None, limit: int) -> tuple[ToolCall, ...]:
    """The calls at the end of a request, since somebody last said something, with what came of them.

    A request holds the calls of all rounds since then, so that each later one repeats them: their indexes
    say so, and the one with an id that was told before is dropped.
    """
    start = len(messages or ())
    for raw in reversed(messages or ()):
        message = unwrapped(raw)
        kinds = {part["type"] for part in parts(message)}
        if not kinds & {"tool_call", "tool_result"} and role_of(message) not in _ASIDE:
            break
        start -= 1
    _, calls, failures = answer((messages or [])[start:], limit)
    return calls_in_answer(calls, failures, FIRST_IN_REQUEST)


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
    for tool_name, arguments in _calls(messages, fields):
        pieces.append(f"{tool_name or ''}({text_of(arguments) or ''})")
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
