"""How cases move: by people, by their causes, by time; and what two who act at once are told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio

from protocol.detection import RULE, CaseMoved, CaseRefusal, Opened
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.cases.case_findings import CaseFindings
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.cases.findings import FindingStore
from svc.store.detection.cases.references import ReferenceStore
from svc.store.postgres.database import Database
from svc.store.postgres.rows import plain
from tests.store.detection.cases.test_cases import page
from tests.store.detection.detecting import ANN, BOB, LATER, MISSING, confirm, fire, opened, seen
from tests.store.spans.test_writing import NOW, fetch

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def states(store: Database) -> CaseStates:
    assert (await ProjectStore(store).make_default()).id == 1
    return CaseStates(store)


async def case(store: Database, case_id: UUID, now: Any = LATER) -> dict[str, Any]:
    found = await CaseStore(store).one(1, str(case_id), now)
    assert found is not None
    return found


async def trail(store: Database, case_id: UUID) -> list[tuple[str, str]]:
    return [(event["kind"], event["actor"]) for event in (await case(store, case_id))["events"]]


async def live(store: Database) -> UUID:
    (row,) = await fetch(store, "select id from finding where closed_at is null")
    found: UUID = row["id"]
    return found


async def test_a_case_is_muted_unmuted_and_resolved_with_a_reason(
    store: Database, states: CaseStates
) -> None:
    cases, case_id = CaseStore(store), (await opened(store, seen())).id
    assert await states.mute(1, case_id, ANN, LATER) == CaseMoved("C-1", "muted")
    assert [row["muted_at"] is not None for row in await page(cases, "muted")] == [True]
    assert await states.unmute(1, case_id, ANN, LATER) == CaseMoved("C-1", "open")
    assert [row["muted_at"] for row in await page(cases)] == [None]
    assert await states.unmute(1, case_id, BOB, LATER) == CaseRefusal("NOT_MUTED")
    assert await states.resolve(1, case_id, " \n", ANN, LATER) == CaseRefusal("REASON_REQUIRED")
    assert await states.resolve(1, case_id, "a retry was added", ANN, LATER) == CaseMoved("C-1", "resolved")
    (row,) = await page(cases, "resolved")
    assert (row["resolution"], row["resolution_reason"]) == ("resolved", "a retry was added")
    for verb in (states.mute, states.unmute):
        assert await verb(1, case_id, ANN, LATER) == CaseRefusal("ALREADY_RESOLVED", ANN.name, LATER)
    assert [kind for kind, _ in await trail(store, case_id)] == ["opened", "muted", "unmuted", "resolved"]
    told = await fetch(store, "select action, actor, subject_kind, subject_id from audit_row order by id")
    assert [tuple(row) for row in told] == [
        (f"case.{verb}", ANN.name, "case", str(case_id)) for verb in ("mute", "unmute", "resolve")
    ]
    (finding,) = await fetch(store, "select status, closed_as, closed_by from finding")
    assert tuple(finding) == ("closed", "resolved", ANN.name)


@pytest.mark.parametrize("verb", ["mute", "resolve", "absorb", "reject"])
async def test_of_two_people_who_act_at_once_one_acts_and_the_other_hears_who(
    store: Database, states: CaseStates, verb: str
) -> None:
    case_id = (await opened(store, seen())).id
    arguments = {"mute": (), "resolve": ("done",), "absorb": ("normal",), "reject": ("noise",)}[verb]
    answers: dict[str, Any] = {}

    async def act(by: Any) -> None:
        answers[by.name] = await getattr(states, verb)(1, case_id, *arguments, by, LATER)

    async with trio.open_nursery() as nursery:
        for by in (ANN, BOB):
            nursery.start_soon(act, by)
    (first,) = [name for name, answer in answers.items() if isinstance(answer, CaseMoved)]
    (second,) = answers.keys() - {first}
    code = "ALREADY_MUTED" if verb == "mute" else "ALREADY_RESOLVED"
    assert answers[second] == CaseRefusal(code, first, LATER)  # type: ignore[arg-type]
    assert len(await fetch(store, "select from audit_row")) == 1


async def test_a_verb_called_again_after_an_outage_is_done_once(store: Database, states: CaseStates) -> None:
    case_id = (await opened(store, seen())).id
    until = LATER + DAY
    for verb, arguments in (
        (states.mute, (ANN, LATER, until)),
        (states.unmute, (ANN, LATER)),
        (states.resolve, ("done", ANN, LATER)),
        (states.reopen, (ANN, LATER)),
        (states.absorb, ("", ANN, LATER)),
        (states.reopen, (ANN, LATER)),
        (states.reject, ("noise", ANN, LATER)),
    ):
        first = await verb(1, case_id, *arguments)  # type: ignore[operator]
        assert isinstance(first, CaseMoved), first
        assert await verb(1, case_id, *arguments) == first  # type: ignore[operator]
    kinds = ["opened", "muted", "unmuted", "resolved", "reopened", "absorbed"]
    kinds += ["reopened", "rejected"]
    assert [kind for kind, _ in await trail(store, case_id)] == kinds
    assert len(await fetch(store, "select from audit_row")) == 7


async def test_a_muted_case_is_measured_and_stays_muted(store: Database, states: CaseStates) -> None:
    case_id = (await opened(store, seen())).id
    await states.mute(1, case_id, ANN, NOW)
    await fire(store, seen(detected_at=LATER, current_value=0.8))
    found = await case(store, case_id)
    assert (found["state"], found["current_value"]) == ("muted", 0.8)
    assert found["last_seen_at"] == "2026-11-20T13:00:00.000000Z"


async def test_a_mute_ends_at_its_time_and_the_trail_says_when(store: Database, states: CaseStates) -> None:
    until = NOW + timedelta(minutes=30)
    short, long = (await opened(store, seen(1))).id, (await opened(store, seen(2))).id
    assert await states.mute(1, short, ANN, NOW, until) == CaseMoved("C-1", "muted")
    await states.mute(1, long, ANN, NOW)
    assert await states.mute(1, short, BOB, NOW) == CaseRefusal("ALREADY_MUTED", ANN.name, NOW)
    assert await states.end_mutes(1, until - timedelta(microseconds=1)) == 0
    # Nobody has written it yet, and it has ended all the same.
    assert await states.unmute(1, short, BOB, until) == CaseRefusal("NOT_MUTED")
    assert [await states.end_mutes(1, LATER), await states.end_mutes(1, LATER)] == [1, 0]
    assert await states.end_mutes(2, LATER) == 0
    told = await case(store, short)
    assert (told["state"], told["muted_until"]) == ("open", None)
    assert told["events"][-1]["kind"] == "unmuted"
    assert (told["events"][-1]["actor"], told["events"][-1]["created_at"]) == (
        "system",
        "2026-11-20T12:30:00.000000Z",
    )
    assert (await case(store, long))["state"] == "muted"


async def test_a_mute_that_has_ended_unwritten_may_be_muted_anew(store: Database, states: CaseStates) -> None:
    case_id = (await opened(store, seen())).id
    await states.mute(1, case_id, ANN, NOW, NOW + timedelta(minutes=1))
    assert await states.mute(1, case_id, BOB, LATER) == CaseMoved("C-1", "muted")
    assert (await case(store, case_id, LATER + DAY))["state"] == "muted"


async def test_a_rejection_is_told_to_the_detector_and_taken_back_whole(
    store: Database, states: CaseStates
) -> None:
    sql = (
        "select status, confirmed, confirmed_at, triage_verdict, triage_summary, triage_citations,"
        " ruled_by, closed_as from finding"
    )
    case_id = (await opened(store, seen())).id
    assert await states.reject(1, case_id, " ", ANN, LATER) == CaseRefusal("REASON_REQUIRED")
    (before,) = await fetch(store, sql)
    assert await states.reject(1, case_id, "a load test", ANN, LATER) == CaseMoved("C-1", "resolved")
    found = await case(store, case_id)
    assert (found["resolution"], found["resolution_reason"]) == ("rejected", "a load test")
    (told,) = await fetch(store, sql)
    assert tuple(told)[:2] == ("rejected", False)
    assert (told["triage_verdict"], told["triage_summary"]) == ("negative", "a load test")
    assert (told["ruled_by"], told["closed_as"]) == (ANN.name, "rejected")
    # What the detector says of the same change is an echo; nothing moves what it compares with.
    assert (await FindingStates(store).fire(1, seen(detected_at=LATER), ())).did == "closed"
    assert await ReferenceStore(store).pending(1) == []
    assert await states.reopen(1, case_id, BOB, LATER) == CaseMoved("C-1", "open")
    assert [tuple(row) for row in await fetch(store, sql)] == [tuple(before)]
    assert await states.reject(1, case_id, "a load test", ANN, LATER) == CaseMoved("C-1", "resolved")
    # What begins after it is another change, and another case.
    again = await opened(store, seen(onset_at=LATER + DAY, detected_at=LATER + DAY))
    assert (again.how, again.reference) == ("opened", "C-2")


async def test_an_absorbed_case_asks_the_references_of_its_findings_to_move(
    store: Database, states: CaseStates
) -> None:
    case_id = (await opened(store, seen(1))).id
    slow = await fire(store, seen(2, onset_at=NOW))
    await CaseFindings(store).join(1, case_id, slow, "effect", 0.9, RULE, NOW)
    assert await states.absorb(1, case_id, "we changed vendors", ANN, LATER) == CaseMoved("C-1", "resolved")
    found = await case(store, case_id)
    assert (found["state"], found["resolution"]) == ("resolved", "absorbed")
    assert found["resolution_reason"] == "we changed vendors"
    references = ReferenceStore(store)
    moves = await references.pending(1)
    assert [(move.reference, move.from_at, move.asked_by) for move in moves] == [
        ("tool:1", seen().onset_at, ANN.name),
        ("tool:2", NOW, ANN.name),
    ]
    assert await references.pending(2) == []
    assert await references.applied(1, moves[0], LATER)
    assert not await references.applied(1, moves[0], LATER)
    assert await references.pending(1) == moves[1:]
    # It is no case that comes back: against the moved reference it is another change.
    again = await opened(store, seen(1, detected_at=LATER + DAY, onset_at=LATER))
    assert (again.reference, again.how) == ("C-2", "opened")


async def test_a_reference_that_is_asked_to_move_again_moves_to_the_later_run(
    store: Database, states: CaseStates
) -> None:
    case_id = (await opened(store, seen())).id
    await states.absorb(1, case_id, "", ANN, NOW)
    (early,) = await ReferenceStore(store).pending(1)
    again = (await opened(store, seen(detected_at=LATER, onset_at=LATER))).id
    await states.absorb(1, again, "", BOB, LATER)
    (move,) = await ReferenceStore(store).pending(1)
    assert (move.from_at, move.asked_by) == (LATER, BOB.name)
    # Whoever read the first request has moved to the wrong place.
    assert not await ReferenceStore(store).applied(1, early, LATER)
    # Taken back, there is nothing left to move.
    assert await states.reopen(1, again, ANN, LATER) == CaseMoved("C-2", "open")
    assert await ReferenceStore(store).pending(1) == []


async def test_what_compares_with_nothing_cannot_be_absorbed(store: Database, states: CaseStates) -> None:
    case_id = (await opened(store, seen(reference=None))).id
    assert await states.absorb(1, case_id, "", ANN, LATER) == CaseRefusal("NOT_ABSORBABLE")
    assert (await case(store, case_id))["state"] == "open"


async def test_a_case_is_resolved_by_the_system_when_every_cause_has_recovered(
    store: Database, states: CaseStates
) -> None:
    case_id, first = (await opened(store, seen(1))).id, await live(store)
    second, effect = await fire(store, seen(2)), await fire(store, seen(3))
    lists, findings = CaseFindings(store), FindingStates(store)
    await lists.join(1, case_id, second, "cause", None, RULE, NOW)
    await lists.join(1, case_id, effect, "effect", 0.8, RULE, NOW)
    await findings.recover(1, first, LATER)
    assert (await case(store, case_id))["state"] == "open"
    for _ in range(2):
        await findings.recover(1, second, LATER)
    found = await case(store, case_id)
    assert (found["state"], found["resolution"], found["resolution_reason"]) == (
        "resolved",
        "recovered",
        None,
    )
    assert (await trail(store, case_id))[-1] == ("resolved", "system")
    assert [f["status"] for f in found["findings"]] == ["closed", "closed", "withheld"]
    assert await fetch(store, "select from audit_row") == []


@pytest.mark.parametrize(("away", "how"), [(7 * DAY, "reopened"), (7 * DAY + timedelta(seconds=1), "opened")])
@pytest.mark.parametrize("by_hand", [True, False])
async def test_a_cause_that_returns_within_seven_days_reopens_its_case(
    store: Database, states: CaseStates, away: timedelta, how: str, by_hand: bool
) -> None:
    case_id, first = (await opened(store, seen())).id, await live(store)
    if by_hand:
        await states.resolve(1, case_id, "fixed", ANN, LATER)
    else:
        await FindingStates(store).recover(1, first, LATER)
    back = seen(detected_at=LATER + away, onset_at=LATER + away, severity=0.8, title="it again")
    second = await fire(store, back)
    await confirm(store, second)
    for expected in (how, "known"):
        again = await CaseFindings(store).open(1, second, RULE, LATER + away)
        assert isinstance(again, Opened)
        assert (again.id == case_id, again.how) == (how == "reopened", expected)
    if how == "opened":
        return
    found = await case(store, case_id, LATER + away)
    assert (found["state"], found["resolution"], found["resolved_at"]) == ("open", None, None)
    assert (found["title"], found["severity"], found["finding_id"]) == ("it again", "high", str(second))
    assert (await trail(store, case_id))[-1] == ("reopened", "rule")
    assert [f["id"] for f in found["findings"]] == [str(second), str(first)]


@pytest.mark.parametrize(("away", "first"), [(timedelta(hours=20), True), (timedelta(days=3), False)])
async def test_a_case_that_opens_again_began_when_its_cause_first_did(
    store: Database, away: timedelta, first: bool
) -> None:
    case_id, finding = (await opened(store, seen())).id, await live(store)
    await FindingStates(store).recover(1, finding, LATER)
    back = seen(
        detected_at=LATER + away + MINUTE,
        onset_at=LATER + away,
        onset_low_at=LATER,
        onset_high_at=LATER + away,
    )
    assert (await opened(store, back)).id == case_id
    assert (await case(store, case_id, LATER + away))["onset_at"] == plain(seen().onset_at)
    # What was away for a day at most was never gone; after longer it is another run of the same cause.
    for what in (back, attrs.evolve(back, seen_at=LATER + away + 2 * MINUTE)):
        found = await FindingStore(store).one(1, await fire(store, what))
        assert found is not None
        assert found["onset_at"] == plain(seen().onset_at if first else back.onset_at)
        assert found["onset_low_at"] == (None if first else plain(LATER))


async def test_a_mute_without_an_end_outlives_a_recovery(store: Database, states: CaseStates) -> None:
    case_id = (await opened(store, seen())).id
    await states.mute(1, case_id, ANN, NOW)
    await FindingStates(store).recover(1, await live(store), LATER)
    again = await opened(store, seen(detected_at=LATER + DAY, onset_at=LATER))
    assert (again.id, again.how) == (case_id, "reopened")
    assert (await case(store, case_id))["state"] == "muted"
    # A person who resolves it has no use for the mute any more.
    await states.resolve(1, case_id, "fixed", ANN, LATER + DAY)
    await opened(store, seen(detected_at=LATER + 2 * DAY, onset_at=LATER + 2 * DAY))
    assert (await case(store, case_id))["state"] == "open"


async def test_a_case_escalates_when_its_severity_has_risen_by_a_tenth(
    store: Database, states: CaseStates
) -> None:
    case_id = (await opened(store, seen(severity=0.2))).id
    for minute, severity in enumerate((0.25, 0.29, 0.3, 0.35, 0.2, 0.39, 0.7), 1):
        again = seen(severity=severity, detected_at=NOW + timedelta(minutes=minute))
        for _ in range(2):
            await fire(store, again)
    told = [e["summary"] for e in (await case(store, case_id))["events"] if e["kind"] == "escalated"]
    assert told == ["severity 0.2 to 0.3", "severity 0.3 to 0.7"]
    assert (await case(store, case_id))["severity"] == "high"


async def test_a_resolution_taken_back_brings_back_what_closed_with_it(
    store: Database, states: CaseStates
) -> None:
    case_id, finding_id = (await opened(store, seen())).id, await live(store)
    assert await states.reopen(1, case_id, ANN, LATER) == CaseRefusal("NOT_RESOLVED")
    await states.mute(1, case_id, ANN, NOW)
    await states.resolve(1, case_id, "fixed", ANN, LATER)
    assert await states.reopen(1, case_id, BOB, LATER) == CaseMoved("C-1", "open")
    assert await live(store) == finding_id
    assert (await case(store, case_id))["findings"][0]["status"] == "confirmed"
    assert (await trail(store, case_id))[-1] == ("reopened", BOB.name)


async def test_a_case_whose_cause_is_live_elsewhere_is_not_reopened(
    store: Database, states: CaseStates
) -> None:
    case_id = (await opened(store, seen())).id
    await states.absorb(1, case_id, "", ANN, LATER)
    await opened(store, seen(detected_at=LATER + DAY, onset_at=LATER + DAY))
    assert await states.reopen(1, case_id, ANN, LATER + DAY) == CaseRefusal("SUPERSEDED")


async def test_a_ruling_is_kept_and_stands_in_no_step_of_the_trail(
    store: Database, states: CaseStates
) -> None:
    case_id = (await opened(store, seen())).id
    assert await states.rule(1, case_id, {"why": "it is noise"}, RULE, LATER) == CaseMoved("C-1", "open")
    found = await case(store, case_id)
    assert found["ruling"] == {"why": "it is noise"}
    assert (await trail(store, case_id))[-1] == ("ruled", "rule")
    assert "noise" not in str(found["events"])


async def test_a_case_of_another_project_or_none_is_not_moved(store: Database, states: CaseStates) -> None:
    case_id = (await opened(store, seen())).id
    for project_id, asked in ((2, case_id), (1, MISSING)):
        assert await states.mute(project_id, asked, ANN, NOW) == CaseRefusal("NOT_FOUND")
        assert await states.unmute(project_id, asked, ANN, NOW) == CaseRefusal("NOT_FOUND")
        assert await states.resolve(project_id, asked, "fixed", ANN, NOW) == CaseRefusal("NOT_FOUND")
        assert await states.absorb(project_id, asked, "", ANN, NOW) == CaseRefusal("NOT_FOUND")
        assert await states.reopen(project_id, asked, ANN, NOW) == CaseRefusal("NOT_FOUND")
        assert await states.rule(project_id, asked, {}, RULE, NOW) == CaseRefusal("NOT_FOUND")
    assert (await case(store, case_id))["state"] == "open"
