"""Laws of judging: what broke is told once, with proof, and becomes one case; what is healthy stays quiet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from protocol.detection import Author
from svc.detecting.case_keeper import AHEAD
from svc.detecting.detector_runner import SOON_S
from svc.detecting.judge import Judge
from svc.domain.detect.detectors.table import DETECTORS
from svc.domain.detect.engine.slots import slot_at
from svc.domain.detect.findings.finding_text import _RATED, _RATES, _SHARES, _SIZES
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.evidence import EvidenceStore
from svc.store.detection.cases.findings import FindingStore
from svc.store.detection.judging.detector_settings import DetectorSettingStore
from svc.store.detection.judging.due import DueStore
from svc.store.postgres.database import Database
from svc.store.postgres.embedded.server import Served
from tests.actors.every_await import Strike
from tests.conftest import copied
from tests.detecting.house import House, Tuned, execute, replay
from tests.detecting.story import DAYS, MONDAY, Fault, Habits, Story
from tests.store.spans.test_writing import PROJECT, fetch

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
ANN = Author("person", "ann@example.com")
SECRET = "AKIA" + "QYLPMN5HHHFPZAM2"

PAY = Fault("pay fails", 16 * DAY + 9 * HOUR, 18 * DAY, tool="pay", tool_errors=0.35)
SLOW = Fault("slower model", 20 * DAY + 3 * HOUR, model_slower=1.8)
LEAK = Fault("leak", 25 * DAY + 10 * HOUR, 25 * DAY + 12 * HOUR, secret=SECRET)


class Told(Story):
    """Traces as they are handed in."""

    def __init__(self, kept: list[Any]) -> None:
        super().__init__()
        object.__setattr__(self, "kept", kept)

    def traces(self) -> Any:
        return iter(self.kept)  # type: ignore[attr-defined]


async def rested(store: Database, *stories: Story, **between: Any) -> House:
    house = House(store)
    await replay(store, *stories, **between)
    await house.rest()
    return house


@pytest.fixture
async def paying(asyncio_loop: None, served: Served) -> AsyncIterator[House]:
    """Three weeks in which `pay` failed for two days, written and counted once for all who ask."""

    async def fill(store: Database) -> None:
        await rested(store, Story(faults=(PAY,)), until=MONDAY + 21 * DAY)

    async with copied(served, "pay_fails", fill) as database:
        yield House(database)


async def test_three_faults_are_three_cases_with_their_causes_and_onsets(store: Database) -> None:
    house = await rested(store, Story(faults=(PAY, SLOW, LEAK)))
    await house.look()
    told = await house.told("cause_key", "status", "closed_as", "onset_at")
    assert [row[:3] for row in told] == [
        ("tool_error_rate:pay:up", "closed", "recovered"),
        ("turn_duration:site:desk:slower", "confirmed", None),
        ("secret:writer:aws-access-key-id", "confirmed", None),
    ]
    for (*_, onset), fault in zip(told, (PAY, SLOW, LEAK), strict=True):
        assert abs(onset - (MONDAY + fault.begins)) <= 8 * HOUR, fault.name
    assert [(c["number"], c["detector"], c["state"], c["listed"]) for c in await house.cases()] == [
        (1, "tool_error", "resolved", ["cause tool_error_rate:pay:up"]),
        (2, "duration_drift", "open", ["cause turn_duration:site:desk:slower"]),
        (3, "secret_leak", "open", ["cause secret:writer:aws-access-key-id"]),
    ]
    # Firings are there to be queried, one for each trace of the secret; none says more than it may.
    events = await fetch(store, "select classifier_id, count(*) as n from classifier_event group by 1")
    counts = {row["classifier_id"]: row["n"] for row in events}
    assert counts["tool_error"] == counts["duration_drift"] == 1
    assert counts["secret_leak"] == next(
        row["n"] for row in await fetch(store, "select trace_count as n from finding where severity = 1")
    )
    everything = await fetch(
        store, "select (select string_agg(f::text, '') from finding f)"
        " || (select string_agg(e::text, '') from classifier_event e)"
        " || (select string_agg(s::text, '') from bucket_state s) as all"
    )  # fmt: skip
    assert SECRET not in everything[0]["all"]
    assert SECRET[4:14] not in everything[0]["all"]


async def test_what_is_told_is_proved_by_the_failing_traces_and_no_others(store: Database) -> None:
    # That it is over is not known yet after three weeks.
    house = await rested(store, Story(faults=(PAY,)))
    await house.look()
    [(finding_id,)] = await house.told("id")
    found = await FindingStore(store).one(PROJECT, finding_id)
    assert found is not None
    assert found["title"].startswith("`pay` is failing more often: ")
    assert " traces since 4 Nov " in found["basis"] or " traces since 3 Nov " in found["basis"]
    page = await EvidenceStore(store).page(
        PROJECT, finding_id, role="witness", count_only=False, limit=500, cursor=None
    )
    assert page is not None
    failed = await fetch(
        store,
        "select encode(trace_id, 'hex') as id from span where status = 'error' and name = 'execute_tool pay'"
        " and started_at >= $1 and started_at < $2",
        (await house.told("onset_at"))[0][0],
        (await house.told("recovered_at"))[0][0],
    )
    assert {ref["trace_id"] for ref in page["refs"]} == {row["id"] for row in failed}
    counts = page["recorded_counts"]
    assert counts["witness"] == len(failed) == found["trace_count"]
    assert counts["member"] > counts["witness"]
    assert (counts["exemplar"], counts["changepoint"]) == (1, 1)
    assert counts["baseline"] > 100


@pytest.mark.parametrize(
    "habits",
    [
        pytest.param(Habits(), id="plain"),
        pytest.param(Habits(tool_errors={"search": 0.15, "pay": 0.08}), id="always failing somewhat"),
        # Four weeks of traces each.
        pytest.param(Habits(day_noise=0.1), id="noise of days", marks=pytest.mark.release),
        pytest.param(Habits(by_day=0.95), id="day and night", marks=pytest.mark.release),
        pytest.param(Habits(noise=1.2), id="heavy tail", marks=pytest.mark.release),
    ],
)
async def test_a_healthy_application_has_no_case(store: Database, habits: Habits) -> None:
    house = await rested(store, Story(seed=7, habits=habits))
    await house.look()
    assert await house.cases() == []


@pytest.mark.release
async def test_twice_the_traffic_is_no_fault(store: Database) -> None:
    house = await rested(store, Story(seed=3, faults=(Fault("growth", 14 * DAY, traffic=2.5),)))
    await house.look()
    assert await house.told("cause_key") == []


@pytest.mark.release
async def test_judged_day_by_day_it_says_what_it_says_of_the_whole_at_once(store: Database) -> None:
    story = Story(faults=(PAY, SLOW))
    house = House(store)
    for week in range(DAYS // 7):
        between = {"since": MONDAY + 7 * week * DAY, "until": MONDAY + 7 * (week + 1) * DAY}
        await replay(store, story, **between)
        await house.rest()
        await house.look()
    columns = ("cause_key", "onset_at", "first_seen_at", "title", "status", "trace_count", "recurrences")
    piecewise = await house.told(*columns)
    numbers = [case["listed"] for case in await house.cases()]
    await house.forget()
    await house.look()
    assert piecewise == await house.told(*columns)
    assert len(piecewise) == 2
    assert numbers == [case["listed"] for case in await house.cases()]


async def test_a_judge_that_is_killed_at_any_await_tells_the_same_and_nothing_twice(paying: House) -> None:
    house, store = paying, paying.database
    judge = next(j for j in house.judges() if j.detector.name == "tool_error")
    struck = 0
    for moment in range(1, 400, 3):
        strike = Strike(moment, MockClock())
        trio.lowlevel.add_instrument(strike)
        await strike.run(judge.round)  # type: ignore[arg-type]
        trio.lowlevel.remove_instrument(strike)
        if not strike.fell:
            break
        struck += 1
        await execute(store, "update judge_state set holder = null")
    assert struck > 4
    await house.look()
    [(key, recurrences, count)] = await house.told("cause_key", "recurrences", "trace_count")
    assert (key, recurrences) == ("tool_error_rate:pay:up", 0)
    evidence = await fetch(
        store, "select count(*) as n, count(distinct (role, trace_id, span_id)) as once from finding_evidence"
    )
    assert evidence[0]["n"] == evidence[0]["once"] > count
    assert len(await fetch(store, "select from classifier_event")) == 1


async def test_two_judges_never_judge_a_project_at_once(paying: House) -> None:
    house, store = paying, paying.database
    first, second = DueStore(store), DueStore(store)
    assert await first.take(PROJECT, "tool_error") is not None
    assert await second.take(PROJECT, "tool_error") is None
    # Another detector is another matter, and so is a judge that died.
    assert await second.take(PROJECT, "cost_drift") is not None
    await execute(store, "update judge_state set held_until = now() - interval '1 s'")
    look = await second.take(PROJECT, "tool_error")
    assert look is not None
    assert not await first.settle(PROJECT, "tool_error", (), look.until, None)
    await second.give_up(PROJECT, "tool_error", look.until)
    await house.look()


async def test_a_history_that_is_still_arriving_is_not_judged_past_what_is_complete(store: Database) -> None:
    house = House(store)
    await replay(store, Story(), until=MONDAY + 9 * DAY)
    look = await house.due.take(PROJECT, "tool_error")
    assert look is not None
    assert (look.quiet, dict(look.due)) == (False, {})
    await house.due.give_up(PROJECT, "tool_error", None)
    # It does not wait for ever: traces that last for hours would hold everything up.
    await execute(store, "update judge_state set judged_at = now() - interval '6 min'")
    look = await house.due.take(PROJECT, "tool_error")
    assert look is not None
    assert (look.quiet, len(look.due)) == (True, 2)


async def test_nothing_is_judged_past_what_waits_to_be_counted_however_long_nobody_counts(
    store: Database,
) -> None:
    # Whoever counted died in the midst of a history, and nothing was counted for an hour.
    house = await rested(store, Story(), until=MONDAY + 9 * DAY)
    await execute(
        store,
        f"insert into fold_due (project_id, trace_id) select {PROJECT}, trace_id from trace"
        " order by first_started_at desc limit 40",
    )
    look = await house.due.take(PROJECT, "tool_error")
    assert look is not None
    [row] = await fetch(
        store,
        "select min(extract(epoch from first_started_at))::float as s from trace"
        " where trace_id in (select trace_id from fold_due)",
    )
    assert (look.quiet, look.until) == (False, slot_at(row["s"]))


async def test_a_detector_that_raises_on_one_project_is_told_and_judges_the_others(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await rested(store, Story(), until=MONDAY + 2 * DAY)
    await execute(store, "insert into tally_due values (999, 'tool_error', 1, 1, 1)")
    judge = next(j for j in house.judges() if j.detector.name == "tool_error")
    seen: list[int] = []
    whole = Judge._project

    async def broken(self: Judge, project_id: int) -> bool:
        seen.append(project_id)
        if project_id == PROJECT:
            raise ValueError("planted")
        return await whole(self, project_id)

    monkeypatch.setattr(Judge, "_project", broken)
    with pytest.raises(ValueError, match="planted"):
        await judge.round()
    assert seen == [PROJECT, 999]


@pytest.mark.release
async def test_what_late_spans_undo_is_closed_again(store: Database) -> None:
    # An exporter lost its connection for two days: what failed came through, the rest comes now.
    story = Story(days=18)
    since = MONDAY + 15 * DAY
    first = [one for one in story.traces() if one[0] < since or any(s.status.code == 2 for s in one[1])]
    house = await rested(store, Told(first))
    await house.look()
    assert await house.told("status") != []
    assert {state for (state,) in await house.told("status")} & {"withheld", "confirmed"}
    early = {id(one[1]) for one in first}
    await replay(store, Told([one for one in story.traces() if one[0] >= since and id(one[1]) not in early]))
    await house.rest()
    await house.look()
    assert {state for (state,) in await house.told("status")} == {"closed"}
    assert all(case["state"] == "resolved" for case in await house.cases())


@pytest.mark.release
async def test_a_resolved_cause_stays_quiet_until_it_begins_anew(store: Database) -> None:
    long = Fault("pay fails", 14 * DAY, tool="pay", tool_errors=0.3)
    house = await rested(store, Story(faults=(long,)), until=MONDAY + 18 * DAY)
    await house.look()
    [case] = await fetch(store, "select id from detection_case")
    await CaseStates(store).resolve(PROJECT, case["id"], "a known outage", ANN, MONDAY + 18 * DAY)
    await house.look()
    assert [(c["state"], c["resolution"]) for c in await house.cases()] == [("resolved", "resolved")]
    # It goes on, so it begins anew as far as anybody can tell, and the same case is open again.
    await replay(store, Story(faults=(long,)), since=MONDAY + 18 * DAY, until=MONDAY + 22 * DAY)
    await house.rest()
    await house.look()
    assert [(c["number"], c["state"]) for c in await house.cases()] == [(1, "open")]


@pytest.mark.release
async def test_what_is_absorbed_is_the_new_normal(store: Database) -> None:
    slower = Fault("slower", 14 * DAY, model_slower=1.8)
    house = await rested(store, Story(faults=(slower,)), until=MONDAY + 19 * DAY)
    await house.look()
    [case] = await fetch(store, "select id from detection_case")
    await CaseStates(store).absorb(PROJECT, case["id"], "a new model", ANN, MONDAY + 19 * DAY)
    await house.look()
    await replay(store, Story(faults=(slower,)), since=MONDAY + 19 * DAY)
    await house.rest()
    await house.look()
    assert [(c["state"], c["resolution"]) for c in await house.cases()] == [("resolved", "absorbed")]
    assert len(await house.told("id")) == 1
    [move] = await fetch(store, "select applied_at from reference_move")
    assert move["applied_at"] is not None


@pytest.mark.release
async def test_a_slow_tool_is_the_cause_and_the_slow_turn_its_effect(store: Database) -> None:
    slow = Fault("slow tool", 15 * DAY + 4 * HOUR, tool="pay", tool_slower=12.0)
    house = await rested(store, Story(faults=(slow,)))
    await house.look()
    [case] = await house.cases()
    assert case["detector"] == "duration_drift"
    assert case["listed"] == [
        "cause tool_duration:tool:pay:slower",
        "effect turn_duration:site:desk:slower",
    ]
    assert case["title"].startswith("`pay` is slower")


@pytest.mark.release
async def test_another_model_that_answers_is_told_and_opens_no_case(store: Database) -> None:
    swap = Fault("swap", 15 * DAY, answered_model="gpt-4o-mini-2024-07-18")
    house = await rested(store, Story(faults=(swap,)))
    await house.look()
    told = await house.told("cause_key", "status", "harmful")
    assert ("model:writer:gpt-4o:gpt-4o-mini-2024-07-18", "withheld", False) in told
    # What it costs now is another matter: cheaper, which is no fault.
    assert await house.cases() == []


@pytest.mark.release
async def test_a_new_kind_of_failure_joins_the_case_of_its_tool_whichever_judge_comes_first(
    store: Database,
) -> None:
    habits = Habits(tool_errors={"search": 0.10, "pay": 0.01})
    new = Fault("quota", 15 * DAY, tool="search", tool_errors=0.5, error_type="QuotaExceeded")
    house = await rested(store, Story(habits=habits, faults=(new,)))
    # Its judge goes by the reference of the tool's failures, so it leaves them due until they are judged.
    early = next(judge for judge in house.judges() if judge.detector.name == "new_signature")
    assert await early.round() == SOON_S
    await house.look()
    [case] = await house.cases()
    assert sorted(key.split(" ")[1] for key in case["listed"]) == [
        "signature:search:QuotaExceeded",
        "tool_error_rate:search:up",
    ]


async def test_a_detector_that_is_switched_off_leaves_its_slots_for_later(paying: House) -> None:
    house = paying
    house.settings.named["tool_error"] = Tuned(enabled=False)
    settings = DetectorSettingStore(house.database)
    await settings.set_enabled(PROJECT, "tool_error", False, "ann@example.com")
    await house.look()
    assert await house.told("id") == []
    # Nor does it keep the others' findings from becoming cases.
    assert not await house.keeper().work.behind(PROJECT, DETECTORS.keys() - AHEAD)
    house.settings.named.clear()
    await settings.set_enabled(PROJECT, "tool_error", True, "ann@example.com")
    assert await house.keeper().work.behind(PROJECT, DETECTORS.keys() - AHEAD)
    await house.look()
    assert await house.told("cause_key") == [("tool_error_rate:pay:up",)]


async def test_every_measure_that_is_judged_has_words(store: Database) -> None:
    judged = {
        measure
        for detector in DETECTORS.values()
        if detector.engine in ("rate", "drift")
        for measure in detector.measures
    }
    assert judged == _RATES.keys() | _SIZES.keys() | _RATED.keys() | set(_SHARES)
