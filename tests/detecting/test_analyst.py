"""Laws of the analyst: each case gets its report, one at a time, whatever happens to it or to the store."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors.rounds import OUTAGE_PAUSE_S, Repeating
from actors.supervision import Vitals
from protocol.detection import DueCase, RcaLease, RcaStarted
from protocol.storage import Outage
from svc.detecting.analyst import ANALYSIS_TIMEOUT_S, RENEW_S, ROUND_S, CaseAnalyst
from tests.actors.every_await import Strike, at_every_await

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
LEASE_S = 60.0


@attrs.define
class Store:
    """Cases by number: due, begun, held until a moment, done. Time is the test's."""

    due_: set[int] = attrs.field(factory=set)
    begun: list[int] = attrs.field(factory=list)
    held: dict[int, float] = attrs.field(factory=dict)
    done: dict[int, Any] = attrs.field(factory=dict)
    analysed: list[int] = attrs.field(factory=list)
    takes_s: float = 1.0
    troubles: dict[int, Exception] = attrs.field(factory=dict)
    outages: int = 0
    lost: bool = False
    renewed: int = 0
    released: list[bool] = attrs.field(factory=list)

    async def due(self) -> list[DueCase]:
        await trio.lowlevel.checkpoint()
        if self.outages:
            self.outages -= 1
            raise Outage("away")
        return [DueCase(1, UUID(int=n)) for n in sorted(self.due_)]

    async def start(self, project_id: int, case_id: UUID, now: datetime) -> RcaStarted | None:
        await trio.lowlevel.checkpoint()
        self.due_.discard(case_id.int)
        new = case_id.int not in self.begun
        if new:
            self.begun.append(case_id.int)
        await trio.lowlevel.checkpoint()
        return RcaStarted(case_id, new)

    async def claim(self, now: datetime) -> RcaLease | None:
        await trio.lowlevel.checkpoint()
        for n in self.begun:
            if n not in self.done and self.held.get(n, 0.0) <= trio.current_time():
                self.held[n] = trio.current_time() + LEASE_S
                await trio.lowlevel.checkpoint()
                return RcaLease(1, UUID(int=n), UUID(int=n), UUID(int=n), NOW, 1)
        return None

    async def renew(self, lease: RcaLease) -> RcaLease | None:
        await trio.lowlevel.checkpoint()
        self.renewed += 1
        if self.lost:
            return None
        self.held[lease.case_id.int] = trio.current_time() + LEASE_S
        return lease

    async def release(self, lease: RcaLease, *, refund: bool) -> bool:
        await trio.lowlevel.checkpoint()
        self.released.append(refund)
        self.held.pop(lease.case_id.int, None)
        return True

    async def analyse(self, lease: RcaLease, now: datetime) -> dict[str, Any] | str:
        self.analysed.append(lease.case_id.int)
        await trio.sleep(self.takes_s)
        if (trouble := self.troubles.pop(lease.case_id.int, None)) is not None:
            raise trouble
        return {"engine": "rule"}

    async def finish(self, lease: RcaLease, outcome: dict[str, Any] | str, now: datetime) -> bool:
        await trio.lowlevel.checkpoint()
        self.done[lease.case_id.int] = outcome
        await trio.lowlevel.checkpoint()
        return True


def analyst(store: Store, counts: Counter[str] | None = None, vitals: Vitals | None = None) -> Repeating:
    made = CaseAnalyst(store=store, now=lambda: NOW, counts=Counter() if counts is None else counts)
    return Repeating(made.round, vitals or Vitals("case-analyst"))


async def run_for(seconds: float, store: Store, counts: Counter[str] | None = None) -> None:
    with trio.move_on_after(seconds):
        await analyst(store, counts).run()


async def test_what_is_due_has_its_report_within_a_minute(autojump_clock: MockClock) -> None:
    store, counts = Store({1, 2, 3}), Counter[str]()
    await run_for(4.0, store, counts)
    assert (store.analysed, set(store.done)) == ([1, 2, 3], {1, 2, 3})
    assert (counts["begun"], counts["reports"], counts["lost"]) == (3, 3, 0)
    assert ROUND_S <= 30


async def test_one_that_the_rule_cannot_stand_costs_no_other_its_report(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store, counts = Store({1, 2}, troubles={1: ValueError("sk-secret")}), Counter[str]()
    await run_for(5.0, store, counts)
    assert store.done == {1: "the rule failed (ValueError)", 2: {"engine": "rule"}}
    assert counts["failed.the rule failed (ValueError)"] == 1
    assert "sk-secret" not in caplog.text


async def test_in_an_outage_it_lets_go_without_an_attempt_spent_and_comes_back(
    autojump_clock: MockClock,
) -> None:
    store, vitals = Store({1}, outages=1, troubles={1: Outage("away")}), Vitals("case-analyst")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(analyst(store, vitals=vitals).run)
        await trio.testing.wait_all_tasks_blocked()
        assert (vitals.state, vitals.waiting_for) == ("waiting", "away")
        await trio.sleep(3 * OUTAGE_PAUSE_S + 2)
        assert store.released == [True]
        assert (store.done, store.analysed) == ({1: {"engine": "rule"}}, [1, 1])
        nursery.cancel_scope.cancel()


async def test_a_long_analysis_keeps_its_lease_and_an_endless_one_ends(autojump_clock: MockClock) -> None:
    store = Store({1}, takes_s=2.5 * RENEW_S)
    await run_for(3 * RENEW_S, store)
    assert (store.renewed, store.done) == (2, {1: {"engine": "rule"}})
    store = Store({1}, takes_s=float("inf"))
    await run_for(ANALYSIS_TIMEOUT_S + 1, store)
    assert store.done == {1: f"it took longer than {ANALYSIS_TIMEOUT_S:.0f} s"}


async def test_whoever_lost_a_report_writes_nothing(autojump_clock: MockClock) -> None:
    store, counts = Store({1}, takes_s=3 * RENEW_S, lost=True), Counter[str]()
    await run_for(1.5 * RENEW_S, store, counts)
    assert (store.done, counts["lost"]) == ({}, 1)


def test_struck_at_any_await_its_reports_are_made_by_the_next() -> None:
    async def scenario(strike: Strike) -> None:
        store = Store({1, 2})
        with trio.move_on_after(5.0):
            await strike.run(lambda: analyst(store).run())
        await run_for(2 * LEASE_S, store)
        assert store.done == {1: {"engine": "rule"}, 2: {"engine": "rule"}}

    assert at_every_await(scenario) > 8
