"""Real SDKs tell their story: tokens, cost, model, tree, texts and session against what they were told.

Not part of the default tests, because their packages are many: `make test-clients` runs this file. Each
instrumentation lives in an environment of its own, frozen in the lock files beside this one.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.e2e.clients.clients import CLIENTS, Client
from tests.e2e.clients.standin import ANSWER, StandIn, arguments
from tests.e2e.environments import go_with, java_with, node_with, python_with
from tests.e2e.mcp import call
from tests.service import Service, until

HERE = Path(__file__).parent
QUESTION = "What is the weather in Paris?"
RUN_TIMEOUT_S = 120
#: Genkit's optional packages are those of Google's cloud, half a gigabyte.
NPM_OPTIONS = {"js_genkit": ("--omit=optional",)}

#: What one call of each API uses, in disjoint buckets, and what it costs at the list price of the model.
USED: dict[str, Mapping[str, float]] = {
    "completions": {"input": 20, "cache_read": 100, "cache_write": 0, "answered": 30, "cost": 0.000475},
    "responses": {"input": 20, "cache_read": 100, "cache_write": 0, "answered": 30, "cost": 0.000475},
    "messages": {"input": 20, "cache_read": 60, "cache_write": 40, "answered": 30, "cost": 0.000678},
    "embeddings": {"input": 5, "cache_read": 0, "cache_write": 0, "answered": 0, "cost": 1e-7},
    "generateContent": {"input": 20, "cache_read": 100, "cache_write": 0, "answered": 30, "cost": 0.000084},
}


@pytest.fixture(scope="module")
def environments() -> dict[str, str | BaseException]:
    """What runs the scripts of each environment, or why none does; they are made side by side."""

    def make(name: str) -> str | BaseException:
        try:
            return make_environment(name)
        except pytest.skip.Exception as skipped:
            return skipped

    names = sorted({client.environment for client in CLIENTS})
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(make, names), strict=True))


def make_environment(name: str) -> str:
    """What runs the scripts of an environment, once its packages are there."""
    folder = HERE / name
    if (HERE / f"{name}.txt").exists():
        return str(python_with(HERE / f"{name}.txt", otherwise=unavailable))
    if (folder / "pom.xml").exists():
        return java_with(folder, otherwise=unavailable)
    if (folder / "go.mod").exists():
        return go_with(folder, otherwise=unavailable)
    packages = json.loads((folder / "package.json").read_text())["dependencies"]
    options = ("--legacy-peer-deps", *NPM_OPTIONS.get(name, ()))
    return node_with(folder, next(iter(packages)), *options, otherwise=unavailable)


def unavailable(part: str) -> NoReturn:
    """Registries need not serve so many packages everywhere: skip aloud, in CI too."""
    pytest.skip(f"{part} is not to be had here")


def run(service: Service, standin: StandIn, client: Client, program: str) -> list[str]:
    """Run the client's script; the ids of its traces."""
    is_python = (HERE / f"{client.environment}.txt").exists()
    script = client.script
    if not script and not (HERE / client.environment / "go.mod").exists():
        script = (f"{client.name}.{'py' if is_python else 'mjs'}",)
    env = {
        **os.environ,
        "SVC": service.url,
        "WRITE_KEY": service.write_key,
        "MODELS": f"{standin.url}/{client.name}",
        "SESSION": f"session of {client.name}",
        "OPENAI_API_KEY": "none",
        "OTEL_SDK_DISABLED": "false",
    }
    folder = HERE / ("scripts" if is_python else client.environment)
    done = subprocess.run(
        [program, *script], cwd=folder, env=env, capture_output=True, text=True, timeout=RUN_TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ids: list[str] = json.loads(done.stdout.splitlines()[-1])
    return ids


def settled(service: Service, trace_id: str) -> dict[str, Any]:
    """The trace with payloads, as soon as it is settled."""
    found: dict[str, Any] = {}

    def is_settled() -> bool:
        nonlocal found
        answer = call(service, "get_trace", trace_id=trace_id, fields=["payload"])
        found = answer.get("structuredContent", {})
        return bool(not answer["isError"] and found["is_settled"])

    until(is_settled)
    return found


def tree(spans: list[dict[str, Any]]) -> str:
    """The kinds of a trace's spans, nested, in order of start."""
    ids = {span["span_id"] for span in spans}

    def below(parent: str | None) -> str:
        found = [
            span
            for span in spans
            if (span["parent_span_id"] if span["parent_span_id"] in ids else None) == parent
        ]
        # JavaScript counts the beginning in whole milliseconds: of two the first to end came first.
        found.sort(key=lambda span: (str(span["started_at"]), str(span["ended_at"])))
        return " ".join(
            span["kind"] + (f"({inner})" if (inner := below(span["span_id"])) else "") for span in found
        )

    return below(None)


def said(messages: Any, kind: str) -> list[dict[str, Any]]:
    """The parts of a kind in messages of the normal form."""
    if not isinstance(messages, list):
        return []
    return [part for message in messages for part in message["parts"] if part["type"] == kind]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_what_a_real_sdk_was_told_is_what_is_read(
    service: Service, standin: StandIn, environments: dict[str, str | BaseException], client: Client
) -> None:
    program = environments[client.environment]
    if isinstance(program, BaseException):
        raise program
    ids = run(service, standin, client, program)
    traces = [settled(service, trace_id) for trace_id in ids]
    spans = [span for trace in traces for span in trace["spans"]]
    assert ", ".join(tree(trace["spans"]) for trace in traces) == client.trees

    def total(name: str) -> int:
        return sum(trace[name] or 0 for trace in traces)

    calls = {api: n for (name, api), n in standin.calls.items() if name == client.name}
    said_of = {**USED, "completions": client.told or USED["completions"]}
    used = {key: sum(said_of[api][key] * n for api, n in calls.items()) for key in USED["messages"]}
    assert total("input_tokens") == used["input"]
    assert total("cache_read_tokens") == used["cache_read"]
    assert total("cache_write_tokens") == used["cache_write"]
    assert total("reasoning_tokens") == 12 * client.thought
    assert total("output_tokens") + total("reasoning_tokens") == used["answered"] + client.surplus
    assert total("total_cost") == pytest.approx(used["cost"] + client.surplus_cost, rel=1e-9)
    assert total("unpriced_spans") == total("error_count") == 0

    models = {span["model_id"] for span in spans if span["kind"] in ("llm", "embedding")}
    assert models <= {"gpt-4o", "claude-sonnet-4-5", "text-embedding-3-small", "gemini-2.5-flash"}
    shown = [span for span in spans if span["kind"] == "llm" and span["output"] is not None]
    answers = sum(n for api, n in calls.items() if api != "embeddings")
    assert len(shown) >= (answers - client.wordless if client.says_texts else 0)
    counted = [span for span in spans if span["kind"] == "llm" and span["counts_as_call"]]
    assert sum(span["total_tokens"] is not None for span in counted) == (answers if used["answered"] else 0)
    for span in shown:
        if client.says_question:
            texts = said(span["input"], "text")
            assert texts[-1]["text"].endswith(QUESTION) or "sunny" in json.dumps(span["input"]), span
        calling = said(span["output"], "tool_call")
        if calling:
            assert {part["name"] for part in calling} <= set(standin.tools[client.name])
            assert [part["arguments"] for part in calling] == [arguments(part["name"]) for part in calling]
        elif client.says_question or said(span["output"], "text"):
            assert said(span["output"], "text")[0]["text"] == ANSWER
    tools = {span["span_id"]: span for span in spans if span["kind"] == "tool"}
    outermost = [span for span in tools.values() if span["parent_span_id"] not in tools]
    for span in outermost:
        assert "Paris" in json.dumps(span["input"])
        assert "sunny" in json.dumps(span["output"])
    rows = [
        row["fields"]["name"]
        for trace_id in ids
        for row in service.ask("search", {"dataset": "tool_calls", "filters": {"trace_id": trace_id}})["rows"]
    ]
    # A call that answers ask for and tools' spans tell, of however many instrumentations, is one.
    requested = standin.tools[client.name] if client.says_calls else []
    assert sorted(rows) == sorted(max(requested, [client.tool] * len(outermost), key=len))
    if client.says_session:
        speaking = shown or [span for span in spans if span["kind"] == "llm"]
        told = {trace["session_id"] for trace in traces if any(span in speaking for span in trace["spans"])}
        assert told == {f"session of {client.name}"}
