"""What tests of agents share: a service whose agents' provider is a stand-in, findings that may be judged."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import httpx2

from protocol.detection import RULE, Cause, Opened, Ref
from svc.application.open_store import Store
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.cases.case_findings import CaseFindings
from tests.e2e.hostile import unique
from tests.e2e.mcp import beside, filled_ids
from tests.runner.standin_model import Asked, Reply, StandIn, calls, standin
from tests.service import PLAIN, TRACE_SVC, Service, environment, free_port, running, until
from tests.store.detection.detecting import confirm, fire, seen

PROJECT = "/api/orgs/default/projects/default"
SECRET = "sk-ant-of-the-stand-in-0123456789"
OVER = ("done", "failed", "cancelled", "parked")


def judging(asked: Asked) -> Reply:
    """A model that reads the evidence and then says what it saw; a planted false claim it rejects."""
    if not asked.results:
        finding = re.search(r'"id": "([0-9a-f-]{36})"', asked.prompt)
        assert finding is not None
        return calls(("get_finding_evidence", {"finding_id": finding[1]}))
    found = re.search(r'"trace_id":"([0-9a-f]{32})"', asked.results[0])
    assert found is not None, asked.results[0][:300]
    cited = [{"kind": "trace", "id": found[1], "note": "fails"}, {"kind": "query", "id": "q1", "note": "all"}]
    if "dossier.json" not in asked.prompt:
        verdict = "negative" if "planted false" in asked.prompt else "positive"
        answer = {"verdict": verdict, "summary": f"It is {verdict}.", "citations": cited}
        return calls(("submit_answer", answer))
    hypothesis = {
        "title": "The planted cause",
        "confidence": "high",
        "rationale": "It fails since then.",
        "evidence_trace_ids": [found[1]],
        "citations": cited,
    }
    report = {
        "summary": "The planted cause explains it.",
        "verdict": "behavior_change",
        "checklist": [],
        "hypotheses": [hypothesis],
        "detailed_report": "## Cause\nThe planted one.",
    }
    return calls(("submit_answer", report))


@attrs.define(eq=False)
class Agents:
    """A service, the stand-in that its agents ask, and an admin key."""

    service: Service
    model: StandIn
    key: str

    def call(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """The data of a REST answer."""
        response = httpx2.request(
            method,
            self.service.url + PROJECT + path,
            json=body,
            headers={"authorization": f"Bearer {self.key}"},
            timeout=60,
            **PLAIN,
        )
        assert response.status_code == status, response.text
        return response.json().get("data")

    def run(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/agent-runs/{run_id}")
        return found

    def over(self, run_id: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """The run once it has ended or waits for people."""
        until(lambda: self.run(run_id)["state"] in OVER, timeout_s, every_s=0.2)
        return self.run(run_id)

    def planted(self, title: str = "search fails", *, case: bool = False) -> str:
        """A finding (or its case) whose evidence is a trace of this project; its id."""
        trace = bytes.fromhex(filled_ids(self.service)["trace_id"])

        async def work(store: Store) -> str:
            project = await ProjectStore(store.database).make_default()
            assert project is not None
            now = datetime.now(UTC)
            what = seen(
                cause=Cause("tool_error", "rate", unique("cause")),
                title=title,
                detected_at=now,
                # The trace is of before this: a baseline that may be cited.
                onset_at=now + timedelta(minutes=1),
            )
            refs = [Ref("witness", trace_id=trace), Ref("baseline", trace_id=trace)]
            finding = await fire(store.database, what, refs, project.id)
            if not case:
                return str(finding)
            await confirm(store.database, finding, project.id)
            opened = await CaseFindings(store.database).open(project.id, finding, RULE, now)
            assert isinstance(opened, Opened)
            return str(opened.id)

        made: str = beside(self.service, work)
        return made

    def press(self, kind: str, subject_id: str) -> str:
        """The id of the run that a press makes."""
        where = f"/findings/{subject_id}/triage" if kind == "triage" else f"/cases/{subject_id}/rca"
        run: str = self.call("POST", where, status=202)["run"]
        return run

    def tool(self, name: str, **arguments: Any) -> Any:
        """What a tool says over MCP."""
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        answer = httpx2.post(
            f"{self.service.url}/mcp",
            json={**message, "params": {"name": name, "arguments": arguments}},
            headers={"authorization": f"Bearer {self.key}"},
            timeout=60,
            **PLAIN,
        )
        return answer.json()["result"]["structuredContent"]

    def living_keys(self) -> int:
        """Keys of runs that still open something."""

        async def work(store: Store) -> int:
            # All of them.
            rows = await store.database.fetch(
                "select count(*) as n from api_key where purpose is not null and revoked_at is null"
            )
            found: int = rows[0]["n"]
            return found

        found: int = beside(self.service, work)
        return found


@contextmanager
def agents(data_dir: Path | None = None, model: StandIn | None = None, **settings: str) -> Iterator[Agents]:
    """A service whose agents are on."""
    if model is None:
        with standin(judging) as made, agents(data_dir, made, **settings) as found:
            yield found
        return
    known = {
        "AGENT_PROVIDER": "first_party_api",
        "AGENT_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": SECRET,
        # What a test plants, detectors would confirm by rule in a round of theirs.
        "SVC_DETECTORS_INTERVAL_SECONDS": "3600",
        **settings,
    }
    plain: Any = known
    with running(data_dir, **plain) as service:
        # Judges begin before anything is sent: what is then left to judge keeps rules from what is planted.
        until(lambda: "case-keeper" in service.health()["components"]["actors"]["details"])
        key = service.command("keys", "create", "--scope", "admin", "--name", "agents").strip()
        yield Agents(service, model, key)


def held(gate: threading.Event, then: Any = judging) -> Any:
    """A model that answers once a gate is open."""

    def script(asked: Asked) -> Reply:
        reply: Reply = then(asked)
        return attrs.evolve(reply, wait=gate)

    return script


def expire(agents: Agents) -> None:
    """Every lease is over: who held it is dead."""

    async def work(store: Store) -> None:
        # All of them.
        await store.database.fetch(
            "update agent_run set lease_until = now() where lease_until is not null returning id"
        )

    beside(agents.service, work)


@contextmanager
def runner_beside(model: StandIn) -> Iterator[dict[str, str]]:
    """A runner of its own, and the settings of a service that uses it."""
    key = "a key that both have"
    port = free_port()
    env = environment(
        "/nowhere",
        SANDBOX_RUNNER_KEY=key,
        SANDBOX_RUNNER_BIND=f"127.0.0.1:{port}",
        AGENT_PROVIDER="first_party_api",
        AGENT_BASE_URL=model.url,
        ANTHROPIC_API_KEY=SECRET,
    )
    process = subprocess.Popen([TRACE_SVC, "sandbox-runner"], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "is ready at" in process.stdout.readline()
        yield {
            "SVC_OBSERVER_AGENTIC_LAUNCHER_URL": f"http://127.0.0.1:{port}",
            "SANDBOX_RUNNER_KEY": key,
            "SVC_HTTP_BIND": f"127.0.0.1:{free_port()}",
        }
        process.terminate()
        assert process.wait(40) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def text_of(value: Any) -> str:
    return json.dumps(value)
