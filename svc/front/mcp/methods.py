"""The methods of the protocol: one request of a caller in, its result or a fault out.

`svc.front.mcp.endpoint` calls it once a request, whatever version of the protocol the caller speaks. Knows no
HTTP and no envelope. The key of a run is offered the run's tools and nothing else.

Secrets: neither arguments nor answers are logged; they hold payloads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

import attrs
import msgspec
import trio

from actors.keys import Grant
from protocol.agents import PURPOSES, RUN_TOOLS
from protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION,
    RESOURCE_NOT_FOUND,
    Fault,
    Request,
)
from protocol.refusals import Refusal, Refused, refusal_of
from protocol.storage import Outage, StoreRefused
from svc.front.concurrency import ConcurrencyLimiter
from svc.front.mcp import prompts, resources
from svc.front.mcp.cut import encoded
from svc.front.mcp.given import NotInProject, ToolError
from svc.front.mcp.reads import Reads
from svc.front.mcp.tools import BadArguments, Catalogue, Tool, catalogue, instructions
from svc.store.reads.payloads import SHORT_BYTES, Opening

SERVER_INFO: Final = {"name": "svc-mcp", "version": "0.1.0"}

#: Keys that a run of an agent holds: of all that is offered here, they reach the run's tools.
RUN_PURPOSES: Final = frozenset(PURPOSES.values())


@attrs.frozen
class Methods:
    """Answers requests of one service."""

    reads: Reads
    concurrency: ConcurrencyLimiter

    async def answer(self, grant: Grant, request: Request, room_bytes: int, opening: Opening) -> Any:
        """The result, at most about `room_bytes` long, or a `Fault` without an id."""
        params = {} if request.params is None else request.params
        match request.method:
            case "initialize":
                return {
                    "protocolVersion": PROTOCOL_VERSION,
                    "serverInfo": SERVER_INFO,
                    **self.offer(grant),
                }
            case "ping":
                return {}
            case "tools/list":
                return _paged(params, "tools") or await self._listed(grant)
            case "tools/call":
                return await self._call(grant, params, room_bytes, opening)
            case _ if self._reaches_more(grant):
                return await self._beyond_tools(grant, request.method, params, room_bytes, opening)
            case other:
                return unknown_method(other)

    async def _beyond_tools(
        self, grant: Grant, method: str, params: Any, room_bytes: int, opening: Opening
    ) -> Any:
        """What is offered beside the specification's tools."""
        match method:
            case "prompts/list":
                return _paged(params, "prompts") or prompts.LISTED
            case "prompts/get":
                return prompts.get(params)
            case "resources/list":
                return await self._open_cases(grant, params, room_bytes, opening)
            case "resources/templates/list":
                return _paged(params, "resource templates") or resources.TEMPLATES
            case "resources/read":
                return await self._read(grant, params, room_bytes, opening)
            case other:
                return unknown_method(other)

    def offer(self, grant: Grant) -> dict[str, Any]:
        """What a caller is told before it asks: what is offered to it, and how to go about it."""
        return {
            "capabilities": self._capabilities(grant),
            "instructions": instructions(self._offered(grant)),
        }

    def _capabilities(self, grant: Grant) -> dict[str, Any]:
        offered: dict[str, Any] = {"tools": {"listChanged": False}}
        if self._reaches_more(grant):
            offered["prompts"] = {"listChanged": False}
            offered["resources"] = {"listChanged": False, "subscribe": False}
        return offered

    def _reaches_more(self, grant: Grant) -> bool:
        """Whether the caller is offered more than tools."""
        return self.reads.extensions and not _is_run(grant)

    async def _call(self, grant: Grant, params: Any, room_bytes: int, opening: Opening) -> Any:
        if not isinstance(params, dict):
            return Fault(INVALID_PARAMS, "params must be an object with name and arguments")
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not name.strip():
            return Fault(INVALID_PARAMS, "params.name must be the name of a tool; tools/list shows them")
        if not isinstance(arguments, dict | None):
            return Fault(INVALID_PARAMS, "params.arguments must be an object")
        tool = self._catalogue_of(grant).tools.get(name)
        if tool is None or name not in self._offered(grant):
            # A name that is withheld reads the same.
            return _said(f"unknown tool: {name[:100]}; tools/list shows what there is")
        try:
            return await self._run(tool, grant, arguments or {}, room_bytes, opening, _told)
        except BadArguments as error:
            return Fault(INVALID_PARAMS, str(error))
        except _REFUSALS as error:
            return _said(_text_of(error))

    async def _read(self, grant: Grant, params: Any, room_bytes: int, opening: Opening) -> Any:
        """A resource, as the tool that reads such things answers it."""
        uri = params.get("uri") if isinstance(params, dict) else None
        if not isinstance(uri, str):
            return Fault(INVALID_PARAMS, "params.uri must be an address, such as case://C-12")
        reader = resources.reader_of(uri)
        if reader is None:
            text = (
                f"there is no resource {uri[:100]!r}; resources/templates/list shows the forms of addresses"
            )
            return Fault(RESOURCE_NOT_FOUND, text, data={"uri": uri[: resources.URI_BOUND]})
        tool, arguments = self._catalogue_of(grant).tools[reader[0]], reader[1]
        try:
            return await self._run(
                tool, grant, arguments, room_bytes, opening, partial(resources.contents, uri)
            )
        except NotInProject as error:
            return Fault(RESOURCE_NOT_FOUND, str(error), data={"uri": uri})
        except BadArguments as error:
            return Fault(INVALID_PARAMS, str(error))
        except _REFUSALS as error:
            return Fault(INTERNAL_ERROR, _text_of(error))

    async def _open_cases(self, grant: Grant, params: Any, room_bytes: int, opening: Opening) -> Any:
        """A page of the open cases, which are the resources that are listed."""
        cursor = params.get("cursor") if isinstance(params, dict) else None
        if not isinstance(cursor, str | None):
            return Fault(INVALID_PARAMS, "params.cursor must be the nextCursor of the page before")
        arguments = {} if cursor is None else {"cursor": cursor}
        try:
            return await self._run(
                self._catalogue_of(grant).tools["list_cases"],
                grant,
                arguments,
                room_bytes,
                opening,
                lambda page, _room: resources.page_of(page["cases"], page["next_cursor"]),
            )
        except _REFUSALS as error:
            return Fault(INTERNAL_ERROR, _text_of(error))

    async def _listed(self, grant: Grant) -> msgspec.Raw:
        tools, to_run = self._catalogue_of(grant), _is_run(grant)
        # Whoever asks first waits for every schema to be made: 90 ms on a slow machine (November 2026).
        return await trio.to_thread.run_sync(lambda: tools.listed_to_runs if to_run else tools.listed)

    def _catalogue_of(self, grant: Grant) -> Catalogue:
        return catalogue(extensions=self._is_extended(grant))

    def _is_extended(self, grant: Grant) -> bool:
        """Whether the caller has what extends the specification. Runs are ours at both ends."""
        return self.reads.extensions or _is_run(grant)

    def _offered(self, grant: Grant) -> Collection[str]:
        """The names of the tools on offer: to the key of a run, those that read what was traced."""
        return RUN_TOOLS if _is_run(grant) else self._catalogue_of(grant).tools

    async def _run(
        self,
        tool: Tool,
        grant: Grant,
        arguments: dict[str, Any],
        room_bytes: int,
        opening: Opening,
        encode: Callable[[Any, int], Any],
    ) -> Any:
        """The answer of a tool, encoded; one with long payloads in a thread: it would hold up the doors."""
        parsed = tool.read(arguments)
        async with self.concurrency.slot(grant.key_id):
            reads = attrs.evolve(
                self.reads, room_bytes=room_bytes, opening=opening, extensions=self._is_extended(grant)
            )
            openable_bytes = opening.left_bytes
            answer = await tool.handler(reads, grant.project_id, parsed)
            if openable_bytes - opening.left_bytes <= SHORT_BYTES:
                return encode(answer, room_bytes)
            return await trio.to_thread.run_sync(encode, answer, room_bytes)


def _is_run(grant: Grant) -> bool:
    return grant.purpose in RUN_PURPOSES


def _paged(params: Any, things: str) -> Fault | None:
    """A fault where a list that has one page is asked for another."""
    if isinstance(params, dict) and params.get("cursor"):
        return Fault(INVALID_PARAMS, f"there is one page of {things} and no cursor to it")
    return None


def unknown_method(method: str) -> Fault:
    """The fault of a method that is not offered to the caller."""
    return Fault(METHOD_NOT_FOUND, f"method not found: {method[:200]}")


def _told(answer: dict[str, Any] | msgspec.Struct, room_bytes: int) -> msgspec.Raw:
    """A tool's answer: the same JSON as a text and as an object. Raises `ToolError` when it has no room."""
    raw = encoded(answer, room_bytes)
    return msgspec.Raw(
        b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":false}'
        % (msgspec.json.encode(raw.decode()), raw)
    )


def _said(text: str) -> dict[str, Any]:
    """A tool's failure."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


#: What a tool or a store may answer instead.
_REFUSALS: Final = (ToolError, Refused, StoreRefused, Outage)


def _text_of(error: Exception) -> str:
    """What the caller is told of a refusal."""
    match error:
        case Refused():
            return _refusal_text(error.refusal)
        case StoreRefused():
            return "the store cannot compare with one of these values; check the arguments"
        case Outage():
            return refusal_of(error).message
        case _:
            return str(error)


def _refusal_text(refusal: Refusal) -> str:
    allowed = (refusal.details or {}).get("allowed")
    if refusal.code == "QUERY.UNKNOWN_FIELD":
        fields = ", ".join(allowed or ())
        return f"{refusal.message}; here it takes {fields} (describe_dataset tells facets from filters)"
    return refusal.message if allowed is None else f"{refusal.message}; one of: {', '.join(allowed)}"
