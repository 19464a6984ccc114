"""A press for an agent where no runner was started, over REST and on pages."""

from __future__ import annotations

from svc.application.runner_presence import NamedRunnerPresence
from svc.outside.runner import RunnerClient
from svc.store.postgres.database import Database
from tests.front.api.test_accounts import fetch
from tests.front.people import PROJECT, replica
from tests.runner.running import runner
from tests.service import free_port
from tests.store.detection.detecting import opened, seen
from tests.web.visitor import BASE, Visitor

URL = "http://127.0.0.1:{port}"
TEXT = (
    "no sandbox runner answers at {url}; start one: docker compose --profile agents up -d, or"
    " trace-svc sandbox-runner where SVC_OBSERVER_AGENTIC_LAUNCHER_URL leads"
)


async def test_a_press_where_no_runner_was_started_says_so_and_how_to_start_one(store: Database) -> None:
    url = URL.format(port=free_port())
    presence = NamedRunnerPresence(RunnerClient(url, "key"))
    async with replica(store, runner=presence) as api:
        owner, visitor = await api.owner(), Visitor.of(api)
        case = await opened(store, seen())
        await visitor.post("/login", {"email": "owner@example.org", "password": "correct horse battery"})
        refused = await owner.post(f"{PROJECT}/cases/{case.id}/rca")
        assert refused.refused == (409, "CONFLICT", TEXT.format(url=url))
        page = await visitor.post(BASE + "/cases/C-1/agent", {})
        assert page.status == 409
        assert "docker compose --profile agents up -d" in page.text
        assert await fetch(store, "select from agent_run") == []
        # The rule needs no runner.
        assert (await owner.post(f"{PROJECT}/cases/{case.id}/rca?engine=rule")).status == 202


async def test_a_runner_that_has_answered_once_is_waited_for_when_it_is_away(store: Database) -> None:
    async with runner() as client:
        presence = NamedRunnerPresence(client)
        async with replica(store, runner=presence) as api:
            owner = await api.owner()
            case = await opened(store, seen())
            assert (await owner.post(f"{PROJECT}/cases/{case.id}/rca")).status == 202
    assert await presence.absent() is None
