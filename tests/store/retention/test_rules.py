"""Retention by attribute: what has the value goes by its own days and leaves nothing, all else stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from protocol.detection import Ref
from protocol.storage import Freed
from svc.domain.retention.terms import RetentionRule, Terms
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.postgres.database import Database
from svc.store.reads.questions.questions import ask
from svc.store.retention import rules
from svc.store.retention.rules import read_rules, write_rules
from svc.store.retention.sweep import RetentionStore
from svc.store.spans.traces import PostgresTraceStore
from tests.store.as_json import JsonQueries
from tests.store.detection.detecting import fire, seen
from tests.store.spans.test_writing import NOW, PROJECT, Clock, fetch, one, rows, store_of

DAY = timedelta(days=1)
DEVELOPMENT = RetentionRule("environment", "development", 3)
TABLES = ("span", "span_payload", "tool_call", "trace", "session")


def trace_id(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


async def write(store: Database, numbers: range, *, days_ago: int, environment: str) -> None:
    """Traces of two spans each, settled, in a session of their own."""
    clock = Clock()
    clock.now = NOW - days_ago * DAY
    spans: list[Any] = []
    for number in numbers:
        said = {"session.id": f"s{number}", "gen_ai.operation.name": "invoke_agent"}
        call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        spans.append(one(1, start=clock.now, trace_id=trace_id(number), attributes=said))
        spans.append(one(2, start=clock.now, parent=1, trace_id=trace_id(number), attributes=call))
    resource = {"service.name": "shop", "deployment.environment": environment}
    await store_of(store, clock).write(rows(*spans, resource=resource, came=clock.now))
    for _ in range(3):
        await PostgresTraceStore(store).settle(clock.now + timedelta(hours=1), 10_000)


async def sweep(store: Database, now: Any = NOW) -> dict[str, int]:
    counts: dict[str, int] = {}

    def freed(what: Freed) -> None:
        counts[what.table] = counts.get(what.table, 0) + what.rows

    await RetentionStore(store, Terms(0, 0)).sweep(now, freed)
    return counts


async def rule(store: Database, *new: RetentionRule) -> None:
    await store.run(lambda connection: write_rules(connection, PROJECT, new))


async def left(store: Database, table: str) -> int:
    return len(await fetch(store, f"select from {table}"))


@pytest.fixture
async def filled(store: Database) -> Database:
    """Traces of two environments, five days and one day ago."""
    await ProjectStore(store).make_default()
    await write(store, range(4), days_ago=5, environment="development")
    await write(store, range(4, 7), days_ago=5, environment="production")
    await write(store, range(7, 9), days_ago=1, environment="development")
    return store


async def test_what_has_the_value_goes_whole_and_all_else_stays(filled: Database) -> None:
    cubes = CubeStore(filled)
    while (await cubes.build(NOW, 500)).more:
        pass
    before = {table: await left(filled, table) for table in TABLES}
    assert (before["span"], before["trace"], before["session"]) == (18, 9, 9)
    await rule(filled, DEVELOPMENT)
    assert await sweep(filled) == {"span": 8, "tool_call": 4, "trace": 4}
    after = {table: await left(filled, table) for table in TABLES}
    assert (after["span"], after["tool_call"], after["trace"], after["session"]) == (10, 5, 5, 5)
    assert await fetch(filled, "select from span_payload where trace_id = $1", trace_id(0)) == []
    assert await left(filled, "span_payload") == before["span_payload"] - 4
    # Counts know it at once, from rows and when the cubes have followed.
    for _ in range(2):
        question = ask(PROJECT, "spans", (None, None), {})
        assert (await JsonQueries(filled).count(question))["count"] == 10
        while (await cubes.build(NOW, 500)).more:
            pass
    assert await sweep(filled) == {}


async def test_marks_go_with_their_trace_and_firings_stay(filled: Database) -> None:
    await fetch(
        filled,
        "insert into classifier_event (project_id, classifier_id, severity, subject_kind, subject_trace_id,"
        " summary, created_at) select $1, kind, 'low', 'span', $2, 'it is so', $3"
        " from unnest($4::text[]) as kind",
        *(PROJECT, trace_id(0), NOW, ["same_call_again", "tool_error"]),
    )
    await rule(filled, DEVELOPMENT)
    await sweep(filled)
    events = await fetch(filled, "select classifier_id from classifier_event")
    assert [row["classifier_id"] for row in events] == ["tool_error"]


async def test_days_and_late_traces_follow_as_they_expire(filled: Database) -> None:
    await rule(filled, DEVELOPMENT)
    await sweep(filled)
    # Of five days ago, but it arrives only now.
    await write(filled, range(20, 21), days_ago=5, environment="development")
    await fetch(filled, "update trace set created_at = $1 where trace_id = $2", NOW, trace_id(20))
    assert await sweep(filled, NOW + timedelta(hours=1)) == {}
    assert (await sweep(filled, NOW + DAY))["trace"] == 1
    assert (await sweep(filled, NOW + 3 * DAY))["trace"] == 2
    assert await left(filled, "trace") == 3


async def test_what_an_open_finding_cites_stays(filled: Database) -> None:
    await fire(filled, seen("search"), [Ref("member", trace_id=trace_id(0))])
    await rule(filled, DEVELOPMENT)
    assert (await sweep(filled))["trace"] == 3
    assert len(await fetch(filled, "select from span where trace_id = $1", trace_id(0))) == 2


async def test_batches_come_to_the_same(filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "BATCH_TRACES", 2)
    monkeypatch.setattr(rules, "DELETED_TRACES", 1)
    monkeypatch.setattr(rules, "BATCH_PAUSE_S", 0)
    await rule(filled, DEVELOPMENT)
    assert await sweep(filled) == {"span": 8, "tool_call": 4, "trace": 4}


async def test_what_is_not_settled_waits_for_another_day(filled: Database) -> None:
    await fetch(filled, "update trace set next_at = $1 where trace_id = $2", NOW, trace_id(0))
    await rule(filled, DEVELOPMENT)
    assert (await sweep(filled))["trace"] == 3
    await fetch(filled, "update trace set next_at = null")
    assert (await sweep(filled, NOW + DAY))["trace"] == 1


async def test_another_project_and_another_value_are_left_alone(filled: Database) -> None:
    await filled.run(lambda connection: write_rules(connection, PROJECT + 1, [DEVELOPMENT]))
    await rule(filled, RetentionRule("environment", "staging", 1), RetentionRule("tenant", "development", 1))
    assert await sweep(filled) == {}


async def test_rules_are_replaced_and_one_that_stays_goes_on(filled: Database) -> None:
    other = RetentionRule("tenant", "acme", 30)
    await rule(filled, DEVELOPMENT, other)
    await sweep(filled)
    await rule(filled, DEVELOPMENT)
    assert await filled.run(lambda connection: read_rules(connection, PROJECT), readonly=True) == [
        DEVELOPMENT
    ]
    (row,) = await fetch(filled, "select swept_until from retention_rule")
    assert row["swept_until"] is not None
    # A shorter term looks at everything again.
    await rule(filled, RetentionRule("environment", "development", 1))
    assert (await sweep(filled, NOW + DAY))["trace"] == 2
