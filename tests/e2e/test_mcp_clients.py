"""Real MCP clients list and call all nineteen tools: both generations of both SDKs, and FastMCP.

Each lives in an environment of its own with pinned versions, made on first use under the user's cache.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from svc.front.tools import TOOLS
from tests.e2e.environments import node_with, python_with
from tests.e2e.hostile import minted
from tests.e2e.mcp import call, filled_ids
from tests.e2e.test_mcp import TODAY
from tests.service import Service

CLIENTS = Path(__file__).parent / "mcp_clients"
CALLS_TIMEOUT_S = 120


#: The environment of each Python client.
REQUIREMENTS = {"mcp": "requirements.txt", "fastmcp": "requirements.txt", "mcp1": "mcp1.txt"}


@pytest.fixture(scope="session")
def node() -> str:
    """node with the packages of the lock file."""
    return node_with(CLIENTS, "@modelcontextprotocol/client")


def every_call(service: Service) -> list[tuple[str, dict[str, Any]]]:
    """A call of each tool, on data that is there."""
    ids = filled_ids(service)
    day = {"from": "2026-11-20", "to": "2026-11-21"}
    arguments: dict[str, dict[str, Any]] = {
        "get_case": {"id": "C-999999"},
        "get_finding": {"id": "00000000-0000-0000-0000-000000000000"},
        "get_finding_evidence": {"finding_id": "00000000-0000-0000-0000-000000000000"},
        "get_trace": {"trace_id": ids["trace_id"], "fields": ["payload"]},
        "get_span": {"trace_id": ids["trace_id"], "span_id": ids["span_id"]},
        "get_session": {"id": ids["session_id"]},
        "query_count": {"dataset": "spans"},
        "query_timeseries": {"dataset": "spans", "interval": "hour", "range": day},
        "query_facets": {"dataset": "spans", "field": "kind"},
        "query_search": {"dataset": "tool_calls"},
    }
    return [(tool.name, arguments.get(tool.name, {})) for tool in TOOLS]


#: Tools that are asked for what is not there, whatever other tests put into the shared service.
NOT_THERE = {"get_case", "get_finding", "get_finding_evidence"}


def check(service: Service, calls: list[tuple[str, dict[str, Any]]], told: dict[str, Any]) -> None:
    """The client saw the nineteen tools, and of each call what the endpoint says."""
    assert told["tools"] == [tool.name for tool in TOOLS]
    for (name, arguments), answer in zip(calls, told["answers"], strict=True):
        assert answer["isError"] == (name in NOT_THERE), (name, answer)
        if name not in NOT_THERE | {"get_project", "list_call_sites", "list_traces", "list_sessions"}:
            plain = call(service, name, **arguments)["structuredContent"]
            assert answer["structuredContent"].keys() == plain.keys(), name


def told_by(service: Service, kind: str, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """What a Python client is told."""
    python, script = python_with(CLIENTS / REQUIREMENTS[kind]), CLIENTS / "every_tool.py"
    done = subprocess.run(
        [python, script, kind, f"{service.url}/mcp", minted(service, "admin"), json.dumps(calls)],
        capture_output=True,
        text=True,
        timeout=CALLS_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize("kind", REQUIREMENTS)
def test_a_python_client_lists_and_calls_all_nineteen_tools(service: Service, kind: str) -> None:
    calls = every_call(service)
    check(service, calls, told_by(service, kind, calls))


def test_an_agent_with_a_real_client_finds_what_fails_most_in_two_calls(service: Service) -> None:
    filled_ids(service)
    failing = {"dataset": "spans", "field": "call_site_id", "filters": {"status": "error"}, "range": TODAY}
    (facets,) = told_by(service, "mcp", [("query_facets", failing)])["answers"]
    worst = facets["structuredContent"]["facets"][0]["value"]
    wanted = {"call_site_id": worst, "status": "error", "limit": 1, "fields": ["payload"], "range": TODAY}
    (page,) = told_by(service, "mcp", [("list_spans", wanted)])["answers"]
    (span,) = page["structuredContent"]["spans"]
    assert (span["call_site_id"], span["status"]) == (worst, "error")
    assert {"input", "attributes"} <= span.keys()


@pytest.mark.parametrize("kind", ["sdk", "client"])
def test_a_javascript_client_lists_and_calls_all_nineteen_tools(
    service: Service, node: str, kind: str
) -> None:
    calls = every_call(service)
    done = subprocess.run(
        [node, "every_tool.mjs", kind, f"{service.url}/mcp", minted(service, "admin"), json.dumps(calls)],
        cwd=CLIENTS,
        capture_output=True,
        text=True,
        timeout=CALLS_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    check(service, calls, told)
    assert "read-only" in told["instructions"]
