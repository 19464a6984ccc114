"""Runs of agents while services and runners are killed in every state that a run can have.

A run is never lost, its outcome never written twice, and what it used stays below its cap, whoever dies: the
service before, between and after two words of a runner, the runner itself, one of two copies.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
import trio

from protocol.agents import AgentSettings
from protocol.running import RunResult
from svc.application.open_store import Store
from svc.outside.runner import RunnerClient
from svc.store.accounts.projects import ProjectStore
from svc.store.agents.settings import AgentSettingStore
from tests.debian_postgres import DEBIAN, DebianPostgres
from tests.e2e.agents import SECRET, Agents, agents, expire, judging
from tests.e2e.mcp import beside
from tests.runner.standin_model import Asked, Reply, StandIn, calls, standin
from tests.service import TRACE_SVC, environment, free_port, until

pytestmark = [pytest.mark.alone, pytest.mark.release]
RUNNER_KEY = "a key that both have"


@attrs.define(eq=False)
class Stage:
    """A database, a model, a runner, and the service that is alive now."""

    folder: Path
    postgres: DebianPostgres
    model: StandIn
    copies: ExitStack
    gates: dict[str, threading.Event] = attrs.field(factory=dict)
    refusing: threading.Event = attrs.field(factory=threading.Event)
    port: int = attrs.field(factory=free_port)
    started: int = 0
    runner: subprocess.Popen[str] | None = None
    #: Those that the first start on the database wrote.
    keys: tuple[str, str] | None = None

    def serve(self) -> Agents:
        """Another copy of the service."""
        self.started += 1
        found: Agents = self.copies.enter_context(
            agents(
                self.folder / f"copy-{self.started}",
                self.model,
                SVC_JDBC_URL=self.postgres.url,
                SVC_INGEST_DECODERS="0",
                SVC_HTTP_BIND=f"127.0.0.1:{free_port()}",
                SVC_OBSERVER_AGENTIC_LAUNCHER_URL=f"http://127.0.0.1:{self.port}",
                SANDBOX_RUNNER_KEY=RUNNER_KEY,
            )
        )
        self.keys = self.keys or (found.service.write_key, found.service.query_key)
        found.service.write_key, found.service.query_key = self.keys
        return found

    def run(self) -> None:
        """The runner, where it always is."""
        env = environment(
            "/nowhere",
            SANDBOX_RUNNER_KEY=RUNNER_KEY,
            SANDBOX_RUNNER_BIND=f"127.0.0.1:{self.port}",
            AGENT_PROVIDER="first_party_api",
            AGENT_BASE_URL=self.model.url,
            ANTHROPIC_API_KEY=SECRET,
        )
        self.runner = subprocess.Popen(
            [TRACE_SVC, "sandbox-runner"], env=env, stdout=subprocess.PIPE, text=True
        )
        assert self.runner.stdout is not None
        assert "is ready at" in self.runner.stdout.readline()

    def kill_runner(self, *, again: bool) -> None:
        assert self.runner is not None
        self.runner.kill()
        self.runner.wait(10)
        assert self.runner.stdout is not None
        self.runner.stdout.close()
        if again:
            self.run()

    def release(self) -> None:
        """Open every gate."""
        for gate in self.gates.values():
            gate.set()

    def held(self, title: str) -> threading.Event:
        """The gate before the model's answers to a run."""
        return self.gates.setdefault(title, threading.Event())

    def script(self, asked: Asked) -> Reply:
        """Judges; holds what is to be held, reads a table that may be locked, refuses what is to wait."""
        if "waits for people" in asked.prompt and self.refusing.is_set():
            return Reply(status=401)
        reply = judging(asked)
        if "locked table" in asked.prompt and not asked.results:
            reply = calls(*reply.calls, ("query_count", {"dataset": "classifier_events"}))
        gate = next((gate for title, gate in self.gates.items() if title in asked.prompt), None)
        # The first answer comes at once, so that there is something to lose.
        return reply if gate is None or not asked.results else attrs.evolve(reply, wait=gate)

    def asked(self, title: str) -> list[int]:
        """How much each call of the model for a run knew: one undisturbed run asks with 0, then with some."""
        return [len(one.results) for one in self.model.asked if title in one.prompt]

    def result(self, run: dict[str, Any]) -> RunResult | None:
        """What the runner has of a run."""
        client = RunnerClient(f"http://127.0.0.1:{self.port}", RUNNER_KEY)
        found = trio.run(client.result, f"{run['id']}.1")
        return found if isinstance(found, RunResult) else None

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        """Nobody reads a table."""
        lock = subprocess.Popen(
            [DEBIAN[-1] / "psql", "-h127.0.0.1", f"-p{self.postgres.port}", "-Uowner", "-qAt", "postgres"],
            env={**os.environ, "PGPASSWORD": "secret of the test"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert lock.stdin is not None
        assert lock.stdout is not None
        try:
            lock.stdin.write(f"begin; lock table {table} in access exclusive mode; select 'held';\n")
            lock.stdin.flush()
            assert lock.stdout.readline().strip() == "held"
            yield
        finally:
            lock.stdin.close()
            lock.wait(30)
            lock.stdout.close()

    def is_waited_for(self, table: str) -> bool:
        """Whether somebody wants to read what is locked."""
        said = subprocess.run(
            [
                *(
                    DEBIAN[-1] / "psql",
                    "-h127.0.0.1",
                    f"-p{self.postgres.port}",
                    "-Uowner",
                    "-qAt",
                    "postgres",
                ),
                *(
                    "-c",
                    f"select count(*) from pg_locks where not granted and relation = '{table}'::regclass",
                ),
            ],
            env={**os.environ, "PGPASSWORD": "secret of the test"},
            capture_output=True,
            text=True,
            check=True,
        )
        return int(said.stdout) > 0


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with TemporaryDirectory(prefix="trace-svc-") as folder:
        # The database's account passes through.
        os.chmod(folder, 0o755)
        postgres = DebianPostgres(Path(folder) / "pg")
        with ExitStack() as last, standin(judging) as model, ExitStack() as copies:
            last.callback(postgres.stop)
            made = Stage(Path(folder), postgres, model, copies)
            model.script = made.script
            made.run()
            last.callback(made.kill_runner, again=False)
            last.callback(made.release)
            yield made


@pytest.fixture(scope="module")
def first(stage: Stage) -> Agents:
    return stage.serve()


def ends_well(house: Agents, run_id: str) -> dict[str, Any]:
    """A run that came to its outcome, once, below its cap."""
    until(lambda: house.run(run_id)["state"] in ("done", "failed", "cancelled"), every_s=0.2)
    run = house.run(run_id)
    assert (run["state"], run["attempt"]) == ("done", 1), run
    assert 0 < run["spent"]["usd"] < 2.0

    async def ends(store: Store) -> int:
        # What was written of its end.
        rows = await store.database.fetch(
            "select count(*) as n from audit_row where action = 'agent_run.end' and subject_id = $1", run_id
        )
        found: int = rows[0]["n"]
        return found

    assert beside(house.service, ends) == 1
    return run


def turns(run: dict[str, Any]) -> int:
    found: int = run["spent"].get("turns", 0)
    return found


def unpark(house: Agents) -> None:
    """Somebody changes a setting."""

    async def work(store: Store) -> None:
        project = await ProjectStore(store.database).make_default()
        assert project is not None
        org = await ProjectStore(store.database).the_org()
        put = AgentSettingStore(store.database).put
        assert await put(org.id, project.id, AgentSettings(day_usd=99.0), "ann@example.com")

    beside(house.service, work)


def kill(house: Agents) -> None:
    house.service.process.kill()
    house.service.process.wait(10)


def test_a_service_that_is_killed_leaves_what_is_parked_queued_asked_and_looked_up_to_the_next(
    stage: Stage, first: Agents
) -> None:
    stage.refusing.set()
    parked = first.press("triage", first.planted("waits for people"))
    assert first.over(parked)["state"] == "parked"
    gate = stage.held("is held at the model")
    asked = first.press("triage", first.planted("is held at the model"))
    until(lambda: stage.asked("is held at the model") == [0, 1])
    with stage.locked("classifier_event"):
        looks = first.press("triage", first.planted("reads the locked table"))
        until(lambda: stage.is_waited_for("classifier_event"))
        queued = first.press("triage", first.planted("has to wait"))
        states = [first.run(one)["state"] for one in (parked, asked, looks, queued)]
        assert states == ["parked", "running", "running", "queued"]
        kill(first)
    stage.refusing.clear()
    second = stage.serve()
    # Nobody waits for the leases of the dead.
    expire(second)
    unpark(second)
    gate.set()
    done = [ends_well(second, one) for one in (parked, asked, looks, queued)]
    # What the runner had begun went on where it was: each asked what one run asks, and no more.
    assert [turns(run) for run in done] == [2, 2, 2, 2]
    assert stage.asked("is held at the model") == [0, 1]
    assert stage.asked("reads the locked table") == [0, 2]
    assert stage.asked("waits for people") == [0, 0, 1]
    assert second.living_keys() == 0
    kill(second)


def test_a_service_that_is_killed_while_a_run_answers_or_is_cancelled_is_followed_to_the_same_end(
    stage: Stage, first: Agents
) -> None:
    house = stage.serve()
    gate = stage.held("answers unheard")
    stage.held("is not wanted")
    answers = house.press("triage", finding := house.planted("answers unheard"))
    unwanted = house.press("triage", house.planted("is not wanted"))
    until(lambda: stage.asked("answers unheard") == stage.asked("is not wanted") == [0, 1])
    assert stage.runner is not None
    # The runner hears nothing of the cancel while the service says that it is on its way.
    stage.runner.send_signal(signal.SIGSTOP)
    house.call("POST", f"/agent-runs/{unwanted}/cancel")
    run = house.run(answers)
    assert house.run(unwanted)["cancelling"]
    house.service.process.send_signal(signal.SIGSTOP)
    stage.runner.send_signal(signal.SIGCONT)
    gate.set()
    # The runner has the answer, and whoever asked for it will never hear.
    until(lambda: getattr(stage.result(run), "state", None) == "done")
    kill(house)
    third = stage.serve()
    expire(third)
    ended = ends_well(third, answers)
    assert (turns(ended), stage.asked("answers unheard")) == (2, [0, 1])
    assert third.over(unwanted)["state"] == "cancelled"
    assert third.call("GET", f"/findings/{finding}")["triageVerdict"] == "positive"
    assert third.living_keys() == 0
    kill(third)


def test_a_runner_that_is_killed_in_any_state_is_asked_again_below_the_same_cap(
    stage: Stage, first: Agents
) -> None:
    house = stage.serve()
    gate = stage.held("is lost at the model")
    asked = house.press("triage", house.planted("is lost at the model"))
    until(lambda: stage.asked("is lost at the model") == [0, 1])
    with stage.locked("classifier_event"):
        looks = house.press("triage", house.planted("loses the locked table"))
        until(lambda: stage.is_waited_for("classifier_event"))
        # The call under way is in the books before it is answered.
        until(lambda: turns(house.run(asked)) == 2)
        # While it comes up again nobody counts how often it did not answer.
        house.service.process.send_signal(signal.SIGSTOP)
        stage.kill_runner(again=True)
    gate.set()
    house.service.process.send_signal(signal.SIGCONT)
    for run_id, lost in ((asked, 2), (looks, 1)):
        run = ends_well(house, run_id)
        assert run["refunds"] >= 1
        # What was used before it died stays counted, and so does what a lost call may have cost.
        assert turns(run) == lost + 2
    assert stage.asked("is lost at the model") == [0, 1, 0, 1]
    # One that answered, and one that is to end, whose runner dies before it can say so.
    gate, _ = stage.held("answers in vain"), stage.held("ends in vain")
    answers = house.press("triage", house.planted("answers in vain"))
    unwanted = house.press("triage", house.planted("ends in vain"))
    until(lambda: stage.asked("answers in vain") == stage.asked("ends in vain") == [0, 1])
    run = house.run(answers)
    assert stage.runner is not None
    stage.runner.send_signal(signal.SIGSTOP)
    house.call("POST", f"/agent-runs/{unwanted}/cancel")
    house.service.process.send_signal(signal.SIGSTOP)
    stage.runner.send_signal(signal.SIGCONT)
    gate.set()
    until(lambda: getattr(stage.result(run), "state", None) == "done")
    stage.kill_runner(again=True)
    house.service.process.send_signal(signal.SIGCONT)
    assert ends_well(house, answers)["refunds"] >= 1
    assert house.over(unwanted)["state"] == "cancelled"
    assert house.living_keys() == 0
    kill(house)


def test_a_service_and_its_runner_that_die_together_lose_no_call_of_the_books(
    stage: Stage, first: Agents
) -> None:
    house = stage.serve()
    gate = stage.held("is lost by both")
    run_id = house.press("triage", house.planted("is lost by both"))
    until(lambda: turns(house.run(run_id)) == 2)
    kill(house)
    stage.kill_runner(again=True)
    heir = stage.serve()
    # Whoever takes over asks a runner that has never heard of it.
    expire(heir)
    gate.set()
    run = ends_well(heir, run_id)
    assert (turns(run), stage.asked("is lost by both")) == (4, [0, 1, 0, 1])
    assert heir.living_keys() == 0
    kill(heir)


def test_a_hundred_presses_at_two_copies_are_one_run_which_the_other_ends_when_one_is_killed(
    stage: Stage, first: Agents
) -> None:
    one, other = stage.serve(), stage.serve()
    gate = stage.held("is pressed a hundred times")
    finding = one.planted("is pressed a hundred times")
    with ThreadPoolExecutor(16) as hands:
        pressed = list(hands.map(lambda n: (one, other)[n % 2].press("triage", finding), range(100)))
    assert len(set(pressed)) == 1
    (run_id,) = set(pressed)
    until(lambda: stage.asked("is pressed a hundred times") == [0, 1])
    held = [copy.service.health()["components"]["agents"]["details"]["in_hand"] for copy in (one, other)]
    assert sorted(held) == [0, 1]
    holder, heir = (one, other) if held[0] else (other, one)
    kill(holder)
    expire(heir)
    gate.set()
    assert turns(ends_well(heir, run_id)) == 2
    assert stage.asked("is pressed a hundred times") == [0, 1]
    assert heir.living_keys() == 0
    kill(heir)
