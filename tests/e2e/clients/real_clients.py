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

import attrs
import pytest

from tests.e2e.clients.standin import ANSWER, ARGUMENTS, StandIn
from tests.e2e.environments import node_with, python_with
from tests.e2e.mcp import call
from tests.service import Service, until

HERE = Path(__file__).parent
QUESTION = "What is the weather in Paris?"
RUN_TIMEOUT_S = 120

#: What one call of each API uses, in disjoint buckets, and what it costs at the list price of the model.
USED: dict[str, Mapping[str, float]] = {
    "completions": {"input": 20, "cache_read": 100, "cache_write": 0, "answered": 30, "cost": 0.000475},
    "responses": {"input": 20, "cache_read": 100, "cache_write": 0, "answered": 30, "cost": 0.000475},
    "messages": {"input": 20, "cache_read": 60, "cache_write": 40, "answered": 30, "cost": 0.000678},
    "embeddings": {"input": 5, "cache_read": 0, "cache_write": 0, "answered": 0, "cost": 1e-7},
}


@attrs.frozen
class Client:
    """A script, what its trace trees look like by kind, and what its SDK can say at all."""

    name: str
    environment: str
    trees: str
    #: How many of its calls say what was thought.
    thought: int = 0
    says_session: bool = True
    #: Answer tokens that the SDK itself makes up.
    surplus: int = 0
    surplus_cost: float = 0.0
    #: What it says of a completion, where that is not what was used.
    told: Mapping[str, float] | None = None
    #: Whether spans of models hold what was asked and answered.
    says_texts: bool = True
    tool: str = "get_weather"


CLIENTS = (
    Client("openinference_openai", "openinference", "llm, llm, llm, llm, embedding", thought=4),
    # The SDK's own span stands below its caller, or, of a stream, in a trace of its own.
    Client("openinference_anthropic", "openinference", "llm(llm), llm(llm), llm, llm"),
    Client("langgraph_agent", "openinference", "step(step(llm) step(tool) step(llm))", thought=2),
    Client("openai_agents", "openinference", "agent(step(agent(step(llm tool) step(llm))))", thought=2),
    Client("pydantic_ai_agent", "openinference", "agent(llm tool llm)", thought=2),
    Client("langfuse_sdk", "openinference", "agent(tool llm)", thought=1),
    # Of a stream it does not say what was thought. Sessions are the Traceloop SDK's, which is not here.
    Client(
        "openllmetry_openai", "openllmetry", "llm, llm, llm, llm, embedding", thought=3, says_session=False
    ),
    # Of a stream it adds the first count of the answer to the last one, which holds it.
    Client(
        "openllmetry_anthropic",
        "openllmetry",
        "llm, llm, llm, llm, llm, llm",
        says_session=False,
        surplus=1,
        surplus_cost=0.000015,
    ),
    Client("genai_openai", "genai", "llm, llm, llm, llm, embedding", thought=4, says_session=False),
    # Neither mode says what was thought.
    Client("strands_agent", "strands", "agent(step(llm tool) step(llm))"),
    Client("strands_agent_latest", "strands", "agent(step(llm tool) step(llm))"),
    # Its own callback; only the proxy says the session.
    Client(
        "litellm_calls",
        "litellm",
        "llm(step), llm(step), llm(step), embedding(step)",
        thought=3,
        says_session=False,
    ),
    # A stream has a span for the request and one, in a trace of its own, for what came.
    Client("logfire_openai", "logfire", "llm, llm, llm, llm, llm, embedding", thought=4),
    Client(
        "logfire_agents",
        "logfire",
        ", ".join(["workflow(step(agent(step(llm tool) step(llm))))"] * 2),
        thought=4,
    ),
    # Its own spans, an instrumentation of its agents, and one of the SDK below.
    Client("autogen_agent", "autogen", "agent, agent(agent(llm(llm) tool(tool) llm(llm)))", thought=2),
    # Version 7 takes no metadata, so no session; its new shape does not say what was thought.
    Client("vercel_new", "js", "agent(step(llm tool) step(llm)), agent(step(llm))", says_session=False),
    # Neither what a cache gave nor what was thought; texts go to its log, and the tool has its plugin's name.
    Client(
        "semantic_kernel_agent",
        "semantic_kernel",
        "agent(step(llm tool llm))",
        says_session=False,
        told={"input": 120, "cache_read": 0, "cache_write": 0, "answered": 30, "cost": 0.0006},
        says_texts=False,
        tool="Weather-get_weather",
    ),
    # Its instrumentation says no tokens.
    Client(
        "dspy_agent",
        "dspy",
        "llm, tool",
        told={"input": 0, "cache_read": 0, "cache_write": 0, "answered": 0, "cost": 0},
    ),
    Client("vercel_legacy", "js", "step(llm(tool) llm), step(llm)", thought=3, says_session=False),
)


@pytest.fixture(scope="module")
def environments() -> dict[str, str]:
    """The program of each environment; they are made side by side."""

    def make(name: str) -> str:
        if name == "js":
            return node_with(HERE / "js", "ai", "--legacy-peer-deps", otherwise=unavailable)
        return str(python_with(HERE / f"{name}.txt", otherwise=unavailable))

    names = sorted({client.environment for client in CLIENTS})
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(make, names), strict=True))


def unavailable(part: str) -> NoReturn:
    """Registries need not serve so many packages everywhere: skip aloud, in CI too."""
    pytest.skip(f"{part} is not to be had here")


def run(service: Service, standin: StandIn, client: Client, program: str) -> list[str]:
    """Run the client's script; the ids of its traces."""
    script = (
        ["vercel.mjs", client.name.removeprefix("vercel_")]
        if client.environment == "js"
        else [f"{client.name}.py"]
    )
    env = {
        **os.environ,
        "SVC": service.url,
        "WRITE_KEY": service.write_key,
        "MODELS": f"{standin.url}/{client.name}",
        "SESSION": f"session of {client.name}",
        "OPENAI_API_KEY": "none",
        "OTEL_SDK_DISABLED": "false",
    }
    folder = HERE / ("js" if client.environment == "js" else "scripts")
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

    until(is_settled, timeout_s=60)
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
        found.sort(key=lambda span: str(span["started_at"]))
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
    service: Service, standin: StandIn, environments: dict[str, str], client: Client
) -> None:
    ids = run(service, standin, client, environments[client.environment])
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
    assert models <= {"gpt-4o", "claude-sonnet-4-5", "text-embedding-3-small"}
    shown = [span for span in spans if span["kind"] == "llm" and span["output"] is not None]
    answers = sum(n for api, n in calls.items() if api != "embeddings")
    assert len(shown) >= (answers if client.says_texts else 0)
    counted = [span for span in spans if span["kind"] == "llm" and span["counts_as_call"]]
    assert sum(span["total_tokens"] is not None for span in counted) == (answers if used["answered"] else 0)
    for span in shown:
        assert said(span["input"], "text")[-1]["text"] == QUESTION or said(span["input"], "tool_result"), span
        calling = said(span["output"], "tool_call")
        if calling:
            assert [(part["name"], part["arguments"]) for part in calling] == [(client.tool, ARGUMENTS)]
        else:
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
    assert rows == [client.tool] * max(standin.tools[client.name], len(outermost))
    if client.says_session:
        told = {trace["session_id"] for trace in traces if any(span in shown for span in trace["spans"])}
        assert told == {f"session of {client.name}"}
