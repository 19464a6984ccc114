"""Reports of root-cause analysis: one a case, held by a lease, taken over from the dead, ended once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import trio

from protocol.detection import RULE, RcaLease, RcaStarted
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.cases.inbox import InboxReads
from svc.store.detection.rca.reports import AGAIN, ATTEMPTS, FAILURE_CHARS, RcaStore
from svc.store.postgres.database import Database
from tests.store.detection.cases.test_cases import page
from tests.store.detection.detecting import AGENT, ANN, LATER, MISSING, execute, fire, opened, seen
from tests.store.spans.test_writing import NOW, fetch


async def case(store: Database, case_id: UUID) -> dict[str, Any]:
    found = await CaseStore(store).one(1, str(case_id), LATER)
    assert found is not None
    return found


async def steps(store: Database, case_id: UUID) -> list[str]:
    return [event["kind"] for event in (await case(store, case_id))["events"]]


async def started(store: Database, number: int = 1) -> tuple[UUID, UUID]:
    """A case and the report that is begun on it."""
    case_id = (await opened(store, seen(number))).id
    begun = await RcaStore(store).start(1, case_id, AGENT, NOW)
    assert begun is not None
    return case_id, begun.report_id


async def held(store: Database) -> RcaLease:
    lease = await RcaStore(store).claim(NOW)
    assert lease is not None
    return lease


async def die(store: Database) -> None:
    """Every process that holds a report is gone for longer than its lease."""
    await execute(store, "update rca_report set lease_until = now() where lease_until is not null")


async def test_one_report_runs_at_a_time_and_shows_when_it_is_done(store: Database) -> None:
    reports, case_id = RcaStore(store), (await opened(store, seen())).id
    begun: list[RcaStarted | None] = []

    async def start() -> None:
        begun.append(await reports.start(1, case_id, AGENT, NOW))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(start)
    (report_id,) = {one.report_id for one in begun if one is not None}
    assert sorted(one.new for one in begun if one is not None) == [False, False, False, True]
    found = await case(store, case_id)
    assert (found["rca"], found["rca_report_id"], found["rca_available"]) == (None, str(report_id), False)
    lease = await held(store)
    assert await reports.finish(lease, {"summary": "a timeout"}, AGENT, LATER)
    # Called again after an outage, it is ended as it was.
    assert await reports.finish(lease, {"summary": "another"}, AGENT, LATER)
    found = await case(store, case_id)
    assert (found["rca"], found["rca_report_id"]) == ({"summary": "a timeout"}, str(report_id))
    assert found["rca_available"] is True
    assert await steps(store, case_id) == ["opened", "rca_started", "rca_done"]
    for project_id, asked in ((2, case_id), (1, MISSING)):
        assert await reports.start(project_id, asked, AGENT, NOW) is None


async def test_a_report_that_failed_says_why_and_does_not_read_as_one_that_runs(store: Database) -> None:
    reports = RcaStore(store)
    case_id, _ = await started(store)
    assert await reports.finish(await held(store), "no credential " * 100, AGENT, LATER)
    for found in (await case(store, case_id), (await page(CaseStore(store)))[0]):
        assert (found["rca_report_id"], found["rca_available"]) == (None, False)
    last = (await case(store, case_id))["events"][-1]
    assert (last["kind"], len(last["summary"])) == ("rca_failed", FAILURE_CHARS)
    # The next one may run.
    again = await reports.start(1, case_id, AGENT, LATER)
    assert again is not None
    assert again.new


async def test_of_many_replicas_each_holds_another_report_the_oldest_first(store: Database) -> None:
    made = [await started(store, number) for number in range(3)]
    claimed: list[RcaLease | None] = []

    async def replica() -> None:
        claimed.append(await RcaStore(store).claim(NOW))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(replica)
    leases = [lease for lease in claimed if lease is not None]
    assert sorted(lease.report_id for lease in leases) == sorted(report_id for _, report_id in made)
    assert len({lease.token for lease in leases}) == 3
    assert {lease.attempt for lease in leases} == {1}
    assert str(leases[0].token) not in repr(leases[0])


async def test_a_report_whose_process_died_is_taken_over_and_the_dead_write_nothing(store: Database) -> None:
    reports = RcaStore(store)
    case_id, report_id = await started(store)
    lost = await held(store)
    assert await reports.claim(NOW) is None
    await die(store)
    lease = await held(store)
    assert (lease.report_id, lease.case_id, lease.attempt) == (report_id, case_id, 2)
    assert await reports.renew(lost) is None
    assert not await reports.release(lost, refund=True)
    assert not await reports.finish(lost, {"summary": "too late"}, AGENT, LATER)
    assert await reports.finish(lease, {"summary": "a timeout"}, AGENT, LATER)
    assert (await case(store, case_id))["rca"] == {"summary": "a timeout"}
    assert (await steps(store, case_id)).count("rca_done") == 1


async def test_who_renews_keeps_a_report_even_late_as_long_as_nobody_took_it(store: Database) -> None:
    reports = RcaStore(store)
    await started(store)
    lease = await held(store)
    await die(store)
    renewed = await reports.renew(lease)
    assert renewed is not None
    assert (renewed.token, renewed.until > lease.until) == (lease.token, True)
    assert await reports.claim(NOW) is None
    assert await reports.finish(renewed, {"summary": "slow"}, AGENT, LATER)


@pytest.mark.parametrize("refund", [True, False])
async def test_a_report_that_is_let_go_is_claimed_at_once(store: Database, refund: bool) -> None:
    await started(store)
    assert await RcaStore(store).release(await held(store), refund=refund)
    assert (await held(store)).attempt == (1 if refund else 2)


async def test_a_report_that_kills_whoever_runs_it_is_given_up_with_a_reason(store: Database) -> None:
    case_id, _ = await started(store, 1)
    for attempt in range(1, ATTEMPTS + 1):
        lease = await held(store)
        assert lease.attempt == attempt
        await die(store)
    # The one behind it is not held up.
    _, other = await started(store, 2)
    assert (await held(store)).report_id == other
    assert await RcaStore(store).renew(lease) is None
    last = (await case(store, case_id))["events"][-1]
    assert (last["kind"], last["actor"]) == ("rca_failed", "system")
    assert last["summary"].startswith(f"given up after {ATTEMPTS} attempts")
    (row,) = await fetch(store, "select status, failure from rca_report where case_id = $1", case_id)
    assert (row["status"], row["failure"]) == ("failed", last["summary"])


async def test_nobody_analyses_for_a_deleted_project(store: Database) -> None:
    projects = ProjectStore(store)
    assert (await projects.make_default()).id == 1
    case_id = (await opened(store, seen())).id
    assert await RcaStore(store).start(1, case_id, ANN, NOW) is not None
    (row,) = await fetch(store, "select action, actor from audit_row")
    assert tuple(row) == ("case.rca", ANN.name)
    await projects.delete(1, actor=ANN.name)
    assert await RcaStore(store).claim(NOW) is None


async def test_a_report_that_ran_before_there_were_leases_is_claimed(store: Database) -> None:
    case_id = (await opened(store, seen())).id
    await execute(
        store,
        "insert into rca_report (project_id, case_id, status, started_at) values (1, $1, 'running', $2)",
        case_id,
        NOW,
    )
    assert (await held(store)).case_id == case_id


async def test_the_rule_and_agents_keep_to_reports_of_their_own(store: Database) -> None:
    reports, case_id = RcaStore(store), (await opened(store, seen())).id
    for engine in ("rule", "agent"):
        assert await reports.claim(NOW, engine=engine) is None
        begun = [await reports.start(1, case_id, AGENT, NOW, engine=engine) for _ in range(2)]
        assert [one.new for one in begun if one is not None] == [True, False]
    rule = await reports.claim(NOW)
    agent = await reports.claim(NOW, engine="agent")
    assert rule is not None
    assert agent is not None
    assert rule.report_id != agent.report_id
    # While the agent's runs, the case has none; when it fails, what the rule found.
    assert await reports.finish(rule, {"summary": "by rule"}, RULE, LATER)
    found = await case(store, case_id)
    assert (found["rca"], found["rca_report_id"]) == (None, str(agent.report_id))
    assert await reports.finish(agent, "no credential", AGENT, LATER)
    found = await case(store, case_id)
    assert (found["rca"], found["rca_available"]) == ({"summary": "by rule"}, True)
    # The rule's does not take the place of an agent's that runs or is done, an agent's takes that of any.
    await reports.start(1, case_id, AGENT, LATER, engine="agent")
    await reports.start(1, case_id, RULE, LATER)
    found = await case(store, case_id)
    again = await reports.claim(LATER, engine="agent")
    assert again is not None
    assert found["rca_report_id"] == str(again.report_id)
    assert await reports.finish(again, {"summary": "by an agent"}, AGENT, LATER)
    later = await held(store)
    assert await reports.finish(later, {"summary": "by rule, later"}, RULE, LATER + timedelta(minutes=1))
    assert (await case(store, case_id))["rca"] == {"summary": "by an agent"}
    # Nor when another of an agent fails after it.
    await reports.start(1, case_id, AGENT, LATER, engine="agent")
    last = await reports.claim(LATER, engine="agent")
    assert last is not None
    assert await reports.finish(last, "no credential", AGENT, LATER)
    assert (await case(store, case_id))["rca"] == {"summary": "by an agent"}


@pytest.mark.parametrize(
    ("ended", "top", "beside"),
    [
        (["rule:model_change"], 0, None),
        (["rule:model_change", "agent:inconclusive"], 0, 1),
        (["agent:inconclusive", "rule:model_change"], 1, 0),
        (["rule:model_change", "agent:behavior_change"], 1, 0),
        (["agent:behavior_change", "rule:model_change"], 0, 1),
        (["rule:inconclusive", "agent:inconclusive"], 1, 0),
        (["agent:traffic_shift", "agent:inconclusive"], 0, None),
        (["agent:traffic_shift", "agent:inconclusive", "rule:inconclusive"], 0, 2),
        (["agent:traffic_shift", "agent:model_change"], 1, None),
        (["rule:model_change", "rule:inconclusive"], 0, None),
        (["rule:model_change", "agent:failed"], 0, None),
        (["rule:model_change", "agent:behavior_change", "agent:failed"], 1, 0),
    ],
)
async def test_the_report_that_explains_stands_on_top_and_the_other_engines_beside_it(
    store: Database, ended: list[str], top: int, beside: int | None
) -> None:
    reports, case_id = RcaStore(store), (await opened(store, seen())).id
    said = [{"verdict": one.partition(":")[2], "summary": f"{at}: {one}"} for at, one in enumerate(ended)]
    for at, one in enumerate(ended):
        engine: Any = one.partition(":")[0]
        moment = NOW + timedelta(minutes=at)
        assert await reports.start(1, case_id, AGENT, moment, engine=engine) is not None
        if engine == "agent":
            # While an agent looks there is none, and what the rule has found stands beside it.
            running = await case(store, case_id)
            assert running["rca"] is None
            by_rule = any(before.startswith("rule") for before in ended[:at])
            assert (running["rca_beside"] or {}).get("engine") == ("rule" if by_rule else None)
        lease = await reports.claim(moment, engine=engine)
        assert lease is not None
        outcome = "no credential" if one.endswith(":failed") else said[at]
        assert await reports.finish(lease, outcome, AGENT, moment)
    found = await case(store, case_id)
    assert found["rca"] == said[top]
    assert (found["rca_beside"] or {}).get("report") == (None if beside is None else said[beside])
    # The list says what the page says.
    around = (await InboxReads(store).around(1, [str(case_id)]))[str(case_id)]
    assert around.verdict == said[top]["verdict"]


async def test_a_case_is_due_once_for_each_time_it_opens(store: Database) -> None:
    await ProjectStore(store).make_default()
    reports, case_id = RcaStore(store), (await opened(store, seen())).id
    other = (await opened(store, seen(2))).id
    assert {due.case_id for due in await reports.due()} == {case_id, other}
    await CaseStates(store).mute(1, other, ANN, NOW)
    for failing in (False, True):
        await reports.start(1, case_id, RULE, NOW)
        assert {due.case_id for due in await reports.due()} == {other}
        lease = await held(store)
        await reports.finish(lease, "why" if failing else {"summary": "found"}, RULE, NOW)
        assert {due.case_id for due in await reports.due()} == {other}
        # An agent's is no report by rule, and a resolved case needs none until it opens again.
        await reports.start(1, other, AGENT, NOW, engine="agent")
        assert {due.case_id for due in await reports.due()} == {other}
        await CaseStates(store).resolve(1, case_id, "mended", ANN, NOW)
        assert {due.case_id for due in await reports.due()} == {other}
        await CaseStates(store).reopen(1, case_id, ANN, NOW)
        assert {due.case_id for due in await reports.due()} == {case_id, other}
    await ProjectStore(store).delete(1, actor=ANN.name)
    assert await reports.due() == []


async def test_a_case_that_recovers_before_anybody_looked_at_it_has_its_report_all_the_same(
    store: Database,
) -> None:
    await ProjectStore(store).make_default()
    reports, case_id = RcaStore(store), (await opened(store, seen())).id
    finding = await fire(store, seen())
    await FindingStates(store).recover(1, finding, datetime.now(UTC))
    assert (await case(store, case_id))["state"] == "resolved"
    assert [due.case_id for due in await reports.due()] == [case_id]
    begun = await reports.start(1, case_id, RULE, NOW, if_due=True)
    assert begun is not None
    assert await reports.finish(await held(store), {"summary": "found"}, RULE, NOW)
    assert await reports.due() == []


async def test_a_report_for_which_there_was_too_little_is_made_anew_when_more_came_so_often_and_no_more(
    store: Database,
) -> None:
    await ProjectStore(store).make_default()
    reports, case_id = RcaStore(store), (await opened(store, seen(trace_count=8))).id
    few = {
        "verdict": "inconclusive",
        "populations": {"before": {"traces": 900}, "after": {"traces": 8}},
    }
    for traces in range(9, 9 + AGAIN):
        assert await reports.start(1, case_id, RULE, NOW, if_due=True) is not None
        assert await reports.finish(await held(store), few, RULE, NOW)
        # Not at once, and not for what it has seen.
        assert await reports.due() == []
        await execute(store, "update detection_case set rule_report_after = now() - interval '1 s'")
        assert await reports.due() == []
        await fire(store, seen(trace_count=traces, seen_at=LATER))
        assert [due.case_id for due in await reports.due()] == [case_id]
    assert await reports.start(1, case_id, RULE, NOW, if_due=True) is not None
    assert await reports.finish(await held(store), few, RULE, NOW)
    await execute(store, "update detection_case set rule_report_after = now() - interval '1 s'")
    await fire(store, seen(trace_count=99, seen_at=LATER))
    assert await reports.due() == []
