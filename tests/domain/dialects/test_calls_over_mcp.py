"""Laws of tool calls that several spans of one request over MCP report."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.otlp.reading import WireSpan
from tests.domain import mapped
from tests.domain.dialects.clients import CLIENT, FAILED, INTERNAL, SERVER, calls, scope, span

SDK = scope("mcp-python-sdk", "2.3.0")
REQUEST: dict[str, Any] = {"mcp.method.name": "tools/call", "jsonrpc.request.id": "3"}
NAMED = {**REQUEST, "gen_ai.tool.name": "get_weather", "gen_ai.operation.name": "execute_tool"}
FRAMEWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "genai": (
        "execute_tool get_weather",
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather",
         "gen_ai.tool.call.id": "call_1"},
    ),
    "openinference": ("get_weather", {"openinference.span.kind": "TOOL", "tool.name": "get_weather"}),
}  # fmt: skip


def request(outer: int, *, failed: tuple[int, ...] = ()) -> list[WireSpan]:
    """The spans of one request: at the client, its message, at the server; `failed` by place."""
    client, message, server = outer + 1, outer + 2, outer + 3
    status = [FAILED if place in failed else 0 for place in range(3)]
    return [
        span(client, "tools/call get_weather", NAMED, below=outer, scope=SDK, kind=CLIENT,
             status_code=status[0]),
        span(message, "MCP send tools/call get_weather", REQUEST, below=client, scope=SDK, kind=CLIENT,
             status_code=status[1]),
        span(server, "tools/call get_weather", NAMED, below=message, scope=SDK, kind=SERVER,
             status_code=status[2]),
    ]  # fmt: skip


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_tools_span_and_the_spans_of_its_request_are_one_call(framework: str) -> None:
    name, attributes = FRAMEWORKS[framework]
    outer = span(1, name, attributes, kind=INTERNAL)
    assert calls(outer, *request(1)) == [("get_weather", "ok", None)]


def test_client_message_and_server_are_one_call_without_a_framework() -> None:
    agent = span(1, "agent", {"gen_ai.operation.name": "invoke_agent"})
    assert calls(agent, *request(1)) == [("get_weather", "ok", None)]
    # Two requests are two calls.
    assert len(calls(agent, *request(1), *request(10))) == 2


def test_a_message_alone_is_a_call_of_its_tool() -> None:
    row = mapped(REQUEST, name="MCP send tools/call get_weather", scope=SDK)
    assert (row.kind, [call.name for call in row.tool_calls]) == ("mcp", ["get_weather"])


def test_the_failure_is_that_of_the_outermost_span_that_failed() -> None:
    name, attributes = FRAMEWORKS["openinference"]
    types = {1: "ToolException", 2: "tool_error", 4: "ValueError"}

    def failing(*numbers: int) -> list[tuple[str, str, str | None]]:
        trace = [span(1, name, attributes), *request(1, failed=tuple(n - 2 for n in numbers if n > 1))]
        for one in trace:
            number = int.from_bytes(one.span_id, "big")
            if number in numbers:
                one.attributes = {**one.attributes, "error.type": types[number]}
        return calls(*trace)

    assert failing(1, 2, 4) == [("get_weather", "error", "ToolException")]
    assert failing(2, 4) == [("get_weather", "error", "tool_error")]
    assert failing(4) == [("get_weather", "error", "ValueError")]


def test_of_spans_that_failed_the_outermost_counts_though_one_inside_has_the_id() -> None:
    outer = span(1, "get_weather", {"openinference.span.kind": "TOOL", "error.type": "Outer"}, status_code=2)
    failing = {**NAMED, "gen_ai.tool.call.id": "call_1", "error.type": "Inner"}
    inner = span(2, "tools/call get_weather", failing, below=1, status_code=2)
    asks = span(3, "chat", {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": [{"role": "assistant", "parts": [
            {"type": "tool_call", "id": "call_1", "name": "get_weather", "arguments": {}}]}],
    })  # fmt: skip
    assert calls(asks, outer, inner) == [("get_weather", "error", "Outer")]


def test_two_servers_behind_an_agent_are_two_calls() -> None:
    agent = span(5, "invoke_agent", {"gen_ai.operation.name": "invoke_agent"}, below=4)
    inner = request(5)
    assert len(calls(span(1, "x", {"gen_ai.operation.name": "chat"}), *request(1), agent, *inner)) == 2
