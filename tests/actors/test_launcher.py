"""Laws of the launcher: what is seen of a runner leads to its row of the table, and no key outlives its
run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import attrs
import msgspec
import pytest
import trio
from trio.testing import MockClock

from actors import launcher
from actors.launcher import BREAKER_FAILURES, BREAKER_S, Launcher, LauncherState
from actors.run_courses import Cancelled, Course, Park, Refund, Spend, of_refusal, of_result, of_watching
from actors.runner_child import NamedRunner
from actors.supervision import Vitals
from protocol.agents import DEFAULT_LIMITS, AgentSettings, RunAbandoned, RunHeld, RunLease, Spent
from protocol.detection import Author
from protocol.running import (
    Credential,
    FailureKind,
    McpPlace,
    RunEvents,
    RunFailure,
    RunnerAway,
    RunnerHealth,
    RunnerRefused,
    RunRequest,
    RunResult,
    RunStands,
)
from protocol.storage import Outage
from tests.actors.every_await import Strike, at_every_await

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ASKED = RunRequest(
    kind="triage",
    files={},
    system_prompt="",
    prompt="",
    json_schema={},
    model="m",
    credential=Credential(),
    mcp=McpPlace("http://service/mcp", "", ()),
    limits=DEFAULT_LIMITS["triage"],
)
DONE = RunResult("done", Spent(2, 10, 10), "m", {"verdict": "positive"})
LEASE_S = 60.0
HEALTHY = RunnerHealth(True, "0", "container", True, "x", 0, 0, 2)


def failed(kind: FailureKind) -> RunResult:
    return RunResult("failed", Spent(1, 10, 10), "m", None, RunFailure(kind, "why"))


@pytest.mark.parametrize(
    ("seen", "course"),
    [
        (RunnerAway("gone"), Refund(5.0, "gone", counts=True)),
        (RunnerRefused(401), Park("misconfigured_runner")),
        (RunnerRefused(403), Park("misconfigured_runner")),
        (RunnerRefused(404), Park("misconfigured_runner")),
        (RunnerRefused(429, "full"), Refund(60.0, "the runner is full")),
        (RunnerRefused(503, "draining"), Refund(5.0, "the runner answers 503", counts=True)),
        (RunnerRefused(409, "other_digest"), Spend("the runner refuses the run (409 other_digest)")),
        (RunnerRefused(400, "bad"), Spend("the runner refuses the run (400 bad)")),
    ],
)
def test_a_runner_that_does_not_take_a_run_leads_to_its_row(seen: Any, course: Course) -> None:
    assert of_refusal(seen) == course


def test_a_runner_that_began_anew_gives_the_attempt_back() -> None:
    assert of_watching(RunnerRefused(404)) == Refund(0.0, "the runner began anew", counts=True)
    assert of_watching(RunnerAway("gone")) == Refund(5.0, "gone", counts=True)


@pytest.mark.parametrize(
    ("kind", "course"),
    [
        ("no_provider", Park("no_provider")),
        ("rejected_credential", Park("rejected_credential")),
        ("no_such_model", Park("no_such_model")),
        ("provider_away", Refund(60.0, "provider_away: why")),
        ("rate_limited", Refund(60.0, "rate_limited: why")),
        ("sandbox_away", Refund(5.0, "sandbox_away: why", counts=True)),
        ("mcp_away", Refund(5.0, "mcp_away: why")),
        ("timeout", Spend("timeout: why")),
        ("budget", Spend("budget: why", attempts=1)),
        ("bad_output", Spend("bad_output: why", attempts=2)),
        ("bad_answer", Spend("bad_answer: why", attempts=2)),
        ("provider_refused", Spend("provider_refused: why", attempts=2)),
        ("sandbox_died", Spend("sandbox_died: why")),
        ("broken", Spend("broken: why")),
    ],
)
def test_a_run_that_failed_leads_to_its_row(kind: FailureKind, course: Course) -> None:
    assert of_result(failed(kind)) == course


def test_what_was_cancelled_is_cancelled_and_an_answer_is_to_be_checked() -> None:
    assert of_result(RunResult("cancelled", Spent())) == Cancelled()
    assert of_result(DONE) is None


@attrs.define(eq=False)
class House:
    """Runs, their requests and a runner, all in memory; time is the test's."""

    waiting: list[int] = attrs.field(factory=list)
    held: dict[int, float] = attrs.field(factory=dict)
    due: dict[int, float] = attrs.field(factory=dict)
    #: How often a run was given back: its next claim has another name.
    refunds: dict[int, int] = attrs.field(factory=dict)
    ended: dict[int, tuple[str, Any]] = attrs.field(factory=dict)
    keys: set[str] = attrs.field(factory=set)
    minted: int = 0
    outages: int = 0
    unwanted: set[int] = attrs.field(factory=set)
    lost: set[int] = attrs.field(factory=set)
    requests: dict[int, Any] = attrs.field(factory=dict)
    attempts: dict[int, int] = attrs.field(factory=dict)
    failures: list[str] = attrs.field(factory=list)
    #: What a claim had used when its last holder was last heard of.
    used: Spent = attrs.field(factory=Spent)
    refunded: list[tuple[str, Spent]] = attrs.field(factory=list)
    booked: list[Spent] = attrs.field(factory=list)
    #: What the runner says of a run under way.
    spends: Spent = attrs.field(factory=Spent)
    # The runner.
    takes_s: float = 1.0
    under_way: dict[str, float] = attrs.field(factory=dict)
    results: dict[str, RunResult] = attrs.field(factory=dict)
    begun: list[str] = attrs.field(factory=list)
    away: bool = False
    health_asked: int = 0
    health_said: RunnerHealth = HEALTHY
    #: Runs that were ended in the store after their holder died.
    abandoned: list[str] = attrs.field(factory=list)
    #: What the check says of answers, where it takes none.
    refuses: str | None = None
    #: What runs come to that have no outcome of their own.
    outcome: RunResult = DONE

    async def press_automatic(self, by: Author, now: datetime) -> int:
        await trio.lowlevel.checkpoint()
        return 0

    async def claim(self, now: datetime) -> RunLease | RunAbandoned | None:
        await trio.lowlevel.checkpoint()
        if self.abandoned:
            return RunAbandoned(self.abandoned.pop())
        if self.outages:
            self.outages -= 1
            raise Outage("away")
        for n in self.waiting:
            if n in self.ended or max(self.held.get(n, 0), self.due.get(n, 0)) > trio.current_time():
                continue
            taken_over = n in self.held
            self.held[n] = trio.current_time() + LEASE_S
            await trio.lowlevel.checkpoint()
            attempt, claim = self.attempts.get(n, 1), 1 + self.refunds.get(n, 0)
            return RunLease(
                1, UUID(int=n), "triage", UUID(int=n), UUID(int=n), attempt, claim, DEFAULT_LIMITS["triage"],
                AgentSettings(), Spent(), self.used, taken_over=taken_over, request=self.requests.get(n),
            )  # fmt: skip
        return None

    async def renew(self, lease: RunLease) -> RunHeld | None:
        await trio.lowlevel.checkpoint()
        n = lease.run_id.int
        if n in self.lost:
            return None
        self.held[n] = trio.current_time() + LEASE_S
        return RunHeld(n in self.unwanted)

    async def asked_with(self, lease: RunLease, request: Mapping[str, Any], model: str | None) -> bool:
        await trio.lowlevel.checkpoint()
        self.requests[lease.run_id.int] = request
        return True

    async def progress(self, lease: RunLease, spent: Spent, events: Sequence[Mapping[str, Any]]) -> bool:
        await trio.lowlevel.checkpoint()
        self.booked.append(spent)
        return True

    async def ran_on(self, lease: RunLease, model: str) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    async def _end(self, lease: RunLease, how: str, what: Any) -> bool:
        await trio.lowlevel.checkpoint()
        if lease.run_id.int in self.lost:
            return False
        self.ended.setdefault(lease.run_id.int, (how, what))
        await trio.lowlevel.checkpoint()
        return True

    async def park(self, lease: RunLease, reason: Any, spent: Spent) -> bool:
        return await self._end(lease, "parked", reason)

    async def refund(self, lease: RunLease, due_s: float, why: str, spent: Spent, now: datetime) -> bool:
        await trio.lowlevel.checkpoint()
        self.refunded.append((why, spent))
        self.used = Spent()
        n = lease.run_id.int
        del self.held[n]
        self.due[n], self.refunds[n] = trio.current_time() + due_s, self.refunds.get(n, 0) + 1
        self.requests.pop(n, None)
        return True

    async def finish(self, lease: RunLease, answer: Any, spent: Spent, now: datetime) -> bool:
        return await self._end(lease, "done", answer)

    async def fail(self, lease: RunLease, why: str, spent: Spent, now: datetime, *, final: bool) -> bool:
        self.failures.append(why)
        if final:
            return await self._end(lease, "failed", why)
        await trio.lowlevel.checkpoint()
        n = lease.run_id.int
        del self.held[n]
        self.refunds[n], self.attempts[n] = self.refunds.get(n, 0) + 1, lease.attempt + 1
        return True

    async def cancelled(self, lease: RunLease, spent: Spent, now: datetime) -> bool:
        return await self._end(lease, "cancelled", None)

    @asynccontextmanager
    async def notices(self) -> AsyncIterator[AsyncIterator[str]]:
        async def none() -> AsyncIterator[str]:
            await trio.sleep_forever()
            yield ""

        yield none()

    # The requests.
    async def request(self, lease: RunLease) -> Any:
        await trio.lowlevel.checkpoint()
        return ASKED

    async def mint(self, lease: RunLease, request: RunRequest) -> tuple[str, RunRequest]:
        await trio.lowlevel.checkpoint()
        self.minted += 1
        self.keys.add(f"key-{self.minted}")
        return f"key-{self.minted}", request

    async def revoke(self, lease: RunLease, key_id: str) -> None:
        await trio.lowlevel.checkpoint()
        self.keys.discard(key_id)

    async def sweep(self) -> int:
        await trio.lowlevel.checkpoint()
        return 0

    async def checked(self, lease: RunLease, request: RunRequest, result: Mapping[str, Any]) -> Any:
        await trio.lowlevel.checkpoint()
        return self.refuses or result

    # The runner.
    async def begin(self, name: str, request: RunRequest) -> Any:
        await trio.lowlevel.checkpoint()
        if self.away:
            return RunnerAway("gone")
        known = name in self.under_way
        if not known:
            self.begun.append(name)
            self.under_way[name] = trio.current_time() + self.takes_s
        return RunStands("running", known=known)

    async def events(self, name: str, after: int) -> Any:
        if self.away:
            await trio.lowlevel.checkpoint()
            return RunnerAway("gone")
        if name not in self.under_way:
            await trio.lowlevel.checkpoint()
            return RunnerRefused(404, "unknown_run")
        with trio.move_on_after(25):
            await trio.sleep_until(self.under_way[name])
        over = trio.current_time() >= self.under_way[name]
        return RunEvents("done" if over else "running", 0, "", self.spends, [])

    async def result(self, name: str) -> Any:
        await trio.lowlevel.checkpoint()
        return self.results.get(name, self.outcome)

    async def cancel(self, name: str) -> None:
        await trio.lowlevel.checkpoint()
        self.under_way[name] = 0.0
        self.results[name] = RunResult("cancelled", Spent())

    async def health(self) -> Any:
        await trio.lowlevel.checkpoint()
        self.health_asked += 1
        return RunnerAway("gone") if self.away else self.health_said


def made(house: House, state: LauncherState | None = None) -> Launcher:
    known: Any = house
    return Launcher(
        store=known,
        outcomes=known,
        requests=known,
        host=NamedRunner(known),
        now=lambda: NOW,
        state=state or LauncherState("here"),
        vitals=Vitals("agent-launcher"),
    )


async def run_for(seconds: float, house: House, state: LauncherState | None = None) -> None:
    with trio.move_on_after(seconds):
        await made(house, state).run()


async def test_runs_are_done_two_at_a_time_and_no_key_is_left(autojump_clock: MockClock) -> None:
    house = House(waiting=[1, 2, 3])
    await run_for(1.5, house)
    assert len(house.begun) == 3
    assert set(house.ended) == {1, 2}
    await run_for(100, house)
    assert {how for how, _ in house.ended.values()} == {"done"}
    assert house.keys == set()


async def test_a_run_that_is_lost_is_let_go_of_and_one_that_nobody_wants_ends(
    autojump_clock: MockClock,
) -> None:
    house = House(waiting=[1, 2], takes_s=1_000.0, lost={1}, unwanted={2})
    await run_for(50, house)
    assert house.ended == {2: ("cancelled", None)}
    assert house.keys == set()


async def test_three_failures_open_the_breaker_and_a_healthy_answer_closes_it(
    autojump_clock: MockClock,
) -> None:
    house, state = House(waiting=[1], away=True), LauncherState("here")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made(house, state).run)
        await trio.sleep(60)
        assert (state.failures, state.snapshot()["breaker"]) == (BREAKER_FAILURES, "open")
        assert house.minted == BREAKER_FAILURES
        assert state.snapshot()["fault"] == "the runner failed 3 times in a row: gone"
        asked = house.health_asked
        await trio.sleep(BREAKER_S)
        # It was left alone, and then asked once.
        assert house.health_asked == asked + 1
        house.away = False
        await trio.sleep(BREAKER_S + launcher.LOOK_S)
        assert (house.ended[1][0], state.snapshot()["breaker"]) == ("done", "closed")
        assert "fault" not in state.snapshot()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "house",
    [
        House(waiting=[1], outcome=failed("provider_refused")),
        House(waiting=[1], outcome=failed("bad_answer")),
        House(waiting=[1], outcome=failed("bad_output")),
        House(waiting=[1], refuses="why"),
    ],
)
async def test_what_comes_to_the_same_end_again_is_tried_twice(
    house: House, autojump_clock: MockClock
) -> None:
    await run_for(1_000, house)
    assert len(house.begun) == len(house.failures) == 2
    assert house.ended[1] == ("failed", house.failures[0])
    assert house.failures[0].endswith(": why")


async def test_what_a_call_under_way_may_cost_is_booked_before_anything_happens(
    autojump_clock: MockClock,
) -> None:
    house = House(waiting=[1], takes_s=60.0, spends=Spent(1, 9_000, 2_000, usd=0.1))
    await run_for(100, house)
    assert house.booked == [house.spends]
    assert house.ended[1][0] == "done"


async def test_a_take_over_by_a_runner_that_does_not_know_the_claim_loses_nothing_of_what_it_used(
    autojump_clock: MockClock,
) -> None:
    used = Spent(2, 100, 20, usd=0.5)
    house = House(waiting=[1], used=used)
    # It was asked of a runner that is gone.
    house.held[1] = 0.0
    await run_for(100, house)
    assert house.refunded == [("the runner began anew", used)]
    # What the other began was ended at once; the next claim has what is left of the cap.
    assert house.begun == [f"{UUID(int=1)}.1", f"{UUID(int=1)}.2"]
    assert house.ended[1][0] == "done"
    assert house.keys == set()


async def test_a_take_over_by_the_runner_that_knows_the_claim_goes_on(autojump_clock: MockClock) -> None:
    name = f"{UUID(int=1)}.1"
    house = House(waiting=[1], used=Spent(2, 100, 20, usd=0.5), under_way={name: 5.0})
    house.held[1] = 0.0
    await run_for(100, house)
    assert (house.refunded, house.begun) == ([], [])
    assert house.ended[1][0] == "done"


async def test_a_run_that_was_ended_after_its_holder_died_is_ended_by_its_runner(
    autojump_clock: MockClock,
) -> None:
    name = f"{UUID(int=9)}.1"
    house = House(waiting=[1], abandoned=[name], under_way={name: 1e6})
    await run_for(20, house)
    assert house.results[name].state == "cancelled"
    assert house.ended[1][0] == "done"


@pytest.mark.parametrize(
    ("health", "fault", "note"),
    [
        ({}, None, None),
        ({"fault": "no CLI"}, "no CLI", None),
        ({"scripts": False}, None, "runs go on without scripts: no sandbox can be used"),
        (
            {"scripts": False, "scripts_fault": "no engine"},
            None,
            "runs go on without scripts: no engine",
        ),
    ],
)
async def test_what_the_runner_says_of_itself_stands_in_health_within_a_quarter_of_a_minute(
    health: dict[str, Any], fault: str | None, note: str | None, autojump_clock: MockClock
) -> None:
    house, state = House(health_said=msgspec.structs.replace(HEALTHY, **health)), LauncherState("here")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made(house, state).run)
        await trio.sleep(1)
        said = state.snapshot()
        assert (said.get("fault"), said.get("note")) == (fault, note)
        house.health_said = HEALTHY
        await trio.sleep(launcher.HEALTH_S)
        assert not {"fault", "note"} & state.snapshot().keys()
        nursery.cancel_scope.cancel()


async def test_an_outage_of_the_store_is_waited_for(autojump_clock: MockClock) -> None:
    house = House(waiting=[1], outages=2)
    await run_for(20, house)
    assert house.ended[1][0] == "done"


def test_struck_at_any_await_the_run_is_done_once_and_its_key_is_gone() -> None:
    async def scenario(strike: Strike) -> None:
        house = House(waiting=[1])
        with trio.move_on_after(10.0):
            await strike.run(lambda: made(house).run())
        await run_for(2 * LEASE_S + 10, house)
        assert house.ended[1][0] == "done"
        # Whoever took over found the same work under way.
        assert house.begun == [f"{UUID(int=1)}.1"]
        assert house.keys == set()

    assert at_every_await(scenario) > 10
