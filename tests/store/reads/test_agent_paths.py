"""The agents above calls as spans and traces show them: of their own project, and not without end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from svc.store.postgres.database import Database
from svc.store.reads.usage import agent_paths
from svc.store.reads.usage.agent_paths import AgentPathReads, TraceAgents
from svc.store.spans.traces import PostgresTraceStore
from tests.front.mcp.asking import Door
from tests.store.spans.test_writing import NOW, PROJECT, one, rows, store_of

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.agent.name": "the caller's own"}
TEAM = ("planner", "writer/draft", None, "planner")


def trace_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


async def team(store: Database, number: int, *agents: str | None) -> None:
    """A trace whose calls are made by these agents, and a step that has none."""
    made = rows(
        *(
            one(n + 1, parent=n, trace_id=trace_id(number), name=f"call {n}", attributes=CHAT)
            for n in range(len(agents))
        ),
        one(90, parent=1, trace_id=trace_id(number), name="step"),
    )
    for span, agent in zip(made, agents, strict=False):
        if agent is not None:
            # As if the trace had been tallied.
            span.row.attributes += ("agent_path", agent)
    await store_of(store).write(made)
    await PostgresTraceStore(store).settle(NOW + timedelta(minutes=5), 100)


def paths(spans: list[dict[str, Any]]) -> dict[str, str | None]:
    return {span["name"]: span.get("agent_path") for span in spans}


async def test_a_span_says_the_agent_above_it_where_answers_may_say_more(store: Database) -> None:
    await team(store, 1, *TEAM)
    of_trace = {"trace_id": trace_id(1).hex()}
    asked: dict[str, dict[str, Any]] = {
        "get_trace": of_trace,
        "list_spans": of_trace,
        "get_span": {**of_trace, "span_id": (2).to_bytes(8, "big").hex()},
    }
    told = {f"call {n}": agent for n, agent in enumerate(TEAM)} | {"step": None}
    for tool, arguments in asked.items():
        call = {"name": tool, "arguments": arguments}
        answer = (await Door.of(store).ask("tools/call", call)).result["structuredContent"]
        if tool == "get_span":
            assert answer["agent_path"] == "writer/draft"
            answer = {"spans": [answer]}
        else:
            assert paths(answer["spans"]) == told
        plain = (await Door.of(store, extensions=False).ask("tools/call", call)).result
        (text,) = plain["content"]
        assert "agent_path" not in text["text"]


async def test_the_agents_of_traces_are_named_once_and_no_others(store: Database) -> None:
    await team(store, 1, *TEAM)
    await team(store, 2, None)
    await team(store, 3, "searcher")
    reads = AgentPathReads(store)
    ids = [trace_id(number) for number in (1, 2, 3, 4)]
    assert await reads.of_traces(PROJECT, ids) == {
        trace_id(1): TraceAgents(["planner", "writer/draft"], has_more=False),
        trace_id(3): TraceAgents(["searcher"], has_more=False),
    }
    assert await reads.of_traces(PROJECT, []) == {}
    assert await reads.of_traces(PROJECT + 1, ids) == {}


async def test_of_many_agents_few_are_named_and_it_says_so(store: Database) -> None:
    names = [f"agent {n:02}" for n in range(agent_paths.MOST_AGENTS + 1)]
    await team(store, 1, *names)
    await team(store, 2, *names[:-1])
    told = await AgentPathReads(store).of_traces(PROJECT, [trace_id(1), trace_id(2)])
    assert told[trace_id(1)] == TraceAgents(names[:-1], has_more=True)
    assert told[trace_id(2)] == TraceAgents(names[:-1], has_more=False)


@pytest.mark.parametrize("count", [0, 3])
async def test_spans_without_agents_stay_as_they_are(store: Database, count: int) -> None:
    await team(store, 1, *[None] * count)
    shown = [
        {
            "trace_id": trace_id(1).hex(),
            "span_id": (n + 1).to_bytes(8, "big").hex(),
            "kind": "llm",
            "started_at": "2026-11-20T12:00:00.000000Z",
        }
        for n in range(count)
    ]
    before = [dict(span) for span in shown]
    await AgentPathReads(store).add_to(PROJECT, shown)
    assert shown == before
