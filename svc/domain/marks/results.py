"""What the result or the error of one call of a tool says of itself.

Owns: `http_error_in` and `own_fault`. The rules of marks ask them. Both know few forms, and only such as
leave no doubt. Pure; what they return quotes nothing that a tool said.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, Final

import re2

from svc.domain.spans.values import decoded

#: A message about an error is no longer than this: a page that explains one is.
_MESSAGE_CHARS: Final = 2_000
#: Nor is a page or an object that stands for one.
_PAGE_CHARS: Final = 20_000

#: Those of this Python, and what they were called before or since.
_REASONS: Final = "|".join(
    re.escape(phrase)
    for phrase in (
        *(status.phrase for status in HTTPStatus if status.value >= 400),
        *("Content Too Large", "Payload Too Large", "Request Entity Too Large", "Request-URI Too Long"),
        *("Unprocessable Content", "Unprocessable Entity", "Requested Range Not Satisfiable"),
    )
)
_CODE_AND_GAP: Final = r"([45][0-9]{2})[:\s-]{1,3}"
#: The first line of a message: `404 Not Found`, `HTTP/1.1 502 Bad Gateway`, `Error 403: Forbidden`, and as
#: Python's requests has it, with the address behind it.
_FIRST_LINE: Final = re2.compile(
    r"(?i)^\W{0,4}(?:(?:[a-z ]{0,40}error[a-z ]{0,40}|http(?:/[0-9.]+)?|status(?: code)?)[: ]{1,2}){0,2}"
    rf"{_CODE_AND_GAP}(?:(?:{_REASONS})\W{{0,3}}(?:$|[\r\n])"
    r"|(?:client|server) error: [^\n]{1,80} for url: )"
)
#: The title of such a page in HTML.
_TITLE: Final = re2.compile(rf"(?i)<title>\s*(?:error |http )?{_CODE_AND_GAP}(?:{_REASONS})\s*</title>")
#: Where objects have the status of an answer over HTTP, and what else an object has whose `status` is that.
_STATUS_KEYS: Final = ("status_code", "statusCode", "http_status", "httpStatus")
_PAGE_KEYS: Final = frozenset({"statusText", "status_text", "headers", "body"})
#: What stands in an object that says so: opening it takes ten times as long as looking for that.
_HINT: Final = re2.compile(
    r'(?i)"(?:status_?code|http_?status|status)" ?: ?[45][0-9]{2}|"text" ?: ?"[^"]{0,100}[45][0-9]{2}'
    r"|^\[[a-z ]{1,40}\]"
)

#: Errors of the code of a tool, whatever it was called with.
_OWN: Final = (
    "UnboundLocalError",
    "NameError",
    "ImportError",
    "ModuleNotFoundError",
    "NotImplementedError",
    "MODULE_NOT_FOUND",
    "ERR_MODULE_NOT_FOUND",
)
_FILE: Final = "FileNotFoundError"
_OWN_IN_TEXT: Final = re2.compile(rf"(?:^|[\s:('\"])({'|'.join((*_OWN, _FILE))})(?:: |\()")
#: The path that a message about a missing file names.
_PATH: Final = re.compile(r"No such file or directory: ['\"]([^'\"]+)['\"]")
#: Arguments that hold code: then the error may be of that.
_CODE: Final = re2.compile(
    r"(?i)\"(?:[a-z_]*code|script|command|cmd|program|expression|source|python|sql)\" ?:"
)


def http_error_in(result: str) -> str | None:
    """The HTTP error that a successful result is, in words; None for any other result."""
    if len(result) > _PAGE_CHARS:
        return None
    if result[:1] not in ("{", "["):
        return _in_text(result)
    # Two plain searches, which nearly every result ends at, take a tenth of the pattern.
    if ("tatus" not in result and '"text"' not in result and result[0] == "{") or not _HINT.search(result):
        return None
    opened = decoded(result)
    return _in_text(result) if opened is None else _in_object(opened)


def _in_text(result: str) -> str | None:
    match = _FIRST_LINE.search(result) if len(result) <= _MESSAGE_CHARS else None
    if match is None and "<title>" in result[:_MESSAGE_CHARS]:
        match = _TITLE.search(result[:_MESSAGE_CHARS])
    return None if match is None else f"status {match[1]}"


def _in_object(fields: Any) -> str | None:
    if type(fields) is not dict:
        return None
    keys = _STATUS_KEYS if _PAGE_KEYS.isdisjoint(fields) else (*_STATUS_KEYS, "status")
    for key in keys:
        if type(code := fields.get(key)) is int:
            return f"status {code}" if 400 <= code < 600 else None
    # As MCP has it.
    content = fields.get("content")
    if type(content) is list and len(content) == 1 and type(block := content[0]) is dict:
        return _in_text(block["text"]) if type(block.get("text")) is str else None
    return None


def own_fault(error_type: str | None, message: str | None, arguments: str | None) -> str | None:
    """The class of an error that is of the tool's own code; None for any other, and where the arguments may
    have caused it.
    """
    name = (error_type or "").rpartition(".")[2]
    if name not in _OWN and name != _FILE:
        match = _OWN_IN_TEXT.search(message[:_MESSAGE_CHARS]) if message else None
        if match is None:
            return None
        name = match[1]
    if arguments is None or _CODE.search(arguments):
        return None
    if name == _FILE:
        path = _PATH.search(message or "")
        if path is None or _mentions(arguments, path[1]):
            return None
    return str(name)


def _mentions(arguments: str, path: str) -> bool:
    """Whether a path or the name of its file stands in the arguments."""
    return path.rstrip("/").rpartition("/")[2].lower() in arguments.lower()
