"""MCP 2026-07-28: no handshake; every request says its version and what its client can do.

`svc.front.mcp.endpoint` asks `speaks` which protocol a body is of, and has `Stateless` answer those of this
one. The methods are those of `svc.front.mcp.methods`; here is what this version demands around them: headers
that say the same as the body, `server/discover`, `resultType`, hints for caches, its error codes and their
HTTP status. Decides nothing by who the client says it is.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from actors.keys import Grant
from protocol.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    PROTOCOL_VERSION,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Fault,
    Message,
    Request,
)
from svc.front.mcp.methods import SERVER_INFO, Methods, unknown_method
from svc.store.reads.payloads import Opening

VERSION: Final = "2026-07-28"
#: What a client may choose from; the older one is spoken as it was.
SUPPORTED: Final = (VERSION, PROTOCOL_VERSION)

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"

#: How long clients may keep what only a release changes, and what data changes.
FIXED_TTL_MS: Final = 5 * 60 * 1000
_TTLS_MS: Final = {
    "server/discover": FIXED_TTL_MS,
    "tools/list": FIXED_TTL_MS,
    "prompts/list": FIXED_TTL_MS,
    "resources/templates/list": FIXED_TTL_MS,
    "resources/list": 0,
    "resources/read": 0,
}
#: Methods whose subject stands in a header as well, by the parameter that names it.
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_STATUSES: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
#: Methods of the handshake that this version has no more.
_GONE: Final = frozenset({"initialize", "ping"})
_ROUTING: Final = ("mcp-protocol-version", "mcp-method", "mcp-name")
_BASE64: Final = ("=?base64?", "?=")


def speaks(headers: Mapping[str, str], messages: Message | list[Message], known: frozenset[str]) -> bool:
    """Whether a body is of this version or one to come; `known` are the versions with a handshake."""
    if isinstance(messages, Request) and (version := _meta(messages).get(VERSION_KEY)) is not None:
        return not (isinstance(version, str) and version in known)
    return headers.get("mcp-protocol-version") == VERSION and not initializes(messages)


def initializes(messages: Message | list[Message]) -> bool:
    """Whether the version is negotiated here, so that a header cannot name it yet."""
    batch = messages if isinstance(messages, list) else [messages]
    return any(isinstance(message, Request) and message.method == "initialize" for message in batch)


def status_of(fault: Fault) -> int:
    """The HTTP status of an error."""
    return _STATUSES.get(fault.code, 200)


def misfit(request: Request, headers: Mapping[str, str], sent: Sequence[str]) -> Fault | None:
    """What a request lacks of what this version demands. `sent` are the names of all headers as they came."""
    meta = _meta(request)
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        return Fault(INVALID_PARAMS, f"params._meta must have {' and '.join(missing)}")
    version = meta[VERSION_KEY]
    if not isinstance(version, str) or not isinstance(meta[CAPABILITIES_KEY], dict):
        return Fault(INVALID_PARAMS, f"params._meta: {VERSION_KEY} is a string, {CAPABILITIES_KEY} an object")
    for name in _ROUTING:
        if sent.count(name) > 1:
            return Fault(HEADER_MISMATCH, f"header mismatch: {name} is there twice")
    expected = {"mcp-protocol-version": version, "mcp-method": request.method}
    parameter = _NAMED.get(request.method)
    if parameter is not None and isinstance(subject := request.params.get(parameter), str):
        expected["mcp-name"] = subject
    for name, value in expected.items():
        header = headers.get(name)
        if header is None:
            return Fault(HEADER_MISMATCH, f"header mismatch: {name} is missing")
        if (_decoded(header) if name == "mcp-name" else header) != value:
            return Fault(HEADER_MISMATCH, f"header mismatch: {name} differs from the body")
    if version != VERSION:
        data = {"supported": list(SUPPORTED), "requested": version[:100]}
        return Fault(UNSUPPORTED_VERSION, "Unsupported protocol version", data=data)
    return None


@attrs.frozen
class Stateless:
    """Answers requests of this version."""

    methods: Methods

    async def answer(self, grant: Grant, request: Request, room_bytes: int, opening: Opening) -> Any:
        """As `Methods.answer`: the result, or a `Fault` without an id."""
        if request.method in _GONE:
            return unknown_method(request.method)
        if request.method == "server/discover":
            result: Any = {"supportedVersions": SUPPORTED, **self.methods.offer(grant)}
        else:
            result = await self.methods.answer(grant, request, room_bytes, opening)
        if isinstance(result, Fault):
            is_missing = result.code == RESOURCE_NOT_FOUND
            return attrs.evolve(result, code=INVALID_PARAMS) if is_missing else result
        return _completed(request.method, result)


def _completed(method: str, result: Any) -> msgspec.Raw:
    """A result with what this version has in each. It is spliced in: a page of payloads is encoded once."""
    head: dict[str, Any] = {"resultType": "complete", "_meta": {SERVER_KEY: SERVER_INFO}}
    if method in _TTLS_MS:
        # What is offered depends on the key, and what is there on its project.
        head |= {"ttlMs": _TTLS_MS[method], "cacheScope": "private"}
    raw = bytes(result) if isinstance(result, msgspec.Raw) else msgspec.json.encode(result)
    return msgspec.Raw(msgspec.json.encode(head)[:-1] + b"," + raw[1:])


def _meta(request: Request) -> Mapping[str, Any]:
    meta = request.params.get("_meta") if isinstance(request.params, dict) else None
    return meta if isinstance(meta, dict) else {}


def _decoded(header: str) -> str | None:
    """The value of a header that may be encoded, None when it cannot be decoded."""
    prefix, suffix = _BASE64
    if not (header.startswith(prefix) and header.endswith(suffix)):
        return header
    try:
        return b64decode(header[len(prefix) : -len(suffix)], validate=True).decode()
    except ValueError:
        return None
