"""Cases as they are opened and read: references, order, what one holds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import trio

from protocol.detection import RULE, NotOpened, Opened, Ref, Triage
from svc.store.detection.cases.case_findings import CaseFindings
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.postgres.database import Database
from tests.store.detection.detecting import AGENT, LATER, MISSING, confirm, execute, fire, opened, seen
from tests.store.spans.test_writing import NOW, fetch, one, rows, store_of


async def page(cases: CaseStore, state: Any = "open", limit: int = 50, **asked: Any) -> list[dict[str, Any]]:
    """Every case of a state, page by page."""
    found: list[dict[str, Any]] = []
    cursor = None
    asked = {"detector": None, "call_site_id": None, "now": LATER} | asked
    while True:
        answer = await cases.page(1, state=state, limit=limit, cursor=cursor, **asked)
        found += answer["cases"]
        cursor = answer["next_cursor"]
        if cursor is None:
            return found


async def test_references_have_neither_gaps_nor_races(store: Database) -> None:
    references: list[str] = []

    async def open_some(project: int, first: int) -> None:
        for number in range(first, first + 5):
            case = await opened(store, seen(number), project_id=project)
            references.append(f"{project} {case.reference}")

    async with trio.open_nursery() as nursery:
        for first in (0, 5, 10, 15):
            nursery.start_soon(open_some, 1, first)
            nursery.start_soon(open_some, 2, first)
    assert sorted(references) == sorted(f"{project} C-{n}" for project in (1, 2) for n in range(1, 21))


async def test_a_number_is_not_lost_when_opening_fails(store: Database) -> None:
    finding_id = await fire(store, seen())
    await confirm(store, finding_id)
    await execute(store, "alter table case_finding add constraint none check (false)")
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the database says of it
        await CaseFindings(store).open(1, finding_id, RULE, NOW)
    await execute(store, "alter table case_finding drop constraint none")
    case = await CaseFindings(store).open(1, finding_id, RULE, NOW)
    assert isinstance(case, Opened)
    assert case.reference == "C-1"


async def test_replicas_that_confirm_the_same_finding_at_once_open_one_case(store: Database) -> None:
    finding_id = await fire(store, seen(current_value=0.5))
    await confirm(store, finding_id)
    how: list[str] = []

    async def see() -> None:
        case = await CaseFindings(store).open(1, finding_id, RULE, NOW)
        assert isinstance(case, Opened)
        how.append(case.how)

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(see)
    assert sorted(how) == ["known"] * 5 + ["opened"]
    (case,) = await page(CaseStore(store))
    assert (case["reference"], case["current_value"], case["metric"]) == ("C-1", 0.5, "error_rate")
    assert (case["finding_id"], case["severity"]) == (str(finding_id), "medium")


async def test_only_a_confirmed_and_live_finding_gets_a_case(store: Database) -> None:
    cases, finding_id = CaseFindings(store), await fire(store, seen())
    assert await cases.open(1, finding_id, RULE, NOW) == NotOpened("NOT_CONFIRMED")
    assert await cases.open(1, MISSING, RULE, NOW) == NotOpened("NOT_FOUND")
    assert await cases.open(2, finding_id, RULE, NOW) == NotOpened("NOT_FOUND")
    await confirm(store, finding_id)
    await FindingStates(store).recover(1, finding_id, LATER)
    assert await cases.open(1, finding_id, RULE, NOW) == NotOpened("CLOSED")
    assert await page(CaseStore(store)) == []


async def test_open_cases_are_worst_first_then_most_recently_opened(store: Database) -> None:
    cases = CaseStore(store)
    for number, severity in enumerate((0.1, 0.9, 0.5, 0.66, 0.2)):
        await opened(store, seen(number, severity=severity), at=NOW + timedelta(minutes=number))
    assert [case["reference"] for case in await page(cases, limit=2)] == ["C-4", "C-2", "C-3", "C-5", "C-1"]
    assert [case["reference"] for case in await page(cases, call_site_id="site-3")] == ["C-4"]
    assert await page(cases, detector="other") == []


async def test_resolved_cases_are_newest_closure_first(store: Database) -> None:
    cases, states = CaseStore(store), CaseStates(store)
    made = [await opened(store, seen(number, severity=0.9 if number else 0.1)) for number in range(4)]
    for number, closed in ((0, 5), (1, 9), (2, 1)):
        await states.resolve(1, made[number].id, "fixed", AGENT, NOW + timedelta(hours=closed))
    assert [case["reference"] for case in await page(cases, "resolved", 1)] == ["C-2", "C-1", "C-3"]
    assert [case["reference"] for case in await page(cases)] == ["C-4"]
    assert await page(cases, "muted") == []


async def test_a_mute_that_has_ended_reads_as_open_page_by_page(store: Database) -> None:
    cases, states = CaseStore(store), CaseStates(store)
    for number in range(6):
        case = await opened(store, seen(number, severity=number / 10), at=NOW + timedelta(seconds=number))
        until = (None, NOW + timedelta(minutes=30), LATER + timedelta(hours=1))[number % 3]
        if number < 5:
            await states.mute(1, case.id, AGENT, NOW, until)
    assert [case["reference"] for case in await page(cases, limit=1)] == ["C-6", "C-5", "C-2"]
    assert [case["reference"] for case in await page(cases, "muted", limit=1)] == ["C-4", "C-3", "C-1"]
    assert [case["muted_at"] for case in await page(cases)] == [None] * 3
    told = await cases.one(1, "C-2", LATER)
    assert told is not None
    assert (told["state"], told["muted_at"], told["muted_until"]) == ("open", None, None)
    before = await cases.one(1, "C-2", NOW)
    assert before is not None
    assert before["state"] == "muted"


async def test_a_case_is_found_by_id_and_by_reference(store: Database) -> None:
    cases = CaseStore(store)
    case = await opened(store, seen())
    by_id = await cases.one(1, str(case.id), NOW)
    assert by_id is not None
    assert by_id == await cases.one(1, "C-1", NOW) == await cases.one(1, " c-1 ", NOW)
    assert [(event["kind"], event["actor"]) for event in by_id["events"]] == [("opened", "rule")]
    for name in ("C-2", "C-0", "C-1x", "1", "", "C-99999999999999999999", str(MISSING)):
        assert await cases.one(1, name, NOW) is None
    assert await cases.one(2, "C-1", NOW) is None


async def test_a_case_shows_the_exemplars_that_are_still_there(store: Database) -> None:
    traces = [bytes([n]) * 16 for n in (1, 2)]
    await store_of(store).write(rows(*(one(1, trace_id=trace, name="ask") for trace in traces)))
    refs = [Ref("exemplar", trace_id=trace, rank=n) for n, trace in enumerate((*traces, b"\x09" * 16), 1)]
    await opened(store, seen(), [Ref("member", trace_id=traces[0]), *refs])
    case = await CaseStore(store).one(1, "C-1", NOW)
    assert case is not None
    assert [(e["trace_id"], e["rank"], e["duration_ms"]) for e in case["exemplars"]] == [
        (traces[0].hex(), 1, 1000.0),
        (traces[1].hex(), 2, 1000.0),
    ]


async def test_a_case_names_all_its_findings_causes_first(store: Database) -> None:
    lists, case = CaseFindings(store), await opened(store, seen(1))
    slow, dear = await fire(store, seen(2)), await fire(store, seen(3))
    assert await lists.join(1, case.id, slow, "effect", 0.7, RULE, NOW)
    assert await lists.join(1, case.id, dear, "effect", 0.5, RULE, LATER)
    # Looked at again, it is a cause of its own; a call after an outage changes nothing.
    for _ in range(2):
        assert await lists.join(1, case.id, dear, "cause", None, AGENT, LATER)
    told = await CaseStore(store).one(1, "C-1", NOW)
    assert told is not None
    assert [(f["role"], f["explained_share"], f["title"], f["status"]) for f in told["findings"]] == [
        ("cause", None, "cause 1", "confirmed"),
        ("cause", None, "cause 3", "withheld"),
        ("effect", 0.7, "cause 2", "withheld"),
    ]
    assert {f["detector"] for f in told["findings"]} == {"tool-errors"}
    assert [event["kind"] for event in told["events"]] == ["opened", "joined", "joined"]


async def test_nothing_joins_a_case_that_is_over_nor_leaves_one_that_is_not(store: Database) -> None:
    lists, one_case, other = CaseFindings(store), await opened(store, seen(1)), await opened(store, seen(2))
    finding_id = await fire(store, seen(3))
    assert await lists.join(1, one_case.id, finding_id, "effect", 0.9, RULE, NOW)
    assert not await lists.join(1, other.id, finding_id, "effect", 0.9, RULE, NOW)
    assert not await lists.join(1, other.id, MISSING, "effect", 0.9, RULE, NOW)
    assert not await lists.join(2, other.id, finding_id, "effect", 0.9, RULE, NOW)
    await CaseStates(store).resolve(1, other.id, "fixed", AGENT, NOW)
    assert not await lists.join(1, other.id, await fire(store, seen(4)), "cause", None, RULE, NOW)


async def test_an_effect_that_outlives_its_causes_gets_a_case_of_its_own(store: Database) -> None:
    lists, case = CaseFindings(store), await opened(store, seen(1))
    effect = await fire(store, seen(2))
    await lists.join(1, case.id, effect, "effect", 0.9, RULE, NOW)
    (cause,) = [row for row in await fetch(store, "select id from finding where title = 'cause 1'")]
    await FindingStates(store).recover(1, cause["id"], LATER)
    assert [row["reference"] for row in await page(CaseStore(store), "resolved")] == ["C-1"]
    await confirm(store, effect)
    own = await lists.open(1, effect, RULE, LATER)
    assert isinstance(own, Opened)
    assert (own.reference, own.how) == ("C-2", "opened")


async def test_a_rejected_cause_resolves_its_case_and_opens_none_again(store: Database) -> None:
    case = await opened(store, seen())
    (live,) = await fetch(store, "select id from finding")
    states = FindingStates(store)
    await states.rule(1, live["id"], Triage("negative", "reject", "noise"), AGENT, NOW)
    (row,) = await page(CaseStore(store), "resolved")
    assert (row["id"], row["resolution"]) == (str(case.id), "rejected")
    again = await opened(store, seen(onset_at=LATER, detected_at=LATER))
    assert (again.how, again.reference) == ("opened", "C-2")
