"""JSON-RPC 2.0 as the MCP endpoint speaks it: reading envelopes, and the two kinds of response.

Differences from the JSON-RPC text, all from the interface specification: JSON that is no envelope is -32700,
an empty body is -32600, and a null `id` makes a notification. An `id` is echoed as the bytes that came, so
that `7`, `"7"` and integers beyond 64 bits come back as they were.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec

from protocol.validation import unread_text

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
#: Of MCP up to 2025-11-25: the named resource is not there.
RESOURCE_NOT_FOUND: Final = -32002
#: Of MCP from 2026-07-28 on: headers that differ from the body, and a version that is not spoken.
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022
#: Ours, of those that the text leaves to servers: a member of a batch that has no room or no time left.
OVER_BUDGET: Final = -32000

#: The protocol that both of our ends speak: the server of the doors, and the client of a run.
PROTOCOL_VERSION: Final = "2025-06-18"

#: Messages of one batch that are answered; a longer one is refused whole.
BATCH_BOUND: Final = 50

NULL_ID: Final = msgspec.Raw(b"null")


@attrs.frozen
class Fault:
    """An error to be told; `id` is null when the request's could not be read. `data` says more, if set."""

    code: int
    message: str
    id: msgspec.Raw = NULL_ID
    data: Any = msgspec.UNSET


@attrs.frozen
class Request:
    """A call that wants an answer."""

    id: msgspec.Raw
    method: str
    params: Any


@attrs.frozen
class Notification:
    """An envelope without an id, or a client's response: accepted and dropped."""


Message = Request | Notification | Fault


class _Envelope(msgspec.Struct):
    jsonrpc: msgspec.Raw = NULL_ID
    id: msgspec.Raw = NULL_ID
    method: msgspec.Raw = NULL_ID
    params: msgspec.Raw = NULL_ID
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def read_messages(body: bytes) -> Message | list[Message]:
    """The one message of a body, or the messages of a batch. Never raises."""
    if not body.strip(b" \t\r\n"):
        return Fault(INVALID_REQUEST, "empty body")
    try:
        # Everything is read once, to its depth: text that is no UTF-8 or no JSON ends here.
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Fault(PARSE_ERROR, f"the body is not JSON: {unread_text(error, body)}"[:300])
    if not body.lstrip(b" \t\r\n").startswith(b"["):
        return _message(body)
    items = msgspec.json.decode(body, type=list[msgspec.Raw])
    if not items:
        return Fault(INVALID_REQUEST, "empty batch")
    if len(items) > BATCH_BOUND:
        return Fault(INVALID_REQUEST, f"a batch holds at most {BATCH_BOUND} messages")
    return [_message(bytes(item)) for item in items]


def _message(raw: bytes) -> Message:
    try:
        envelope = msgspec.json.decode(raw, type=_Envelope)
    except msgspec.ValidationError as error:
        return Fault(PARSE_ERROR, f"malformed JSON-RPC envelope: {error}")
    id_ = envelope.id
    # A string or a number; the first byte tells.
    if bytes(id_)[:1] not in b'"-0123456789n':
        return Fault(PARSE_ERROR, "malformed JSON-RPC envelope: id must be a string or a number")
    if msgspec.json.decode(envelope.jsonrpc) != "2.0":
        return Fault(INVALID_REQUEST, 'jsonrpc must be "2.0"', id_)
    method = msgspec.json.decode(envelope.method)
    if type(method) is not str:
        if method is None and (envelope.result, envelope.error) != (msgspec.UNSET, msgspec.UNSET):
            return Notification()
        detail = "method is missing" if method is None else "method must be a string"
        return Fault(PARSE_ERROR, f"malformed JSON-RPC envelope: {detail}", id_)
    params = msgspec.json.decode(envelope.params)
    if params is not None and type(params) not in (dict, list):
        return Fault(PARSE_ERROR, "malformed JSON-RPC envelope: params must be an object", id_)
    return Notification() if bytes(id_) == b"null" else Request(id_, method, params)


def success(id_: msgspec.Raw, result: Any) -> bytes:
    """A response with a result."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id_, "result": result})


def failure(fault: Fault, *, null_id: bool = True) -> bytes:
    """A response with an error; without `null_id` an id that could not be read is left out."""
    error: dict[str, Any] = {"code": fault.code, "message": fault.message}
    if fault.data is not msgspec.UNSET:
        error["data"] = fault.data
    id_ = {} if not null_id and bytes(fault.id) == b"null" else {"id": fault.id}
    return msgspec.json.encode({"jsonrpc": "2.0", **id_, "error": error})
