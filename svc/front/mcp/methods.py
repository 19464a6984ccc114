"""The methods of the protocol: one request of a caller in, its result or a fault out.

`svc.front.mcp.endpoint` calls it once a request, whatever version of the protocol the caller speaks. Knows no
HTTP and no envelope. The key of a run is offered the run's tools and nothing else.

Secrets: neither arguments nor answers are logged; they hold payloads.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import attrs
import msgspec
import trio

from actors.keys import Grant
from protocol.agents import PURPOSES, RUN_TOOLS
from protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Fault, Request
from protocol.refusals import ANSWER_TOO_LARGE, Refusal, Refused
from protocol.storage import Outage, StoreRefused
from svc.front.concurrency import ConcurrencyLimiter
from svc.front.mcp import prompts
from svc.front.mcp.given import ToolError
from svc.front.mcp.reads import Reads
from svc.front.mcp.tools import BadArguments, Catalogue, Tool, catalogue, instructions
from svc.store.reads.payloads import Opening, answer_bytes

PROTOCOL_VERSION: Final = "2025-06-18"
SERVER_INFO: Final = {"name": "svc-mcp", "version": "0.1.0"}

#: Keys that a run of an agent holds: of all that is offered here, they reach the run's tools.
RUN_PURPOSES: Final = frozenset(PURPOSES.values())

_MIB: Final = 1024 * 1024


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
                    "capabilities": self._capabilities(grant),
                    "serverInfo": SERVER_INFO,
                    "instructions": instructions(self._offered(grant)),
                }
            case "ping":
                return {}
            case "tools/list":
                tools = self._catalogue
                return _paged(params, "tools") or (tools.listed_to_runs if _is_run(grant) else tools.listed)
            case "tools/call":
                return await self._call(grant, params, room_bytes, opening)
            case _ if self._reaches_more(grant):
                return self._beyond_tools(request.method, params)
            case other:
                return _unknown(other)

    def _beyond_tools(self, method: str, params: Any) -> Any:
        """What is offered beside the specification's tools."""
        match method:
            case "prompts/list":
                return _paged(params, "prompts") or prompts.LISTED
            case "prompts/get":
                return prompts.get(params)
            case other:
                return _unknown(other)

    def _capabilities(self, grant: Grant) -> dict[str, Any]:
        """What is offered to the caller."""
        kinds = ("tools", "prompts") if self._reaches_more(grant) else ("tools",)
        return {kind: {"listChanged": False} for kind in kinds}

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
        tool = self._catalogue.tools.get(name)
        if tool is None or name not in self._offered(grant):
            # A name that is withheld reads the same.
            return _said(f"unknown tool: {name[:100]}; tools/list shows what there is")
        try:
            return await self._run(tool, grant, arguments or {}, room_bytes, opening)
        except BadArguments as error:
            return Fault(INVALID_PARAMS, str(error))
        except ToolError as error:
            return _said(str(error))
        except Refused as error:
            return _said(_refusal_text(error.refusal))
        except StoreRefused:
            return _said("the store cannot compare with one of these values; check the arguments")
        except Outage:
            return _said(
                "the store cannot answer right now, or not in time; try again, or narrow the question"
            )

    @property
    def _catalogue(self) -> Catalogue:
        return catalogue(extensions=self.reads.extensions)

    def _offered(self, grant: Grant) -> Collection[str]:
        """The names of the tools on offer: to the key of a run, those that read what was traced."""
        return RUN_TOOLS if _is_run(grant) else self._catalogue.tools

    async def _run(
        self, tool: Tool, grant: Grant, arguments: dict[str, Any], room_bytes: int, opening: Opening
    ) -> Any:
        """The answer of a tool, encoded in a thread: a page of payloads would hold up the doors."""
        parsed = tool.read(arguments)
        async with self.concurrency.slot(grant.key_id):
            reads = attrs.evolve(self.reads, room_bytes=room_bytes, opening=opening)
            answer = await tool.handler(reads, grant.project_id, parsed)
            return await trio.to_thread.run_sync(_told, answer, room_bytes)


def _is_run(grant: Grant) -> bool:
    return grant.purpose in RUN_PURPOSES


def _paged(params: Any, things: str) -> Fault | None:
    """A fault where a list that has one page is asked for another."""
    if isinstance(params, dict) and params.get("cursor"):
        return Fault(INVALID_PARAMS, f"there is one page of {things} and no cursor to it")
    return None


def _unknown(method: str) -> Fault:
    return Fault(METHOD_NOT_FOUND, f"method not found: {method[:200]}")


def _told(answer: dict[str, Any], room_bytes: int) -> msgspec.Raw:
    """A tool's answer: the same JSON as a text and as an object. Raises `ToolError` when it has no room."""
    encoded = msgspec.json.encode(answer)
    if answer_bytes(encoded) > room_bytes:
        raise ToolError(ANSWER_TOO_LARGE.format(most_mib=max(1, room_bytes // _MIB)))
    return msgspec.Raw(
        b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":false}'
        % (msgspec.json.encode(encoded.decode()), encoded)
    )


def _said(text: str) -> dict[str, Any]:
    """A tool's failure."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _refusal_text(refusal: Refusal) -> str:
    allowed = (refusal.details or {}).get("allowed")
    if refusal.code == "QUERY.UNKNOWN_FIELD":
        fields = ", ".join(allowed or ())
        return f"{refusal.message}; here it takes {fields} (describe_dataset tells facets from filters)"
    return refusal.message if allowed is None else f"{refusal.message}; one of: {', '.join(allowed)}"
