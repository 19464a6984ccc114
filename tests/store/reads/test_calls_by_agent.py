"""Tool calls by the agent above them, which their spans tell: a field of theirs for every question."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from svc.store.postgres.database import Database
from svc.store.reads.questions.questions import Question, ask
from tests.store.as_json import JsonQueries
from tests.store.spans.test_writing import NOW, PROJECT, one, rows, store_of

AGENTS = ("planner", "writer/draft", None)
CALLS = 12


async def calls(store: Database, number: int = CALLS) -> None:
    """Calls of a tool a minute apart, by two agents and by none in turn; every fourth failed."""
    for n in range(number):
        made = rows(
            one(
                n + 1,
                name="execute_tool search",
                start=NOW - timedelta(minutes=n),
                status_code=2 if n % 4 == 0 else 0,
                attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": f"tool-{n % 2}"},
            )
        )
        if (agent := AGENTS[n % 3]) is not None:
            # As if its trace had settled.
            made[0].row.attributes += ("agent_path", agent)
        await store_of(store).write(made)


def asked(**more: Any) -> Question:
    filters = more.pop("filters", {})
    bounds = NOW - timedelta(hours=2), NOW + timedelta(hours=2)
    return ask(PROJECT, "tool_calls", bounds, filters, **more)


def numbers(agent: str | None) -> list[int]:
    return [n for n in range(CALLS) if AGENTS[n % 3] == agent]


@pytest.mark.parametrize("by", ["created_at", "started_at"])
@pytest.mark.parametrize("agent", AGENTS)
async def test_calls_are_counted_and_listed_by_the_agent_above_them(
    store: Database, agent: str | None, by: str
) -> None:
    await calls(store)
    queries, of_agent = JsonQueries(store), {"agent_path": agent}
    assert (await queries.count(asked(filters=of_agent, by=by)))["count"] == len(numbers(agent))
    failed = [n for n in numbers(agent) if n % 4 == 0]
    assert (await queries.count(asked(filters={**of_agent, "status": "error"})))["count"] == len(failed)
    found = await queries.search(asked(filters={**of_agent, "name": "tool-1"}, by=by), None, None, 100, None)
    listed = sorted(int(row["fields"]["span_id"], 16) - 1 for row in found["rows"])
    assert listed == [n for n in numbers(agent) if n % 2]


async def test_the_agents_of_calls_are_ranked_and_drawn_with_every_measure(store: Database) -> None:
    await calls(store)
    queries = JsonQueries(store)
    facets = (await queries.facets(asked(), "agent_path", 10))["facets"]
    assert {facet["value"]: facet["count"] for facet in facets} == dict.fromkeys(AGENTS, 4)
    failed = (await queries.facets(asked(measure="errors", filters={"name": "tool-0"}), "agent_path", 2))[
        "facets"
    ]
    assert [(facet["value"], facet["errors"]) for facet in failed] == [("planner", 1), ("writer/draft", 1)]
    series = await queries.timeseries(asked(), "day", group_by="agent_path")
    drawn = {one["value"]: sum(bucket["count"] for bucket in one["buckets"]) for one in series["series"]}
    assert drawn == dict.fromkeys(AGENTS, 4)


async def test_a_call_is_never_told_by_the_span_of_another_project(store: Database) -> None:
    await calls(store, 3)
    await store_of(store).write(rows(one(1, start=NOW), project=PROJECT + 1))
    other = ask(PROJECT + 1, "tool_calls", (None, None), {"agent_path": "planner"})
    assert (await JsonQueries(store).count(other))["count"] == 0
