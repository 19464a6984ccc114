"""Real MCP clients list and call every tool, get each prompt and read a resource: both generations of both
SDKs, and FastMCP. They validate each answer against the output schema of its tool.

Each lives in an environment of its own with pinned versions, made on first use under the user's cache.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from svc.front.mcp.prompts import PROMPTS
from svc.front.mcp.tools import TOOLS
from tests.e2e.environments import node_with, python_with
from tests.e2e.hostile import minted
from tests.e2e.mcp import TODAY, asked, every_call, filled_ids
from tests.service import Service, running

pytestmark = pytest.mark.release

CLIENTS = Path(__file__).parent / "mcp_clients"
CALLS_TIMEOUT_S = 120


#: The environment of each Python client.
REQUIREMENTS = {"mcp": "requirements.txt", "fastmcp": "requirements.txt", "mcp1": "mcp1.txt"}


@pytest.fixture(scope="session")
def node() -> str:
    """node with the packages of the lock file."""
    return node_with(CLIENTS, "@modelcontextprotocol/client")


def calls_of(service: Service) -> list[tuple[str, dict[str, Any]]]:
    """A call of each tool, on data that is there."""
    calls = every_call(service)
    return [(tool.name, calls.get(tool.name, {})) for tool in TOOLS]


#: Tools whose answer changes with what other tests put into the shared service: only its shape is compared.
CHANGING = {
    "get_project", "list_call_sites", "list_cases", "list_findings", "list_traces", "list_spans",
    "list_sessions", "query_count", "query_timeseries", "query_facets", "query_search",
}  # fmt: skip


#: What time alone changes: a trace settles between the client's question and ours.
SETTLING = {"is_settled", "unsettled_traces"}


def at_rest(said: Any) -> Any:
    """An answer without what time alone changes."""
    if isinstance(said, dict):
        return {name: at_rest(value) for name, value in said.items() if name not in SETTLING}
    return [at_rest(value) for value in said] if isinstance(said, list) else said


def check(service: Service, calls: list[tuple[str, dict[str, Any]]], told: dict[str, Any]) -> None:
    """The client saw every tool, and of each call what the endpoint says; prompts and resources too."""
    assert told["tools"] == [tool.name for tool in TOOLS]
    for (name, arguments), answer in zip(calls, told["answers"], strict=True):
        assert answer["isError"] is False, (name, answer)
        assert json.loads(answer["text"]) == answer["structuredContent"]
        plain = asked(service, name, **arguments)
        assert answer["structuredContent"].keys() == plain.keys(), name
        assert name in CHANGING or at_rest(answer["structuredContent"]) == at_rest(plain), name
    assert told["prompts"] == list(PROMPTS)
    assert all("Call get_" in text or "Call compare" in text for (text,) in told["messages"])
    assert told["templates"] == ["case://{reference}", "trace://{trace_id}"]
    assert all(uri.startswith("case://C-") for uri in told["resources"])
    trace_id = filled_ids(service)["trace_id"]
    assert at_rest(json.loads(told["read"])) == at_rest(asked(service, "get_trace", trace_id=trace_id))


def place(service: Service) -> tuple[str, str]:
    """Where a client asks, and with which key."""
    return f"{service.url}/mcp", minted(service, "admin")


def beside_tools(service: Service) -> list[str]:
    """What a client is given to ask beside the tools: arguments of prompts, and the address of a trace."""
    trace_id = filled_ids(service)["trace_id"]
    prompts = {
        "triage_case": {"case": "C-1"},
        "explain_trace": {"trace_id": trace_id},
        "what_changed": {"day": "2026-11-25"},
    }
    return [json.dumps(list(prompts.items())), f"trace://{trace_id}"]


#: No prompt and no resource.
NOTHING = ["[]", ""]
#: The protocol that a client comes to speak by itself; FastMCP does not say.
SPOKEN = {"mcp": "2026-07-28", "mcp1": "2025-06-18", "sdk": "2025-06-18", "client": "2025-06-18",
          "newest": "2026-07-28"}  # fmt: skip


def told_by(
    service: Service, kind: str, calls: list[tuple[str, dict[str, Any]]], beside: list[str]
) -> dict[str, Any]:
    """What a Python client is told; `beside` as `beside_tools`."""
    python, script = python_with(CLIENTS / REQUIREMENTS[kind]), CLIENTS / "every_tool.py"
    done = subprocess.run(
        [python, script, kind, *place(service), json.dumps(calls), *beside],
        capture_output=True,
        text=True,
        timeout=CALLS_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize("kind", REQUIREMENTS)
def test_a_python_client_uses_all_that_is_offered(service: Service, kind: str) -> None:
    calls = calls_of(service)
    told = told_by(service, kind, calls, beside_tools(service))
    check(service, calls, told)
    assert told.get("protocol") == SPOKEN.get(kind)


def test_an_agent_with_a_real_client_finds_what_fails_most_in_two_calls() -> None:
    failing = {"dataset": "spans", "field": "call_site_id", "filters": {"status": "error"}, "range": TODAY}
    with running() as fresh:

        def most_failing() -> list[dict[str, Any]]:
            (answer,) = told_by(fresh, "mcp", [("query_facets", failing)], NOTHING)["answers"]
            found: list[dict[str, Any]] = answer["structuredContent"]["facets"]
            return found

        # Some of the demo's tools fail by chance; send it until one has.
        while not (failed := most_failing()):
            fresh.command("demo", "--url", fresh.url)
        worst = failed[0]["value"]
        assert worst == "parcel-desk/execute_tool find_parcel"
        wanted = {"call_site_id": worst, "status": "error", "limit": 1, "fields": ["payload"], "range": TODAY}
        (page,) = told_by(fresh, "mcp", [("list_spans", wanted)], NOTHING)["answers"]
    (span,) = page["structuredContent"]["spans"]
    assert (span["call_site_id"], span["status"]) == (worst, "error")
    assert (span["error_type"], span["input"]) == ("TimeoutError", {"order": 7731})


@pytest.mark.parametrize("kind", ["sdk", "client", "newest"])
def test_a_javascript_client_uses_all_that_is_offered(service: Service, node: str, kind: str) -> None:
    calls = calls_of(service)
    done = subprocess.run(
        [node, "every_tool.mjs", kind, *place(service), json.dumps(calls), *beside_tools(service)],
        cwd=CLIENTS,
        capture_output=True,
        text=True,
        timeout=CALLS_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    check(service, calls, told)
    assert "read-only" in told["instructions"]
    assert told["protocol"] == SPOKEN[kind]
