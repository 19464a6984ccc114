"""Runs of agents: one a subject, held by a lease, taken over from the dead, ended once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

import msgspec
import pytest
import trio

from protocol.agents import (
    ATTEMPTS,
    DEFAULT_LIMITS,
    PURPOSES,
    REFUNDS,
    NotPressed,
    Pressed,
    RunAbandoned,
    RunLease,
    Spent,
)
from protocol.detection import RULE, SYSTEM, Triage
from svc.domain.retention.terms import Cutoffs
from svc.store.accounts.integrations import Integration, IntegrationStore
from svc.store.accounts.keys import PostgresKeyStore
from svc.store.accounts.projects import ProjectStore
from svc.store.agents.outcomes import OutcomeStore
from svc.store.agents.reads import RunReads
from svc.store.agents.runs import PostgresRunStore
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.cases.findings import FindingStore
from svc.store.detection.rca.reports import RcaStore
from svc.store.postgres.database import Database
from svc.store.retention.projects import sweep_project
from tests.store.agents.pressing import claimed, holder_dies, pressed, run_of, set_agents, time_passes
from tests.store.detection.cases.test_cases import page
from tests.store.detection.detecting import ANN, BOB, LATER, NOISE, REAL, fire, opened, seen
from tests.store.spans.test_writing import NOW, fetch

USED: Final = Spent(3, 1_000, 200, 0, 0, 0.5)
POSITIVE: Final[dict[str, Any]] = {
    "verdict": "positive",
    "summary": "the rate rose",
    "citations": [{"kind": "query", "id": "q1", "note": "counted"}],
}
REPORT: Final[dict[str, Any]] = {
    "verdict": "behavior_change",
    "summary": "search times out",
    "checklist": [],
    "hypotheses": [],
    "detailed_report": "",
}


@pytest.fixture
async def store(store: Database) -> Database:
    """The database with its default project: what people and agents do to one is audited."""
    made = await ProjectStore(store).make_default()
    assert made is not None
    assert made.id == 1
    return store


async def finding(store: Database, finding_id: Any) -> dict[str, Any]:
    found = await FindingStore(store).one(1, finding_id)
    assert found is not None
    return found


async def test_a_hundred_presses_make_one_run(store: Database) -> None:
    finding_id = await fire(store, seen())
    answers: list[Pressed] = []

    async def press(runs: PostgresRunStore) -> None:
        for _ in range(25):
            made = await runs.press(1, "triage", finding_id, ANN, NOW)
            assert isinstance(made, Pressed)
            answers.append(made)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(press, PostgresRunStore(store))
    assert len({made.run_id for made in answers}) == 1
    assert sum(not made.coalesced for made in answers) == 1
    assert len(await fetch(store, "select id from agent_run")) == 1
    assert (await finding(store, finding_id))["triageStatus"] == "pending"


async def test_a_press_on_a_case_makes_its_report_which_runs_until_the_run_ends(store: Database) -> None:
    made = await pressed(store, "rca")
    again = await PostgresRunStore(store).press(1, "rca", (await claimed(store)).subject_id, BOB, NOW)
    assert isinstance(again, Pressed)
    assert (again.run_id, again.coalesced, again.report_id, again.state) == (
        made.run_id,
        True,
        made.report_id,
        "running",
    )
    case = await CaseStore(store).one(1, "C-1", LATER)
    assert case is not None
    assert (case["rca_report_id"], case["rca"]) == (str(made.report_id), None)


async def test_an_agent_that_waits_for_people_keeps_no_report_of_a_case_back(store: Database) -> None:
    case_id, reports = (await opened(store, seen())).id, RcaStore(store)
    await reports.start(1, case_id, ANN, NOW)
    by_rule = await reports.claim(NOW)
    assert by_rule is not None
    assert await reports.finish(by_rule, {"summary": "by rule"}, ANN, NOW)
    made = await PostgresRunStore(store).press(1, "rca", case_id, ANN, LATER)
    assert isinstance(made, Pressed)
    cases = CaseStore(store)
    lease = await claimed(store)
    while_it_runs = await cases.one(1, "C-1", LATER)
    assert while_it_runs is not None
    assert (while_it_runs["rca"], while_it_runs["rca_report_id"]) == (None, str(made.report_id))
    assert await PostgresRunStore(store).park(lease, "no_provider", Spent())
    found = await cases.one(1, "C-1", LATER)
    assert found is not None
    assert (found["rca"], found["rca_beside"]) == ({"summary": "by rule"}, None)
    shown = (await page(cases))[0]
    assert shown["rca_report_id"] == found["rca_report_id"] == str(by_rule.report_id)
    assert shown["rca_available"] is True


async def test_what_a_person_decided_or_nobody_can_find_is_not_triaged(store: Database) -> None:
    runs, decided = PostgresRunStore(store), await fire(store, seen(1))
    await FindingStates(store).rule(1, decided, REAL, BOB, NOW)
    refused = await runs.press(1, "triage", decided, ANN, NOW)
    assert refused == NotPressed("OVERRULED", BOB.name, NOW)
    closed = await fire(store, seen(2))
    await FindingStates(store).rule(1, closed, NOISE, BOB, NOW)
    refused = await runs.press(1, "triage", closed, ANN, NOW)
    assert isinstance(refused, NotPressed)
    assert refused.code == "CLOSED"
    for kind in ("triage", "rca"):
        assert await runs.press(1, kind, uuid4(), ANN, NOW) == NotPressed("NOT_FOUND")


async def test_two_replicas_never_hold_one_run(store: Database) -> None:
    for number in range(6):
        await pressed(store, number=number)
    leases: list[RunLease] = []

    async def replica(runs: PostgresRunStore) -> None:
        while (lease := await runs.claim(NOW)) is not None:
            leases.append(lease)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(replica, PostgresRunStore(store))
        nursery.start_soon(replica, PostgresRunStore(store))
    assert len(leases) == 6
    assert len({lease.run_id for lease in leases}) == 6
    assert {lease.attempt for lease in leases} == {1}


async def test_whoever_dies_is_followed_where_they_stood_and_writes_nothing_more(store: Database) -> None:
    runs = PostgresRunStore(store)
    await pressed(store)
    first = await claimed(store)
    assert await runs.asked_with(first, {"prompt": "judge"}, "m")
    assert await runs.claim(NOW) is None
    await holder_dies(store)
    second = await claimed(store)
    assert (second.name, second.attempt, second.taken_over) == (first.name, 1, True)
    assert second.request == {"prompt": "judge"}
    assert await runs.renew(first) is None
    outcomes = OutcomeStore(store)
    assert not await outcomes.finish(first, POSITIVE, USED, NOW)
    assert not await outcomes.fail(first, "bad_output", USED, NOW, final=True)
    assert not await runs.refund(first, 0, "away", USED, NOW)
    assert not await runs.park(first, "no_provider", USED)
    assert not await runs.progress(first, USED, [])
    assert await outcomes.finish(second, POSITIVE, USED, NOW)
    assert not await outcomes.finish(second, POSITIVE, USED, NOW)


async def test_a_holder_that_dies_again_and_again_fails_its_run(store: Database) -> None:
    made = await pressed(store)
    for _ in range(REFUNDS + 1):
        await claimed(store)
        await holder_dies(store)
    assert await PostgresRunStore(store).claim(NOW) == RunAbandoned(f"{made.run_id}.1")
    assert (await run_of(store, made.run_id))["state"] == "failed"


async def test_a_rule_that_speaks_while_an_agent_is_at_work_does_not_say_that_it_is_done(
    store: Database,
) -> None:
    await pressed(store)
    lease = await claimed(store)
    waits = Triage("unclear", "wait", "too few traces")
    await FindingStates(store).rule(1, lease.subject_id, waits, RULE, NOW)
    assert (await finding(store, lease.subject_id))["triageStatus"] == "in_flight"
    assert await OutcomeStore(store).finish(lease, POSITIVE, USED, NOW)
    assert (await finding(store, lease.subject_id))["triageStatus"] == "done"


async def test_a_positive_ruling_confirms_opens_a_case_and_counts_its_spend_at_once(store: Database) -> None:
    made = await pressed(store)
    lease = await claimed(store)
    assert (await finding(store, lease.subject_id))["triageStatus"] == "in_flight"
    assert await OutcomeStore(store).finish(lease, POSITIVE, USED, NOW)
    ruled = await finding(store, lease.subject_id)
    assert (ruled["triageStatus"], ruled["triageVerdict"], ruled["status"]) == (
        "done",
        "positive",
        "confirmed",
    )
    assert ruled["triageCitations"] == ["query q1: counted"]
    run = await run_of(store, made.run_id)
    assert (run["state"], run["spent"]["usd"], run["outcome"]) == ("done", 0.5, "positive: the rate rose")
    case = await CaseStore(store).one(1, "C-1", LATER)
    assert case is not None
    assert case["ruling"]["verdict"] == "positive"


async def test_a_negative_ruling_closes_and_an_unclear_one_waits(store: Database) -> None:
    outcomes = OutcomeStore(store)
    for number, verdict, status in ((1, "negative", "rejected"), (2, "unclear", "withheld")):
        await pressed(store, number=number)
        lease = await claimed(store)
        assert await outcomes.finish(lease, {**POSITIVE, "verdict": verdict}, USED, NOW)
        ruled = await finding(store, lease.subject_id)
        assert (ruled["status"], ruled["triageStatus"], ruled["triageVerdict"]) == (status, "done", verdict)


async def test_a_person_who_decides_meanwhile_is_not_overruled(store: Database) -> None:
    made = await pressed(store)
    lease = await claimed(store)
    await FindingStates(store).rule(1, lease.subject_id, REAL, BOB, NOW)
    assert await OutcomeStore(store).finish(lease, {**POSITIVE, "verdict": "negative"}, USED, NOW)
    assert (await finding(store, lease.subject_id))["triageVerdict"] == "positive"
    assert "came too late" in (await run_of(store, made.run_id))["outcome"]


async def test_a_report_stands_in_its_case_and_a_failed_one_leaves_what_was(store: Database) -> None:
    made, outcomes = await pressed(store, "rca"), OutcomeStore(store)
    assert await outcomes.finish(await claimed(store), REPORT, USED, NOW)
    case = await CaseStore(store).one(1, "C-1", LATER)
    assert case is not None
    assert (case["rca"]["engine"], case["rca"]["run_id"]) == ("agent", str(made.run_id))
    reads = RunReads(store)
    (listed,) = await reads.reports(1, 10)
    assert (listed["engine"], listed["status"], listed["case"]) == ("agent", "done", "C-1")
    again = await PostgresRunStore(store).press(
        1, "rca", (await reads.case_of_report(1, made.report_id)), ANN, NOW
    )  # type: ignore[arg-type]
    assert isinstance(again, Pressed)
    assert await outcomes.fail(await claimed(store), "bad_output", USED, NOW, final=True)
    case = await CaseStore(store).one(1, "C-1", LATER)
    assert case is not None
    assert (case["rca_report_id"], case["rca_available"]) == (str(made.report_id), True)
    report = await reads.report(1, again.report_id)  # type: ignore[arg-type]
    assert report is not None
    assert (report["status"], report["failure"], report["run_id"]) == (
        "failed",
        "bad_output",
        str(again.run_id),
    )


async def test_five_attempts_are_made_with_longer_pauses_and_one_cap(store: Database) -> None:
    made, outcomes = await pressed(store), OutcomeStore(store)
    pauses = []
    for attempt in range(1, ATTEMPTS + 1):
        lease = await claimed(store)
        assert (lease.attempt, lease.claim) == (attempt, attempt)
        # What earlier attempts used is gone from the cap.
        assert lease.limits.usd == pytest.approx(2.0 - 0.25 * (attempt - 1))
        assert lease.limits.tokens == DEFAULT_LIMITS["triage"].tokens - 100 * (attempt - 1)
        await outcomes.fail(lease, "bad_output", Spent(1, 100, 0, 0, 0, 0.25), NOW, final=False)
        (row,) = await fetch(store, "select extract(epoch from due_at - now()) as s, state from agent_run")
        pauses.append(round(row["s"]) if row["state"] == "queued" else row["state"])
        await time_passes(store)
    assert pauses == [2, 4, 8, 16, "failed"]
    run = await run_of(store, made.run_id)
    assert (run["failure"], run["spent"]["turns"], run["spent"]["usd"]) == ("bad_output", 5, 1.25)
    assert (await FindingStore(store).one(1, lease.subject_id) or {})["triageStatus"] == "failed"


async def test_a_refund_gives_the_attempt_back_and_twenty_are_enough(store: Database) -> None:
    made, runs = await pressed(store), PostgresRunStore(store)
    names = set()
    for _ in range(REFUNDS):
        lease = await claimed(store)
        assert lease.attempt == 1
        names.add(lease.name)
        assert await runs.refund(lease, 60, "the runner is away", Spent(), NOW)
        assert await runs.claim(NOW) is None
        await time_passes(store)
    # Each is asked anew of a runner that may remember the one before.
    assert len(names) == REFUNDS
    run = await run_of(store, made.run_id)
    assert run["state"] == "failed"
    assert "the runner is away" in run["failure"]


async def test_what_is_parked_waits_for_people_and_goes_on_when_they_change_it(store: Database) -> None:
    made, runs = await pressed(store), PostgresRunStore(store)
    assert await runs.park(await claimed(store), "no_provider", Spent())
    run = await run_of(store, made.run_id)
    assert (run["state"], run["reason"], run["attempt"]) == ("parked", "no_provider", 0)
    assert await runs.claim(NOW) is None
    async with runs.notices() as notices:
        org = await ProjectStore(store).the_org()
        new = Integration(uuid4(), org.id, "model_provider", "openai", "mine", None, None, None, NOW, NOW)
        assert await IntegrationStore(store).put(new, "ann@example.com") is None
        with trio.fail_after(60):
            assert await anext(notices) == "due"
    assert (await claimed(store)).run_id == made.run_id


async def test_a_day_has_its_budget_however_many_claim_at_once(store: Database) -> None:
    await set_agents(store, run_usd=1.0, day_usd=2.5)
    for number in range(5):
        await pressed(store, number=number)
    leases: list[RunLease] = []

    async def replica(runs: PostgresRunStore) -> None:
        while (lease := await runs.claim(NOW)) is not None:
            leases.append(lease)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(replica, PostgresRunStore(store))
    assert len(leases) == 2
    parked = await fetch(store, "select reason, due_at - now() as rest from agent_run where state = 'parked'")
    midnight = (NOW + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    assert [row["reason"] for row in parked] == ["day_budget"] * 3
    assert abs(parked[0]["rest"] - (midnight - NOW)) < timedelta(minutes=1)
    # What was not used of a cap is there for others.
    assert await OutcomeStore(store).finish(leases[0], POSITIVE, msgspec.structs.replace(USED, usd=0.1), NOW)
    await time_passes(store)
    assert (await claimed(store)).limits.usd == 1.0
    await set_agents(store, run_usd=1.0, day_usd=10.0)
    assert (await claimed(store)).run_id not in {lease.run_id for lease in leases}


async def test_a_cancelled_run_ends_at_once_or_when_its_holder_hears(store: Database) -> None:
    runs, made = PostgresRunStore(store), await pressed(store)
    assert await runs.cancel(1, made.run_id, BOB, NOW)
    run = await run_of(store, made.run_id)
    assert (run["state"], run["failure"]) == ("cancelled", "cancelled by bob@example.com")
    assert await runs.cancel(1, made.run_id, BOB, NOW) is False
    assert await runs.cancel(1, uuid4(), BOB, NOW) is None
    subject = (await fetch(store, "select subject_id from agent_run"))[0]["subject_id"]
    assert (await finding(store, subject))["triageStatus"] == "none"
    # Another press is another run.
    again = await runs.press(1, "triage", subject, ANN, NOW)
    assert isinstance(again, Pressed)
    assert not again.coalesced
    lease = await claimed(store)
    assert await runs.cancel(1, again.run_id, BOB, NOW)
    held = await runs.renew(lease)
    assert held is not None
    assert held.cancelled
    assert await OutcomeStore(store).cancelled(lease, USED, NOW)
    run = await run_of(store, again.run_id)
    assert (run["state"], run["spent"]["usd"]) == ("cancelled", 0.5)
    # One whose holder dies before it hears is over with the next claim.
    third = await runs.press(1, "triage", subject, ANN, NOW)
    assert isinstance(third, Pressed)
    await claimed(store)
    await runs.cancel(1, third.run_id, BOB, NOW)
    await holder_dies(store)
    # Its runner has it still, and is to be told.
    assert await runs.claim(NOW) == RunAbandoned(f"{third.run_id}.1")
    assert await runs.claim(NOW) is None
    assert (await run_of(store, third.run_id))["state"] == "cancelled"


async def test_a_run_whose_holder_died_ends_with_its_key(store: Database) -> None:
    runs, made = PostgresRunStore(store), await pressed(store)
    lease = await claimed(store)
    until = NOW + timedelta(days=365)
    key = await PostgresKeyStore(store).create(
        1, "agent run", "admin", actor="system", purpose=PURPOSES["triage"], expires_at=until
    )
    assert await runs.holds_key(lease, key.key.id)
    await runs.cancel(1, made.run_id, BOB, NOW)
    await holder_dies(store)
    assert await runs.claim(NOW) == RunAbandoned(lease.name)
    assert (await run_of(store, made.run_id))["state"] == "cancelled"
    (row,) = await fetch(store, "select revoked_at is not null as revoked from api_key")
    assert row["revoked"]


async def test_triage_by_itself_is_off_until_a_project_wants_it_and_looks_once(store: Database) -> None:
    runs = PostgresRunStore(store)
    await fire(store, seen(1))
    await opened(store, seen(2))
    assert await runs.press_automatic(SYSTEM, NOW) == 0
    await set_agents(store, triage_automatic=True)
    assert await runs.press_automatic(SYSTEM, NOW) == 1
    assert await OutcomeStore(store).fail(await claimed(store), "bad_output", USED, NOW, final=True)
    assert await runs.press_automatic(SYSTEM, NOW) == 0


async def test_progress_is_kept_once_and_shown_in_its_order(store: Database) -> None:
    runs, made = PostgresRunStore(store), await pressed(store)
    lease = await claimed(store)
    events = [
        {"seq": 1, "at": "2026-11-20T12:00:00+00:00", "kind": "turn", "n": 1},
        {"seq": 2, "at": "2026-11-20T12:00:01+00:00", "kind": "tool", "name": "get_span", "ref": "q1"},
    ]
    for _ in range(2):
        assert await runs.progress(lease, USED, events)
    run = await run_of(store, made.run_id)
    assert [(event["kind"], event["details"]) for event in run["events"]] == [
        ("turn", {"n": 1}),
        ("tool", {"name": "get_span", "ref": "q1"}),
    ]
    assert (run["tool"], run["spent"]["turns"]) == ("get_span", 3)
    page = await RunReads(store).page(1, kind="triage", state="running", limit=10, cursor=None)
    assert [row["id"] for row in page["runs"]] == [str(made.run_id)]


async def test_every_end_is_in_the_audit(store: Database) -> None:
    made = await pressed(store)
    await OutcomeStore(store).finish(await claimed(store), POSITIVE, USED, NOW)
    rows = await fetch(
        store,
        "select action, actor, details::text from audit_row where subject_kind = 'agent_run' order by id",
    )
    assert [(row["action"], row["actor"]) for row in rows] == [
        ("agent_run.start", ANN.name),
        ("agent_run.end", "triage agent"),
    ]
    assert msgspec.json.decode(rows[1]["details"])["spent"]["usd"] == 0.5
    assert made.state == "queued"


async def test_a_run_that_is_over_goes_with_its_term_and_a_live_one_stays(store: Database) -> None:
    runs = PostgresRunStore(store)
    await pressed(store, number=1)
    lease = await claimed(store)
    event = {"seq": 1, "at": "2026-11-20T12:00:00+00:00", "kind": "turn", "n": 1}
    assert await runs.progress(lease, USED, [event])
    assert await OutcomeStore(store).finish(lease, POSITIVE, USED, NOW)
    live = await pressed(store, number=2)
    later = NOW + timedelta(days=91)
    await sweep_project(store, 1, Cutoffs(None, None, NOW + timedelta(days=1)), later, lambda _: None)
    assert [row["id"] for row in await fetch(store, "select id from agent_run")] == [live.run_id]
    assert await fetch(store, "select seq from agent_event") == []


async def test_what_a_dead_holders_claim_had_used_stays_in_the_books(store: Database) -> None:
    runs, outcomes = PostgresRunStore(store), OutcomeStore(store)
    made = await pressed(store)
    await outcomes.fail(await claimed(store), "timeout", Spent(1, 100, 0, 0, 0, 0.25), NOW, final=False)
    await time_passes(store)
    assert await runs.progress(await claimed(store), USED, [])
    await holder_dies(store)
    heir = await claimed(store)
    assert (heir.taken_over, heir.spent.usd, heir.used) == (True, 0.25, USED)
    # Whatever it comes to, nothing that is known is taken back.
    assert await runs.refund(heir, 0, "the runner began anew", heir.used, NOW)
    await time_passes(store)
    after = await claimed(store)
    assert (after.spent.turns, after.spent.usd, after.used) == (4, 0.75, Spent())
    assert after.limits.usd == pytest.approx(2.0 - 0.75)
    assert await runs.park(after, "no_provider", Spent(1, 10, usd=0.1))
    assert (await run_of(store, made.run_id))["spent"]["usd"] == pytest.approx(0.85)


async def test_a_day_counts_what_a_run_under_way_had_used_before_its_present_claim(store: Database) -> None:
    await set_agents(store, run_usd=1.0, day_usd=1.5)
    await pressed(store, number=1)
    await OutcomeStore(store).fail(await claimed(store), "timeout", Spent(1, 100, usd=0.6), NOW, final=False)
    await time_passes(store)
    # 0.6 are gone and 0.4 left to it: another of 1.0 does not fit into the day.
    assert (await claimed(store)).limits.usd == pytest.approx(0.4)
    await pressed(store, number=2)
    assert await PostgresRunStore(store).claim(NOW) is None
    (row,) = await fetch(store, "select reason from agent_run where state = 'parked'")
    assert row["reason"] == "day_budget"
