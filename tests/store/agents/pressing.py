"""What people and launchers do to runs in a store under test, in a line each."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from protocol.agents import AgentSettings, NotPressed, Pressed, RunKind, RunLease
from svc.store.accounts.projects import ProjectStore
from svc.store.agents.reads import RunReads
from svc.store.agents.runs import PostgresRunStore
from svc.store.agents.settings import AgentSettingStore
from svc.store.postgres.database import Database
from tests.store.detection.detecting import ANN, execute, fire, opened, seen
from tests.store.spans.test_writing import NOW


async def pressed(store: Database, kind: RunKind = "triage", number: int = 1) -> Pressed:
    """A run of a finding or a case that is new."""
    subject = await fire(store, seen(number)) if kind == "triage" else (await opened(store, seen(number))).id
    made = await PostgresRunStore(store).press(1, kind, subject, ANN, NOW)
    assert not isinstance(made, NotPressed), made
    return made


async def claimed(store: Database) -> RunLease:
    lease = await PostgresRunStore(store).claim(NOW)
    assert lease is not None
    return lease


async def run_of(store: Database, run_id: UUID) -> dict[str, Any]:
    found = await RunReads(store).one(1, run_id)
    assert found is not None
    return found


async def holder_dies(store: Database) -> None:
    """Every process that holds a run is gone for longer than its lease."""
    await execute(store, "update agent_run set lease_until = now() where lease_until is not null")


async def time_passes(store: Database) -> None:
    """Whatever waits is due."""
    await execute(store, "update agent_run set due_at = now() where due_at > now()")


async def set_agents(store: Database, **fields: Any) -> None:
    """What the default project sets of its agents."""
    project = await ProjectStore(store).make_default()
    assert project is not None
    org = await ProjectStore(store).the_org()
    assert await AgentSettingStore(store).put(org.id, project.id, AgentSettings(**fields), "ann@example.com")
