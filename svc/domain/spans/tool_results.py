"""What a tool's result says of its own failure.

Owns: `failure_in`. The mapper asks it once a tool's span, and once a result inside an answer, on the hot
path. A result fails when it is a JSON object with `isError: true` (MCP's word; `is_error` is Anthropic's) or
a top-level `error` that says something; a JSON-RPC answer wraps such an object in `result`. An empty result
and prose never fail. Never raises over what a client sent.

Measured 2026-11 on one core: 0.2 µs for text that is no object, 2 µs for an object of 2 KB, 60 µs for one of
200 KB: what does not speak of failing is passed over, not built.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from svc.domain.spans.values import decoded, text

#: A longer result is taken for a success: what fails says so in fewer words.
MAX_RESULT_CHARS: Final = 1 << 18
#: The type of a failure that has no name of its own (the MCP conventions of OpenTelemetry).
TOOL_ERROR: Final = "tool_error"

#: How each of the keys ends that speak of failing.
_HINT: Final = 'rror"'
#: A word such as `rate_limited`; anything with digits or spaces may be of too many kinds to group by.
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z_.\-]{0,63}", re.ASCII)

Failure = tuple[str, str | None]


class _Said(msgspec.Struct):
    """The fields of a result that tell; all others are passed over, not built."""

    isError: Any = None
    is_error: Any = None
    error: Any = None
    message: Any = None
    content: msgspec.Raw | None = None
    result: msgspec.Raw | None = None


def failure_in(value: Any, *, failed: bool = False) -> Failure | None:
    """The type and message of the failure that a tool's result tells, or None for a success.

    `failed` says that it failed whatever stands in it. The message is as long as it came.
    """
    failure = _failure_of(value)
    return (TOOL_ERROR, _first_text(value)) if failure is None and failed else failure


def _failure_of(value: Any) -> Failure | None:
    if type(value) is str:
        if len(value) > MAX_RESULT_CHARS:
            return None
        head = value[:1]
        if head != "{" and (head > " " or value[:256].lstrip()[:1] != "{"):
            return None
        return _in_text(value)
    return _in_object(value) if type(value) is dict else None


def _in_text(value: str) -> Failure | None:
    try:
        outcome = _RESULT.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        # What msgspec refuses though Python clients write it: NaN, lone surrogates; or an object cut short.
        opened = decoded(value) if _HINT in value else None
        return _in_object(opened) if type(opened) is dict else None
    failure = _failure(outcome.isError, outcome.is_error, outcome.error, outcome.message)
    if failure is not None:
        if failure[1] is None and outcome.content is not None:
            return failure[0], _first_text(_opened(outcome.content))
        return failure
    inner = _opened(outcome.result) if outcome.result is not None else None
    return _in_object(inner, wrapped=True) if type(inner) is dict else None


def _in_object(fields: dict[str, Any], *, wrapped: bool = False) -> Failure | None:
    failure = _failure(
        fields.get("isError"), fields.get("is_error"), fields.get("error"), fields.get("message")
    )
    if failure is not None:
        return failure if failure[1] is not None else (failure[0], _first_text(fields.get("content")))
    inner = fields.get("result")
    return None if wrapped or type(inner) is not dict else _in_object(inner, wrapped=True)


def _failure(flag: Any, other_flag: Any, error: Any, message: Any) -> Failure | None:
    # `false`, `0`, an empty text, list or object are ways of writing that there is none.
    if not error:
        return (TOOL_ERROR, text(message)) if flag is True or other_flag is True else None
    if type(error) is str:
        return (error if _WORD.fullmatch(error) else TOOL_ERROR), error
    if type(error) is not dict:
        return TOOL_ERROR, text(message)
    error_name = text(error.get("type")) or text(error.get("code")) or text(error.get("name"))
    return error_name or TOOL_ERROR, text(error.get("message")) or text(message)


def _opened(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        # Passed over it was well-formed; opened, a number may be beyond a double.
        return None


def _first_text(content: Any) -> str | None:
    """What an MCP result says: the text of its first block that has one."""
    if type(content) is not list:
        return text(content)
    for block in content:
        if type(block) is dict and (block_text := text(block.get("text"))) is not None:
            return block_text
    return None


_RESULT: Final = msgspec.json.Decoder(_Said)
