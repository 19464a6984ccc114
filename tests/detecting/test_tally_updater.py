"""Laws of the tally updater: its rhythm, its fairness, and that a backlog outlives it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors.rounds import OUTAGE_PAUSE_S, Repeating
from actors.supervision import Vitals
from protocol.detection_rounds import FAILED, Tallied
from protocol.storage import Outage
from svc.detecting.tally_updater import (
    BACKLOG_PAUSE_S,
    BUSY_PAUSE_S,
    MANY_ROUND_S,
    MANY_SPANS,
    ROUND_S,
    TIDY_S,
    TallyUpdater,
)
from tests.actors.every_await import Strike, at_every_await


@attrs.define
class Store:
    """Traces that wait, by project, ten a round; `others` are held by another replica."""

    due: dict[int, int] = attrs.field(factory=dict)
    others: frozenset[int] = frozenset()
    troubles: list[Exception] = attrs.field(factory=list)
    tallied: list[int] = attrs.field(factory=list)
    asked_s: list[float] = attrs.field(factory=list)
    tidied: Counter[int] = attrs.field(factory=Counter)
    untidy: int = 0
    said: Tallied | None = None

    async def waiting(self) -> list[int]:
        self.asked_s.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if self.troubles:
            raise self.troubles.pop(0)
        return [project_id for project_id, due in self.due.items() if due]

    async def tally(self, project_id: int) -> Tallied:
        await trio.lowlevel.checkpoint()
        if project_id in self.others:
            return Tallied(held=False)
        traces = min(self.due[project_id], 10)
        self.due[project_id] -= traces
        self.tallied.append(project_id)
        # The answer to a commit that the asker may not live to hear.
        await trio.lowlevel.checkpoint()
        if self.said is not None:
            return self.said
        return Tallied(traces=traces, spans=2 * traces, more=self.due[project_id] > 0)

    async def to_hours(self, project_id: int) -> bool:
        await trio.lowlevel.checkpoint()
        self.tidied[project_id] += 1
        self.untidy -= 1
        return self.untidy > 0


def tally_updater(
    store: Store,
    counts: Counter[str] | None = None,
    vitals: Vitals | None = None,
    busy: Callable[[], bool] = lambda: False,
) -> Repeating:
    tally = TallyUpdater(store=store, busy=busy, counts=Counter() if counts is None else counts)
    return Repeating(tally.round, vitals or Vitals("trace-folder"))


async def run_for(seconds: float, store: Store, counts: Counter[str] | None = None) -> None:
    with trio.move_on_after(seconds):
        await tally_updater(store, counts).run()


async def test_it_looks_every_few_seconds_and_hurries_through_a_backlog(
    autojump_clock: MockClock,
) -> None:
    store, counts = Store({1: 25}), Counter[str]()
    await run_for(ROUND_S, store, counts)
    gaps = [later - earlier for earlier, later in zip(store.asked_s, store.asked_s[1:], strict=False)]
    assert gaps == pytest.approx([BACKLOG_PAUSE_S, BACKLOG_PAUSE_S])
    assert (counts["traces"], counts["spans"], counts["rounds"]) == (25, 50, 3)


async def test_where_much_comes_it_looks_less_often_and_takes_more_at_once(autojump_clock: MockClock) -> None:
    for spans, rest_s in ((MANY_SPANS - 1, ROUND_S), (MANY_SPANS, MANY_ROUND_S)):
        store = Store({1: 10}, said=Tallied(traces=10, spans=spans))
        await run_for(rest_s + 0.01, store)
        gaps = [later - earlier for earlier, later in zip(store.asked_s, store.asked_s[1:], strict=False)]
        assert gaps == pytest.approx([rest_s])


async def test_while_ingest_is_busy_it_takes_one_round_at_a_time(autojump_clock: MockClock) -> None:
    store = Store({1: 1000, 2: 1000})
    with trio.move_on_after(3.5 * BUSY_PAUSE_S):
        await tally_updater(store, busy=lambda: True).run()
    assert store.tallied == [1, 2, 1, 2]
    store.tallied.clear()
    with trio.move_on_after(0.01):
        await tally_updater(store, busy=lambda: False).run()
    assert store.tallied == [1, 2]


async def test_a_busy_project_keeps_no_other_from_its_turn(autojump_clock: MockClock) -> None:
    store = Store({1: 1000, 2: 10, 3: 10})
    await run_for(0.01, store)
    assert store.tallied == [1, 2, 3]


async def test_a_project_that_another_replica_holds_is_left_to_it(autojump_clock: MockClock) -> None:
    store, counts = Store({1: 10, 2: 10}, others=frozenset({1})), Counter[str]()
    await run_for(2.5 * ROUND_S, store, counts)
    assert (store.tallied, counts["rounds"], store.due) == ([2], 1, {1: 10, 2: 0})


async def test_it_waits_through_an_outage_and_says_so(autojump_clock: MockClock) -> None:
    store, vitals = Store({1: 10}, troubles=[Outage("away")]), Vitals("trace-folder")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tally_updater(store, vitals=vitals).run)
        await trio.testing.wait_all_tasks_blocked()
        assert (vitals.state, vitals.waiting_for) == ("waiting", "away")
        await trio.sleep(OUTAGE_PAUSE_S * 1.5)
        assert (vitals.state, store.due) == ("running", {1: 0})
        nursery.cancel_scope.cancel()


async def test_old_tallies_are_tidied_step_by_step_and_then_now_and_then(autojump_clock: MockClock) -> None:
    store = Store({1: 55}, untidy=3)
    await run_for(ROUND_S, store)
    assert store.tidied == {1: 3}
    store.due = {1: 10}
    await run_for(TIDY_S / 2, store)
    assert store.tidied == {1: 4}


async def test_what_detectors_failed_at_is_counted_and_told_by_name_only(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store({1: 10}, said=Tallied(traces=10, failures={"cost_drift": 3}, left_out=2, unread=1, again=4))
    counts = Counter[str]()
    with caplog.at_level("WARNING"):
        await run_for(1.0, store, counts)
    assert counts[FAILED + "cost_drift"] == 3
    assert (counts["left_out"], counts["unread"], counts["again"]) == (2, 1, 4)
    assert [r.getMessage() for r in caplog.records] == ["the detector cost_drift failed on 3 traces"]


def test_struck_at_any_await_a_backlog_is_folded_by_the_next() -> None:
    async def scenario(strike: Strike) -> None:
        store = Store({1: 25, 2: 5})
        with trio.move_on_after(1.0):
            await strike.run(lambda: tally_updater(store).run())
        await run_for(1.0, store)
        assert store.due == {1: 0, 2: 0}

    assert at_every_await(scenario) > 8
