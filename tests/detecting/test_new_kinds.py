"""Laws of new kinds of failure: none is lost, whatever held up the judge by whose reference they are new."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from svc.detecting.detector_runner import DetectorRunner
from svc.store.postgres.database import Database
from svc.store.postgres.embedded.server import Served
from tests.conftest import copied
from tests.detecting.house import INTERVAL_S, House, Tuned, replay
from tests.detecting.story import MONDAY, Fault, Habits, Story

DAY = timedelta(days=1)
QUOTA = Fault("quota", 12 * DAY, 14 * DAY, tool="search", tool_errors=0.5, error_type="QuotaExceeded")
REFUSED = Fault("refused", 21 * DAY, 23 * DAY, tool="search", tool_errors=0.5, error_type="Refused")
#: Two outages of `search`, each of a kind of its own, and too far apart to be one case.
STORY = Story(habits=Habits(tool_errors={"search": 0.10, "pay": 0.01}), faults=(QUOTA, REFUSED), days=25)
CASES = [
    ["signature:search:QuotaExceeded", "tool_error_rate:search:up"],
    ["signature:search:Refused", "tool_error_rate:search:up"],
]


@pytest.fixture
async def twice_out(asyncio_loop: None, served: Served) -> AsyncIterator[House]:
    """The whole story, counted and not judged yet."""

    async def fill(store: Database) -> None:
        await replay(store, STORY)
        await House(store).rest()

    async with copied(served, "twice_out", fill) as database:
        yield House(database)


def judge_of(house: House, name: str) -> DetectorRunner:
    return next(judge for judge in house.judges() if judge.detector.name == name)


async def listed(house: House) -> list[list[str]]:
    return [sorted(key.split(" ")[1] for key in case["listed"]) for case in await house.cases()]


async def test_each_outage_of_a_history_is_a_case_that_names_its_kind_of_failure(twice_out: House) -> None:
    # The judge of the rate tells the second outage once the first is closed, and its reference was made
    # before and after both.
    await twice_out.look()
    assert await listed(twice_out) == CASES
    assert set(await twice_out.told("status", "closed_as")) == {("closed", "recovered")}


@pytest.mark.release
async def test_a_new_kind_that_is_told_while_it_fails_ends_as_in_a_history(store: Database) -> None:
    house = House(store)
    for since, until in ((0, 13), (13, 16), (16, 22), (22, 25)):
        await replay(store, STORY, since=MONDAY + since * DAY, until=MONDAY + until * DAY)
        await house.rest()
        await house.look()
    columns = ("cause_key", "onset_at", "recovered_at", "status", "trace_count")
    piecewise = await house.told(*columns)
    assert await listed(house) == CASES
    await house.forget()
    await house.look()
    assert await house.told(*columns) == piecewise


@pytest.mark.parametrize(
    "held_up",
    [
        pytest.param(Tuned(tuning={"rise": "none"}), id="raised"),  # type: ignore[dict-item]
        pytest.param(Tuned(enabled=False), id="was switched off"),
    ],
)
async def test_new_kinds_wait_for_no_judge_that_is_held_up_and_are_told_once_it_is_back(
    twice_out: House, held_up: Tuned
) -> None:
    house = twice_out
    house.settings.named["tool_error"] = held_up
    if held_up.enabled:
        with pytest.raises(TypeError):
            await judge_of(house, "tool_error").round()
    # There is no reference by which anything is new, and nobody looks for one again and again.
    new = judge_of(house, "new_signature")
    assert (await new.round(), new.counts["subjects"]) == (INTERVAL_S, 2)
    assert (await new.round(), new.counts["subjects"]) == (INTERVAL_S, 2)
    assert await house.told("id") == []
    house.settings.named.clear()
    await house.look()
    assert await listed(house) == CASES


@pytest.mark.parametrize(
    ("hour", "days", "kind"),
    [
        # Half a minute each.
        pytest.param(6, 2.5, "QuotaExceeded", marks=pytest.mark.release),
        pytest.param(6, 4.0, "Refused", marks=pytest.mark.release),
        pytest.param(15, 2.5, "QuotaExceeded", marks=pytest.mark.release),
        pytest.param(15, 6.0, "QuotaExceeded", marks=pytest.mark.release),
    ],
)
async def test_outages_less_than_a_week_apart_are_one_case_however_they_are_judged(
    store: Database, hour: int, days: float, kind: str
) -> None:
    begins, again = 12 * DAY + timedelta(hours=hour), (12 + days) * DAY + timedelta(hours=hour)
    faults = (
        Fault("first", begins, begins + DAY, tool="search", tool_errors=0.5, error_type="QuotaExceeded"),
        Fault("again", again, again + DAY, tool="search", tool_errors=0.5, error_type=kind),
    )
    story = Story(habits=Habits(tool_errors={"search": 0.10, "pay": 0.01}), faults=faults, days=21)
    house = House(store)
    await replay(store, story, until=MONDAY + 11 * DAY)
    for half in range(22, 42):
        await replay(store, story, since=MONDAY + half * DAY / 2, until=MONDAY + (half + 1) * DAY / 2)
        await house.rest()
        await house.look()
    columns = ("cause_key", "onset_at", "recovered_at", "status")
    findings, [case] = await house.told(*columns), await house.cases()
    # The failures lead, whichever of the two began some slots earlier by its own count.
    assert case["detector"] == "tool_error"
    assert "cause signature:search:QuotaExceeded" in case["listed"]
    await house.forget()
    await house.look()
    assert await house.told(*columns) == findings
    assert await house.cases() == [case]
