"""Real MCP clients list and call all nineteen tools: the Python SDK, FastMCP, the JavaScript SDK.

Each lives in an environment of its own with pinned versions, made on first use under the user's cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from svc.front.tools import TOOLS
from tests.conftest import missing
from tests.e2e.hostile import minted
from tests.e2e.mcp import call, filled_ids
from tests.service import Service

CLIENTS = Path(__file__).parent / "mcp_clients"
INSTALL_TIMEOUT_S = 300
CALLS_TIMEOUT_S = 120


@pytest.fixture(scope="session")
def python_clients() -> Path:
    """A Python with the packages of requirements.txt."""
    requirements = CLIENTS / "requirements.txt"
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "trace-svc-tests"
    folder = cache / f"mcp-clients-{digest}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, timeout=120)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements]
        if made.returncode or subprocess.run(pip, capture_output=True, timeout=INSTALL_TIMEOUT_S).returncode:
            missing("an environment with the Python MCP clients (venv and a package registry)")
        (folder / "complete").touch()
    return python


@pytest.fixture(scope="session")
def node() -> str:
    """node with the packages of the lock file."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        missing("node with npm")
    if not (CLIENTS / "node_modules" / "@modelcontextprotocol").exists():
        subprocess.run([npm, "ci", "--silent"], cwd=CLIENTS, check=True, timeout=INSTALL_TIMEOUT_S)
    return node


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


@pytest.mark.parametrize("kind", ["mcp", "fastmcp"])
def test_a_python_client_lists_and_calls_all_nineteen_tools(
    service: Service, python_clients: Path, kind: str
) -> None:
    calls = every_call(service)
    done = subprocess.run(
        [
            python_clients, CLIENTS / "every_tool.py", kind, f"{service.url}/mcp", minted(service, "admin"),
            json.dumps(calls),
        ],
        capture_output=True,
        text=True,
        timeout=CALLS_TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    check(service, calls, json.loads(done.stdout.splitlines()[-1]))


def test_the_javascript_client_lists_and_calls_all_nineteen_tools(service: Service, node: str) -> None:
    calls = every_call(service)
    done = subprocess.run(
        [node, "every_tool.mjs", f"{service.url}/mcp", minted(service, "admin"), json.dumps(calls)],
        cwd=CLIENTS,
        capture_output=True,
        text=True,
        timeout=CALLS_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    check(service, calls, told)
    assert "read-only" in told["instructions"]
