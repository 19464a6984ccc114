"""A client of MCP over Streamable HTTP: the list of tools, and calls of them.

The runner reads a project through it. One request a call, JSON answers only, bounded and with a deadline.

Secrets: the token goes into one header; neither arguments nor answers are logged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import attrs
import msgspec

from protocol.jsonrpc import PROTOCOL_VERSION
from svc.outside.http import HttpClient, Unreached

ANSWER_BYTES: Final = 24 * 1024 * 1024
TIMEOUT_S: Final = 60.0


class McpAway(Exception):
    """The server does not answer as one; the text quotes nothing of it."""


class McpClosed(McpAway):
    """The key of the run opens nothing any more: asking again does not help."""


@attrs.frozen
class McpTool:
    """A tool that the server offers."""

    name: str
    description: str
    schema: Mapping[str, Any]


@attrs.frozen
class McpAnswer:
    """What a tool answered: its text."""

    text: str
    is_error: bool


@attrs.frozen
class McpClient:
    """Asks one server. `place` says before each call where it is and with which key; `allowed` are the tools
    that are seen and called at all.
    """

    place: Callable[[], tuple[str, str]] = attrs.field(repr=False)
    allowed: Collection[str]
    http: HttpClient = attrs.field(factory=lambda: HttpClient(timeout_s=TIMEOUT_S, answer_bytes=ANSWER_BYTES))

    async def tools(self) -> list[McpTool]:
        """Those of the allowed tools that the server offers. Raises `McpAway`."""
        result = await self._ask("tools/list", {})
        try:
            return [
                McpTool(tool["name"], str(tool.get("description", "")), tool["inputSchema"])
                for tool in result["result"]["tools"]
                if tool["name"] in self.allowed
            ]
        except (KeyError, TypeError):
            raise McpAway("the tools cannot be read") from None

    async def instructions(self) -> str:
        """What the server tells its clients before they ask. Raises `McpAway`."""
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "trace-svc agent run", "version": "1"},
        }
        answer = await self._ask("initialize", params)
        try:
            return str(answer["result"].get("instructions") or "")
        except (KeyError, TypeError, AttributeError):
            raise McpAway("the server does not introduce itself") from None

    async def call(self, name: str, arguments: Mapping[str, Any]) -> McpAnswer:
        """Call a tool; one that is not allowed is never asked for. Raises `McpAway`."""
        if name not in self.allowed:
            return McpAnswer(f"there is no tool {name[:80]!r}", is_error=True)
        answer = await self._ask("tools/call", {"name": name, "arguments": dict(arguments)})
        try:
            if "error" in answer:
                return McpAnswer(str(answer["error"]["message"])[:4_000], is_error=True)
            result = answer["result"]
            text = "\n".join(part["text"] for part in result["content"] if part["type"] == "text")
            return McpAnswer(text, bool(result.get("isError")))
        except (KeyError, TypeError):
            raise McpAway("a tool's answer cannot be read") from None

    async def _ask(self, method: str, params: Mapping[str, Any]) -> Any:
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        url, token = self.place()
        headers = {
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        try:
            answer = await self.http.ask("POST", url, headers=headers, body=body)
        except Unreached as away:
            raise McpAway(f"the service {away}") from None
        if answer.status in (401, 403):
            raise McpClosed("the service does not take the run's key")
        if answer.status != 200:
            raise McpAway(f"the service answers {answer.status}")
        try:
            return msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, RecursionError):
            raise McpAway("the service's answer cannot be read") from None
