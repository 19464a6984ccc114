"""Laws of the disk budget's actor: it drops until there is room, and refuses only when nothing is left."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.disk_budget import BudgetRules, DiskBudget, DiskTally
from actors.supervision import Vitals, keep
from protocol.storage import Outage
from svc.domain.retention.disk_budget import DayBytes, DiskUse, DropStep, drop_steps, forecast, level_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
BUDGET = 1000


@attrs.define
class Store:
    """Days of so many bytes beside some that never go; a day in `cited` cannot go."""

    days: dict[date, list[int]]
    other: int = 0
    cited: set[date] = attrs.field(factory=set)
    dropped: list[tuple[str, int]] = attrs.field(factory=list)
    troubles: int = 0

    async def measure(self) -> DiskUse:
        await trio.lowlevel.checkpoint()
        if self.troubles:
            self.troubles -= 1
            raise Outage("away")
        days = tuple(DayBytes(day, *sizes) for day, sizes in sorted(self.days.items()))
        return DiskUse(self.other + sum(day.total for day in days), 0, 0, (), days)

    async def drop(self, step: DropStep, now: datetime) -> int:
        await trio.lowlevel.checkpoint()
        assert step.day < now.date(), "never today"
        if step.day in self.cited:
            return 0
        sizes = self.days[step.day]
        freed = sizes[0] if step.what == "payloads" else sum(sizes)
        self.days[step.day] = [0, sizes[1] if step.what == "payloads" else 0]
        if freed:
            self.dropped.append((step.what, (NOW.date() - step.day).days))
        return freed


def rules() -> BudgetRules:
    def growth(use: Any, today: date) -> tuple[int, date | None]:
        seen = forecast(use, BUDGET, today, 90)
        return seen.bytes_a_day, seen.reached_on

    return BudgetRules(lambda used, of, left: level_of(used, of, droppable=left), drop_steps, growth)


async def look(store: Store, seconds: float = 1.0, leads: bool = True) -> DiskTally:
    tally, vitals = DiskTally(), Vitals("disk-budget", spare=True)

    def build() -> DiskBudget:
        return DiskBudget(
            budget_bytes=BUDGET,
            store=store,
            rules=rules(),
            now=lambda: NOW,
            leads=lambda: leads,
            tally=tally,
            vitals=vitals,
        )

    with trio.move_on_after(seconds):
        await keep(build, vitals)
    return tally


def days(*ages: int, payloads: int = 60, rest: int = 30) -> dict[date, list[int]]:
    return {NOW.date() - timedelta(days=age): [payloads, rest] for age in ages}


@pytest.mark.parametrize(("other", "level"), [(0, "ok"), (849, "ok"), (850, "tell"), (949, "tell")])
async def test_below_its_bounds_nothing_goes(autojump_clock: MockClock, other: int, level: str) -> None:
    store = Store({}, other)
    tally = await look(store)
    assert (tally.level, tally.refuses, store.dropped) == (level, False, [])


async def test_the_oldest_payloads_go_first_and_only_until_there_is_room(autojump_clock: MockClock) -> None:
    store = Store(days(*range(11)), other=100)
    tally = await look(store)
    assert store.dropped == [("payloads", 10), ("payloads", 9), ("payloads", 8)]
    assert (tally.used, tally.level) == (910, "tell")
    assert (tally.dropped_steps, tally.dropped_bytes) == (3, 180)


async def test_then_whole_days_go_but_never_today_and_never_what_is_cited(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    cited = {NOW.date() - timedelta(days=9)}
    store = Store(days(0, 6, 8, 9), other=850, cited=cited)
    tally = await look(store)
    assert store.dropped == [("payloads", 8), ("day", 8), ("day", 6)]
    assert tally.refuses, "of what is left nothing may go"
    assert "nothing is left to drop: refusing ingest" in caplog.text
    # There is room again.
    store.other = 100
    assert not (await look(store)).refuses


async def test_between_95_and_100_percent_with_nothing_left_ingest_goes_on(
    autojump_clock: MockClock,
) -> None:
    tally = await look(Store({}, other=970))
    assert (tally.level, tally.refuses) == ("drop", False)


@pytest.mark.parametrize(("other", "refuses"), [(400, False), (450, True)])
async def test_a_copy_that_does_not_lead_drops_nothing_and_refuses_at_the_budget(
    autojump_clock: MockClock, other: int, refuses: bool
) -> None:
    store = Store(days(*range(8), payloads=60, rest=10), other=other)
    tally = await look(store, leads=False)
    assert (tally.refuses, store.dropped) == (refuses, [])


async def test_an_outage_is_waited_for(autojump_clock: MockClock) -> None:
    store = Store({}, other=900, troubles=3)
    assert (await look(store, seconds=30)).level == "tell"
