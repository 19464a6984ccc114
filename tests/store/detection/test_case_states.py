"""What detectors, triage and root-cause analysis write, and what is read back of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import trio

from protocol.detection import Firing, Triage
from svc.store.detection.case_states import CaseStates, RcaStore
from svc.store.detection.cases import CaseStore
from svc.store.detection.findings import FindingStore
from svc.store.detection.firings import ClassifierEventStore
from svc.store.postgres.database import Database
from svc.store.reads.query import QueryStore
from tests.store.detection.test_cases import MISSING, cause, detection, page
from tests.store.reads.test_query import question
from tests.store.spans.test_writing import NOW

LATER = NOW + timedelta(hours=1)


async def opened(store: Database, number: int = 1) -> UUID:
    return (await CaseStore(store).open(1, detection(number), NOW)).id


async def case(store: Database, case_id: UUID) -> dict[str, Any]:
    found = await CaseStore(store).one(1, str(case_id))
    assert found is not None
    return found


async def trail(store: Database, case_id: UUID) -> list[tuple[str, str]]:
    return [(event["kind"], event["actor"]) for event in (await case(store, case_id))["events"]]


async def test_a_case_is_muted_unmuted_and_resolved_for_good(store: Database) -> None:
    states, cases, case_id = CaseStates(store), CaseStore(store), await opened(store)
    assert await states.mute(1, case_id, "ann", LATER)
    assert [row["muted_at"] is not None for row in await page(cases, "muted")] == [True]
    assert not await states.mute(1, case_id, "ann", LATER)
    assert await states.unmute(1, case_id, "ann", LATER)
    assert [row["muted_at"] for row in await page(cases)] == [None]
    assert not await states.unmute(1, case_id, "ann", LATER)
    assert await states.resolve(1, case_id, "fixed", "a retry was added", "ann", LATER)
    (row,) = await page(cases, "resolved")
    assert (row["resolution"], row["resolution_reason"]) == ("fixed", "a retry was added")
    for verb in (states.mute, states.unmute):
        assert not await verb(1, case_id, "ann", LATER)
    assert not await states.resolve(1, case_id, "fixed", "", "ann", LATER)
    kinds = ["opened", "muted", "unmuted", "resolved"]
    assert [kind for kind, _ in await trail(store, case_id)] == kinds
    # What comes back is a new case.
    assert (await cases.open(1, detection(), LATER)).new


async def test_a_muted_case_that_is_seen_again_stays_muted(store: Database) -> None:
    case_id = await opened(store)
    await CaseStates(store).mute(1, case_id, "ann", NOW)
    assert not (await CaseStore(store).open(1, detection(), LATER)).new
    assert (await case(store, case_id))["state"] == "muted"


async def test_an_absorbed_case_names_the_other(store: Database) -> None:
    case_id = await opened(store)
    assert await CaseStates(store).absorb(1, case_id, "C-7", "grouping", LATER)
    found = await case(store, case_id)
    assert (found["state"], found["resolution"]) == ("resolved", "absorbed")
    assert found["resolution_reason"] == "absorbed by C-7"


async def test_a_ruling_is_kept_and_stands_in_no_step_of_the_trail(store: Database) -> None:
    case_id = await opened(store)
    assert await CaseStates(store).rule(1, case_id, {"why": "it is noise"}, "triage", LATER)
    found = await case(store, case_id)
    assert found["ruling"] == {"why": "it is noise"}
    assert (await trail(store, case_id))[-1] == ("ruled", "triage")
    assert "noise" not in str(found["events"])


async def test_a_case_of_another_project_or_none_is_not_moved(store: Database) -> None:
    states, case_id = CaseStates(store), await opened(store)
    for project_id, asked in ((2, case_id), (1, MISSING)):
        assert not await states.mute(project_id, asked, "ann", NOW)
        assert not await states.resolve(project_id, asked, "fixed", "", "ann", NOW)
        assert not await states.rule(project_id, asked, {}, "ann", NOW)
        assert await RcaStore(store).start(project_id, asked, "ann", NOW) is None
    assert (await case(store, case_id))["state"] == "open"


async def test_one_report_runs_at_a_time_and_shows_when_it_is_done(store: Database) -> None:
    reports, case_id = RcaStore(store), await opened(store)
    started: list[UUID | None] = []

    async def start() -> None:
        started.append(await reports.start(1, case_id, "analyst", NOW))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(start)
    (report_id,) = [one for one in started if one is not None]
    found = await case(store, case_id)
    assert (found["rca"], found["rca_report_id"], found["rca_available"]) == (None, str(report_id), False)
    assert await reports.finish(1, report_id, {"summary": "a timeout"}, "analyst", LATER)
    assert not await reports.finish(1, report_id, {"summary": "another"}, "analyst", LATER)
    found = await case(store, case_id)
    assert (found["rca"], found["rca_report_id"]) == ({"summary": "a timeout"}, str(report_id))
    assert found["rca_available"] is True
    assert [kind for kind, _ in await trail(store, case_id)] == ["opened", "rca_started", "rca_done"]


async def test_a_report_that_failed_does_not_read_as_one_that_runs(store: Database) -> None:
    reports, case_id = RcaStore(store), await opened(store)
    report_id = await reports.start(1, case_id, "analyst", NOW)
    assert report_id is not None
    assert await reports.finish(1, report_id, None, "analyst", LATER)
    for found in (await case(store, case_id), (await page(CaseStore(store)))[0]):
        assert (found["rca_report_id"], found["rca_available"]) == (None, False)
    assert (await trail(store, case_id))[-1] == ("rca_failed", "analyst")
    # The next one may run.
    assert await reports.start(1, case_id, "analyst", LATER) is not None


@pytest.mark.parametrize("confirmed", [True, False])
async def test_triage_confirms_a_finding_or_withholds_it(store: Database, confirmed: bool) -> None:
    findings = FindingStore(store)
    finding_id = await findings.open(1, cause(confirmed=not confirmed), [])
    triage = Triage("real", "fix", "the upstream is slow", ["trace 1"], confirmed)
    assert await findings.rule(1, finding_id, triage, LATER)
    found = await findings.one(1, finding_id)
    assert found is not None
    told = {name: found[name] for name in found if name.startswith("triage")}
    assert (told["triageStatus"], told["triageVerdict"], told["triageAction"]) == ("ruled", "real", "fix")
    assert (told["triageSummary"], told["triageCitations"]) == ("the upstream is slow", ["trace 1"])
    assert told["triagedAt"] is not None
    asked = {"status": None, "call_site_id": None, "detector": None, "confirmed_only": True}
    listed = await findings.list(1, **asked)
    assert (len(listed["findings"]), listed["withheld"]) == ((1, 0) if confirmed else (0, 1))
    assert not await findings.rule(2, finding_id, triage, LATER)


async def test_a_finding_is_closed_and_opened_again(store: Database) -> None:
    findings = FindingStore(store)
    finding_id = await findings.open(1, cause(), [])
    for status in ("closed", "open"):
        assert await findings.set_status(1, finding_id, status)
        found = await findings.one(1, finding_id)
        assert found is not None
        assert found["status"] == status
    assert not await findings.set_status(1, MISSING, "closed")


async def test_firings_are_counted_and_searched(store: Database) -> None:
    trace = bytes(range(16))
    firings = [
        Firing("loops", "high", "trace", "says the same thrice", "0.9", trace_id=trace, call_site_id="reply"),
        Firing("loops", "low", "session", "asks again", session_id="s1"),
        Firing("leaks", "medium", "span", "a key in the answer", trace_id=trace, span_id=b"\x01" * 8),
    ]
    await ClassifierEventStore(store).record(1, firings, NOW)
    queries = QueryStore(store)
    assert (await queries.facets(question("classifier_events"), "classifier_id", 5))["facets"] == [
        {"value": "loops", "count": 2},
        {"value": "leaks", "count": 1},
    ]
    for filters, count in (
        ({"subject_trace_id": trace.hex()}, 2),
        ({"subject_session_id": "s1"}, 1),
        ({"subject_span_id": "01" * 8, "severity": "medium"}, 1),
        ({"call_site_id": "reply", "confidence": "0.9"}, 1),
        ({"classifier_id": "nothing"}, 0),
    ):
        assert await queries.count(question("classifier_events", **filters)) == {"count": count}, filters
    found = await queries.search(question("classifier_events"), "THRICE", None, 5, None)
    assert [row["fields"]["summary"] for row in found["rows"]] == ["says the same thrice"]
    # In a range, which is half-open.
    step = timedelta(microseconds=1)
    for low, high, count in ((NOW, NOW + step, 3), (NOW - step, NOW, 0), (NOW + step, LATER, 0)):
        asked = question("classifier_events", low, high)
        assert await queries.count(asked) == {"count": count}
