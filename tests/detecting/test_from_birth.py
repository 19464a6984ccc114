"""Laws of the first hour: what is broken from its first traces on is a finding, then a case."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from svc.detecting.analyst import CaseAnalyst, RuleReports
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.cases.findings import FindingStore
from svc.store.postgres.database import Database
from tests.detecting.house import House, Settings, execute, replay
from tests.detecting.story import MONDAY, Habits, Story
from tests.front.people import replica
from tests.store.spans.test_writing import PROJECT, fetch
from tests.web.visitor import BASE, Visitor

MINUTE = timedelta(minutes=1)


class Hour:
    """Traces of tools in a row, each with the moment after the start and whether it fails."""

    def __init__(self, *calls: tuple[float, str, bool]) -> None:
        self.calls = calls

    def traces(self) -> Any:
        story = Story(habits=Habits(noise=0.0))
        for number, (minutes, tool, failing) in enumerate(self.calls):
            at = MONDAY + timedelta(minutes=minutes)
            yield at, story._spans(number + 1, at, tool, failing, "KeyError", 0.4, 1.5, 900, "gpt-4o", "hm")


def broken(count: int, tool: str = "create_return", every: float = 1.0) -> list[tuple[float, str, bool]]:
    return [(number * every, tool, True) for number in range(count)]


#: The newest event, far enough behind the others that all of them are judged.
LAST = (60.0, "search", False)


async def looked(store: Database, *calls: tuple[float, str, bool]) -> House:
    house = House(store, Settings())
    await replay(store, Hour(*calls))
    await house.rest()
    await house.look()
    return house


async def test_a_tool_broken_from_birth_is_shown_at_once_and_with_six_traces_it_is_a_case(
    store: Database,
) -> None:
    house = await looked(store, LAST, *broken(5))
    page = await FindingStore(store).list(
        PROJECT, status=None, detector=None, call_site_id=None, confirmed_only=True
    )
    [finding] = page["findings"]
    assert finding["title"] == "`create_return` has failed from the start: 100 % of traces"
    [(severity, harmful, basis)] = await house.told("severity", "harmful", "basis")
    assert severity >= 0.33
    assert harmful
    assert basis.startswith("5 of 5 traces; surely more than 20 %. First seen 19 Oct 00:00 UTC; ")
    assert await house.cases() == []
    # Another minute, another failure.
    await replay(store, Hour(LAST, *broken(6)))
    await house.rest()
    await house.look()
    [case] = await house.cases()
    assert (case["state"], case["listed"]) == ("open", ["cause tool_error_rate:create_return:birth"])
    assert [row[0] for row in await house.told("trace_count")] == [6]
    # Looked at again, nothing more comes of it.
    await execute(store, "update fold_state set newest_slot = newest_slot")
    await house.look()
    assert len(await house.cases()) == 1
    assert len(await house.told("id")) == 1


async def test_what_came_last_is_judged_once_nothing_has_come_for_ten_minutes(store: Database) -> None:
    house = House(store, Settings())
    await replay(store, Hour(*broken(5)))
    await house.look()
    assert await house.told("id") == []
    # What comes late has had its time; nothing later has to come first.
    await execute(store, "update fold_state set touched_since = clock_timestamp() - interval '500 s'")
    await house.look()
    assert await house.told("id") == []
    await execute(store, "update fold_state set touched_since = clock_timestamp() - interval '601 s'")
    await house.look()
    [(title,)] = await house.told("title")
    assert title == "`create_return` has failed from the start: 100 % of traces"
    # A trace that comes into the slot that was judged counts there.
    await replay(store, Hour(*broken(6)))
    await house.rest()
    await house.look()
    assert [row[0] for row in await house.told("trace_count")] == [6]


async def test_four_failures_of_four_are_not_enough_where_many_tools_may_follow(store: Database) -> None:
    house = await looked(store, LAST, *broken(4))
    assert await house.told("id") == []


async def test_a_tool_that_appears_later_needs_more(store: Database) -> None:
    earlier = [(float(n), f"tool_{n % 2}", False) for n in range(4)]
    later = [(10.0 + n, "create_return", True) for n in range(5)]
    assert await (await looked(store, LAST, *earlier, *later)).told("id") == []
    house = House(store, Settings())
    await replay(store, Hour(LAST, *earlier, *later, (15.0, "create_return", True)))
    await house.rest()
    await house.look()
    assert [row[0] for row in await house.told("cause_key")] == ["tool_error_rate:create_return:birth"]


async def test_it_is_over_when_the_tool_works_and_not_when_a_baseline_is_there(store: Database) -> None:
    # Enough within two days for a baseline, in which everything fails.
    calls = [(number * 4.0, "create_return", True) for number in range(700)]
    house = await looked(store, *calls)
    [case] = await house.cases()
    assert case["state"] == "open"
    mended = [(2_800 + number * 4.0, "create_return", False) for number in range(300)]
    await replay(store, Hour(*calls, *mended))
    await house.rest()
    await house.look()
    [case] = await house.cases()
    assert (case["state"], case["resolution"]) == ("resolved", "recovered")
    keys = {row[0] for row in await house.told("cause_key")}
    assert "tool_error_rate:create_return:birth" in keys
    assert (await fetch(store, "select count(*) as n from finding where closed_at is not null"))[0]["n"] == 1


async def test_its_case_has_a_report_and_pages_that_compare_nothing(store: Database) -> None:
    await looked(store, LAST, *broken(8))
    analyst = CaseAnalyst(store=RuleReports(store), now=lambda: datetime.now(UTC), counts=Counter())
    await analyst.round()
    case = await CaseStore(store).one(PROJECT, "C-1", datetime.now(UTC))
    assert case is not None
    assert case["rca"]["verdict"] == "inconclusive"
    async with replica(store) as here:
        visitor = Visitor.of(here)
        await visitor.sign_up()
        page = await visitor.get(BASE + "/cases/C-1")
        assert page.status == 200
        assert "8 of 8 traces; surely more than 20 %" in page.text
        [(finding_id,)] = await House(store).told("id")
        for path in ("/triage", f"/findings/{finding_id}", "/detectors/tool_error", "/first-look"):
            seen = await visitor.get(BASE + path)
            assert seen.status == 200, path
            assert "Traceback" not in seen.text
        assert 'href="' + BASE + '/cases/C-1"' in seen.text


@pytest.mark.release
async def test_history_that_undoes_it_does_not_hide_a_rise_that_began_earlier(store: Database) -> None:
    await looked(store, LAST, *broken(8))
    assert [row[0] for row in await House(store).told("cause_key")] == ["tool_error_rate:create_return:birth"]
    # A month of the past arrives in which the tool works, and breaks three days before its end.
    days, month = 24 * 60.0, []
    for number in range(3_000):
        at = -30 * days + number * 14.4
        month.append((at, "create_return", at > -3 * days and number % 2 == 0))
    await replay(store, Hour(LAST, *broken(8), *month))
    house = House(store)
    await house.rest()
    await house.look()
    findings = {
        key: (closed, status) for key, closed, status in await house.told("cause_key", "closed_as", "status")
    }
    assert findings["tool_error_rate:create_return:birth"][0] == "recovered"
    assert findings["tool_error_rate:create_return:up"] == (None, "confirmed")
