"""Bodies of logs as coding agents send them, in both encodings: the names and types of November 2026."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

Tree = dict[str, Any]
S = 1_000_000_000
#: When the events of a body begin, unless it says otherwise.
START_NS = 1_763_000_000 * S
CLAUDE_MODEL, CODEX_MODEL, GEMINI_MODEL = "claude-sonnet-4-5-20250929", "gpt-5-codex", "gemini-2.5-pro"


def value(content: Any) -> Tree:
    """An AnyValue in JSON."""
    match content:
        case bool():
            return {"boolValue": content}
        case int():
            return {"intValue": str(content)}
        case float():
            return {"doubleValue": content if isfinite(content) else "NaN"}
        case list():
            return {"arrayValue": {"values": [value(member) for member in content]}}
        case dict():
            pairs = [{"key": key, "value": value(member)} for key, member in content.items()]
            return {"kvlistValue": {"values": pairs}}
    return {"stringValue": content}


def record(time_ns: int, body: str, attributes: dict[str, Any], **fields: Any) -> Tree:
    """A log record in JSON."""
    pairs = [{"key": key, "value": value(content)} for key, content in attributes.items()]
    return {"timeUnixNano": str(time_ns), "body": {"stringValue": body}, "attributes": pairs, **fields}


def logs(service: str, scope: str, records: list[Tree]) -> Tree:
    """A body with these records."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return {
        "resourceLogs": [
            {"resource": resource, "scopeLogs": [{"scope": {"name": scope}, "logRecords": records}]}
        ]
    }


def as_json(body: Tree) -> bytes:
    """As OTLP/JSON."""
    return json.dumps(body).encode()


def as_protobuf(body: Tree) -> bytes:
    """As protobuf; the records must have no ids, which JSON writes otherwise."""
    return ParseDict(body, ExportLogsServiceRequest()).SerializeToString()


def claude_code(session: str = "session-1", start_ns: int = START_NS) -> Tree:
    """A prompt, a request, a tool that failed, an answer, an error, and what is no event of a trace."""
    common = {"session.id": session, "prompt.id": f"{session}-prompt", "user.id": "somebody"}

    def event(after_s: int, name: str, sequence: int, **said: Any) -> Tree:
        named = {name.replace("__", "."): content for name, content in said.items()}
        attributes = common | {"event.name": name, "event.sequence": sequence} | named
        return record(start_ns + after_s * S, f"claude_code.{name}", attributes)

    usage = {"input_tokens": 10, "output_tokens": 20, "cache_read_tokens": 1000, "cache_creation_tokens": 200}
    records = [
        event(0, "user_prompt", 1, prompt="mend the build", prompt_length="14"),
        event(
            2,
            "api_request",
            2,
            model=CLAUDE_MODEL,
            cost_usd=0.0123,
            duration_ms=1500,
            request_id="req_1",
            **usage,
        ),
        event(
            2, "tool_decision", 3, tool_name="Bash", decision="accept", source="config", tool_use_id="toolu_1"
        ),
        event(
            3,
            "tool_result",
            4,
            tool_name="Bash",
            success="false",
            duration_ms=500,
            error_type="ShellError",
            tool_use_id="toolu_1",
            tool_input='{"command": "make"}',
        ),
        event(4, "assistant_response", 5, model=CLAUDE_MODEL, response="It is mended.", request_id="req_1"),
        event(
            5,
            "api_error",
            6,
            model=CLAUDE_MODEL,
            error="Overloaded",
            status_code=529,
            duration_ms=500,
            attempt=3,
        ),
        event(6, "mcp_server_connection", 7),
    ]
    return logs("claude-code", "com.anthropic.claude_code.events", records)


def codex(session: str = "conversation-1", start_ns: int = START_NS) -> Tree:
    """A conversation of one prompt; figures are texts where Codex writes them as texts."""
    common = {"conversation.id": session, "app.version": "0.171.0", "model": CODEX_MODEL, "slug": CODEX_MODEL}

    def event(after_s: int, name: str, **said: Any) -> Tree:
        named = {name.replace("__", "."): content for name, content in said.items()}
        return record(start_ns + after_s * S, "", common | {"event.name": f"codex.{name}"} | named)

    call = {"tool_name": "shell", "call_id": f"call-{session}"}
    usage = {
        "input_token_count": "100",
        "output_token_count": "50",
        "cached_token_count": 30,
        "cache_write_token_count": 10,
        "reasoning_token_count": 10,
        "tool_token_count": "150",
    }
    records = [
        event(0, "conversation_starts", provider_name="OpenAI", approval_policy="on-request"),
        event(1, "user_prompt", prompt="[REDACTED]", prompt_length="9"),
        event(2, "api_request", duration_ms="300", attempt=0, http__response__status_code=200),
        event(3, "sse_event", event__kind="response.output_item.done", duration_ms="5"),
        # Each end comes twice: how long the piece took, then what the answer used.
        event(4, "sse_event", event__kind="response.completed", duration_ms="1"),
        event(4, "sse_event", event__kind="response.completed", **usage),
        event(5, "tool_decision", **call, decision="approved", source="User"),
        event(
            6,
            "tool_result",
            **call,
            arguments='{"command":["ls"]}',
            duration_ms="700",
            success="true",
            output="a",
        ),
        event(
            7,
            "api_request",
            duration_ms="300",
            attempt=1,
            http__response__status_code=503,
            error__message="busy",
        ),
    ]
    return logs("codex_cli_rs", "codex_otel", records)


def gemini_cli(session: str = "gemini-1", start_ns: int = START_NS) -> Tree:
    """A prompt, its request and response, a failed request, and two tools."""
    common = {"session.id": session, "prompt_id": f"{session}########0"}

    def event(after_s: int, name: str, body: str, **said: Any) -> Tree:
        return record(start_ns + after_s * S, body, common | {"event.name": f"gemini_cli.{name}"} | said)

    usage = {
        "input_token_count": 100,
        "output_token_count": 10,
        "cached_content_token_count": 60,
        "thoughts_token_count": 5,
        "tool_token_count": 7,
        "total_token_count": 122,
    }
    records = [
        event(0, "user_prompt", "User prompt. Length: 3.", prompt="why", prompt_length=3),
        event(1, "api_request", f"API request to {GEMINI_MODEL}.", model=GEMINI_MODEL, request_text="[]"),
        event(
            2,
            "api_response",
            f"API response from {GEMINI_MODEL}.",
            model=GEMINI_MODEL,
            status_code=200,
            duration_ms=900,
            response_text="because",
            finish_reasons=["STOP"],
            **usage,
        ),
        event(
            3,
            "tool_call",
            "Tool call: read_file.",
            function_name="read_file",
            function_args='{"path":"a"}',
            duration_ms=30,
            success=True,
            tool_type="native",
        ),
        event(
            4,
            "tool_call",
            "Tool call: run.",
            function_name="run",
            function_args="{}",
            duration_ms=30,
            success=False,
            error="no such file",
            error_type="ENOENT",
        ),
        event(
            5,
            "api_error",
            f"API error for {GEMINI_MODEL}.",
            model=GEMINI_MODEL,
            error="quota",
            status_code=429,
            error_type="RESOURCE_EXHAUSTED",
            duration_ms=100,
        ),
    ]
    return logs("gemini-cli", "gemini-cli", records)


def gauge(points: int) -> Tree:
    """A metrics body with so many data points."""
    point = {"timeUnixNano": str(START_NS), "asInt": "1"}
    metrics = [{"name": "claude_code.token.usage", "sum": {"dataPoints": [point] * points}}]
    return {"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}


def metrics_protobuf(body: Tree) -> bytes:
    """A metrics body as protobuf."""
    return ParseDict(body, ExportMetricsServiceRequest()).SerializeToString()
