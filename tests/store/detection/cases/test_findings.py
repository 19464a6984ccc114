"""Findings: one live one of a cause, evidence that grows, and who decides of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import trio

from protocol.detection import (
    EVIDENCE_ROLES,
    RULE,
    Author,
    FindingRefusal,
    Firing,
    Ref,
    Ruled,
    Sight,
    Triage,
)
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.cases.evidence import EvidenceStore
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.cases.findings import FINDINGS_SHOWN, FindingStore
from svc.store.postgres.database import Database
from tests.store.detection.detecting import (
    AGENT,
    ANN,
    BOB,
    LATER,
    MISSING,
    NOISE,
    REAL,
    confirm,
    execute,
    fire,
    opened,
    seen,
)
from tests.store.spans.test_writing import NOW, fetch, one, rows, store_of

MINUTE = timedelta(minutes=1)


async def evidence(store: Database, finding: UUID, **asked: Any) -> Any:
    asked = {"role": None, "count_only": False, "limit": 100, "cursor": None} | asked
    return await EvidenceStore(store).page(1, finding, **asked)


def sight(number: int, **fields: Any) -> Sight:
    """A trace that shows a cause by itself."""
    trace_id = bytes([number]) * 16
    told: dict[str, Any] = {"summary": "a key", "trace_id": trace_id, "at": NOW + number * MINUTE} | fields
    return Sight(
        trace_id, (Ref("witness", trace_id=trace_id),), Firing("secret_leak", "high", "trace", **told)
    )


async def written(store: Database) -> tuple[list[Any], int]:
    """When firings were, and how many references there are."""
    firings = await fetch(store, "select created_at from classifier_event order by 1")
    [refs] = await fetch(store, "select count(*) as n from finding_evidence")
    return [row["created_at"] for row in firings], refs["n"]


async def test_what_shows_a_cause_is_cited_and_noted_once_however_often_it_is_told(store: Database) -> None:
    states, begun = FindingStates(store), [Ref("changepoint", trace_id=bytes([1]) * 16)]
    for seen_by_now in (2, 2, 3, 3):
        sights = [sight(n) for n in range(1, seen_by_now + 1)]
        await states.fire(1, seen(recurrences=seen_by_now - 1), begun, sights=sights)
        assert await written(store) == (
            [NOW + n * MINUTE for n in range(1, seen_by_now + 1)],
            seen_by_now + 1,
        )
    # A note is for a finding that opens or is raised.
    note = Firing("tool_error", "high", "trace", "fails", trace_id=bytes(16), at=LATER)
    for recurrences, notes in ((0, 1), (0, 1), (1, 2)):
        await states.fire(1, seen(2, recurrences=recurrences), (), note=note)
        assert (await written(store))[0].count(LATER) == notes


async def test_a_finding_is_not_there_without_its_evidence_and_its_notes(store: Database) -> None:
    states = FindingStates(store)
    with pytest.raises(Exception, match="summary"):
        await states.fire(1, seen(), (), sights=[sight(1), sight(2, summary=None)])
    assert await written(store) == ([], 0)
    assert await FindingStore(store).live(1) == []


async def test_evidence_is_one_ref_a_row_and_pages_in_order(store: Database) -> None:
    traces, session = [bytes([n]) * 16 for n in range(1, 6)], "s"
    spans = [one(1, trace_id=trace, attributes={"session.id": session}) for trace in traces]
    await store_of(store).write(rows(*spans))
    refs = [
        Ref("member", trace_id=traces[0], span_id=(1).to_bytes(8, "big")),
        *(Ref("exemplar", trace_id=trace, rank=n) for n, trace in enumerate(traces, 1)),
        Ref("witness", session_id=session),
        Ref("member", session_id=session, trace_id=traces[0]),
    ]
    finding = await fire(store, seen(), refs)
    found: list[Any] = []
    cursor = None
    while True:
        answer = await evidence(store, finding, limit=3, cursor=cursor)
        found += answer["refs"]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    trace = traces[0].hex()
    assert found == [
        *(
            {"role": "exemplar", "grain": "trace", "trace_id": each.hex(), "rank": n}
            for n, each in enumerate(traces, 1)
        ),
        {"role": "member", "grain": "span", "trace_id": trace, "span_id": f"{1:016x}"},
        {"role": "member", "grain": "trace", "session_id": session, "trace_id": trace},
        {"role": "witness", "grain": "session", "session_id": session},
    ]
    assert answer["counts"] == answer["recorded_counts"]
    assert answer["counts"] == {"exemplar": 5, "member": 2, "baseline": 0, "witness": 1, "changepoint": 0}
    only = await evidence(store, finding, role="member")
    assert [ref["role"] for ref in only["refs"]] == ["member", "member"]
    counted = await evidence(store, finding, count_only=True)
    assert (counted["refs"], counted["next_cursor"], counted["counts"]) == ([], None, answer["counts"])
    assert await evidence(store, MISSING) is None


async def test_counts_below_recorded_counts_mean_aged_out_data(store: Database) -> None:
    await store_of(store).write(rows(one(1)))
    trace = bytes(range(1, 17))
    refs = [
        Ref("member", trace_id=trace),
        Ref("member", trace_id=b"\x07" * 16),
        # Its trace is there, and the span is not; the other way round it is the trace that tells.
        Ref("member", trace_id=trace, span_id=b"\x07" * 8),
        Ref("member", session_id="gone"),
        Ref("member", trace_id=b"\x08" * 16, session_id="s"),
    ]
    answer = await evidence(store, await fire(store, seen(), refs))
    assert (answer["counts"]["member"], answer["recorded_counts"]["member"]) == (1, 5)
    assert [ref["trace_id"] for ref in answer["refs"]] == [trace.hex()]
    assert answer["counts"].keys() == answer["recorded_counts"].keys() == set(EVIDENCE_ROLES)


async def test_a_firing_while_live_appends_what_its_evidence_lacks(store: Database) -> None:
    refs = [Ref("witness", trace_id=bytes([n]) * 16) for n in range(1, 4)]
    sessions = [Ref("witness", session_id="a"), Ref("witness", session_id="b")]
    finding = await fire(store, seen(), [*refs[:2], refs[0], sessions[0]])
    again = seen(detected_at=LATER)
    for _ in range(2):
        await fire(store, again, [*refs, *sessions, Ref("member", trace_id=b"\x01" * 16, session_id="a")])
    # The same trace under another session is the same trace.
    await fire(store, again, [Ref("member", trace_id=b"\x01" * 16)])
    assert (await evidence(store, finding))["recorded_counts"] == {
        "exemplar": 0, "member": 1, "baseline": 0, "witness": 5, "changepoint": 0,
    }  # fmt: skip
    kept = await fetch(store, "select role, position from finding_evidence order by position")
    assert [row["position"] for row in kept] == sorted({row["position"] for row in kept})
    assert kept[-1]["position"] < 10, "a firing told again takes no place"


async def test_a_firing_raises_recurrences_and_renews_values_once(store: Database) -> None:
    states, findings = FindingStates(store), FindingStore(store)
    first = await states.fire(1, seen(payload={"rate": 0.5}), [])
    assert (first.did, first.case_id) == ("opened", None)
    told: list[str] = []

    async def replica() -> None:
        now = seen(
            seen_at=LATER, recurrences=1, title="worse", severity=0.9, trace_count=8, payload={"rate": 0.7}
        )
        told.append((await states.fire(1, now, [])).did)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(replica)
    assert sorted(told) == ["raised", "repeated", "repeated"]
    # Late news of an earlier state changes nothing.
    assert (await states.fire(1, seen(detected_at=NOW + MINUTE), [])).did == "repeated"
    found = await findings.one(1, first.finding_id)
    assert found is not None
    assert (found["evidence"], found["recurrences"], found["trace_count"]) == ({"rate": 0.7}, 1, 8)
    assert (found["title"], found["severity"], found["status"]) == ("worse", "high", "withheld")
    assert (found["first_seen_at"], found["last_seen_at"]) == (
        "2026-11-20T12:00:00.000000Z",
        "2026-11-20T13:00:00.000000Z",
    )
    assert await findings.one(1, MISSING) is None


async def test_what_is_over_waits_until_its_case_has_heard_of_it(store: Database) -> None:
    states = FindingStates(store)
    first = await states.fire(1, seen(seen_at=LATER, recovered_at=LATER), [])
    back = seen(detected_at=LATER + 2 * MINUTE, onset_at=LATER + MINUTE)
    assert (await states.fire(1, back, [])).did == "waits"
    await states.recover(1, first.finding_id, LATER)
    again = await states.fire(1, back, [])
    assert (again.did, again.finding_id == first.finding_id) == ("opened", False)


async def test_an_improvement_is_for_information_however_large(store: Database) -> None:
    found = await FindingStore(store).one(1, await fire(store, seen(severity=0.9, harmful=False)))
    assert found is not None
    assert found["severity"] == "info"


async def test_one_finding_of_a_cause_is_live_however_many_replicas_see_it(store: Database) -> None:
    ids: set[UUID] = set()

    async def replica() -> None:
        ids.add(await fire(store, seen(), [Ref("member", trace_id=b"\x01" * 16)]))

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(replica)
    assert len(ids) == 1
    assert len(await fetch(store, "select from finding_evidence")) == 1


async def test_a_closed_cause_returns_with_a_new_onset_only(store: Database) -> None:
    states = FindingStates(store)
    first = await fire(store, seen(), [Ref("member", trace_id=b"\x01" * 16)])
    await confirm(store, first)
    assert await states.recover(1, first, LATER) == Ruled("closed", None)
    # The old firing told again, and one of the same stretch.
    for echo in (seen(), seen(detected_at=LATER, onset_at=NOW)):
        assert (await states.fire(1, echo, [Ref("member", trace_id=b"\x02" * 16)])).did == "closed"
    assert len(await fetch(store, "select from finding_evidence")) == 1
    back = await states.fire(1, seen(detected_at=LATER + MINUTE, onset_at=NOW + MINUTE), [])
    assert (back.did, back.finding_id == first) == ("opened", False)
    (row,) = await fetch(
        store, "select status, previous_id, recurrences from finding where closed_at is null"
    )
    assert tuple(row) == ("withheld", first, 0)
    # Closed twice, the newest counts.
    await states.recover(1, back.finding_id, LATER + 2 * MINUTE)
    assert (await states.fire(1, seen(detected_at=LATER + MINUTE, onset_at=NOW + MINUTE), [])).did == "closed"


@pytest.mark.parametrize("by", [RULE, AGENT, ANN])
async def test_a_finding_opens_withheld_and_whoever_decides_confirms_or_rejects_it(
    store: Database, by: Author
) -> None:
    assert (await ProjectStore(store).make_default()).id == 1
    states, findings = FindingStates(store), FindingStore(store)
    good, bad = await fire(store, seen(1)), await fire(store, seen(2))
    ruling = Triage("positive", "fix", "the upstream is slow", ["trace 1"])
    for _ in range(2):
        assert await states.rule(1, good, ruling, by, LATER) == Ruled("confirmed", None)
        assert await states.rule(1, bad, NOISE, by, LATER) == Ruled("rejected", None)
    found = await findings.one(1, good)
    assert found is not None
    told = {name: found[name] for name in found if name.startswith("triage")}
    assert (told["triageStatus"], told["triageVerdict"], told["triageAction"]) == ("done", "positive", "fix")
    assert (told["triageSummary"], told["triageCitations"]) == ("the upstream is slow", ["trace 1"])
    assert (told["triagedAt"], found["status"]) == ("2026-11-20T13:00:00.000000Z", "confirmed")
    listed_now = await listed(store, confirmed_only=False)
    assert {row["status"] for row in listed_now["findings"]} == {"confirmed", "rejected"}
    assert await states.rule(2, good, ruling, by, LATER) == FindingRefusal("NOT_FOUND")
    assert await states.rule(1, bad, ruling, by, LATER) == FindingRefusal("CLOSED", by.name, LATER)
    audited = [tuple(row) for row in await fetch(store, "select action, actor, subject_id from audit_row")]
    mine = [("finding.confirm", ANN.name, str(good)), ("finding.reject", ANN.name, str(bad))]
    assert audited == (mine if by is ANN else [])


async def test_nobody_decides_over_a_person_and_the_rule_over_nobody(store: Database) -> None:
    states, finding = FindingStates(store), await fire(store, seen())
    unclear = Triage("unclear", "wait", "too few")
    assert await states.rule(1, finding, unclear, AGENT, NOW) == Ruled("withheld", None)
    # Who could not tell does not stand in the way of who can.
    assert await states.rule(1, finding, REAL, RULE, NOW) == Ruled("confirmed", None)
    assert await states.rule(1, finding, unclear, AGENT, NOW) == Ruled("confirmed", None)
    assert await states.rule(1, finding, REAL, AGENT, NOW) == Ruled("confirmed", None)
    assert await states.rule(1, finding, NOISE, RULE, NOW) == FindingRefusal("OVERRULED", AGENT.name, NOW)
    await execute(store, "insert into organization (slug, name) values ('o', 'O')")
    await execute(store, "insert into project (org_id, slug, name) values (1, 'p', 'P')")
    assert await states.rule(1, finding, REAL, ANN, LATER) == Ruled("confirmed", None)
    assert await states.rule(1, finding, NOISE, AGENT, LATER) == FindingRefusal("OVERRULED", ANN.name, LATER)
    assert await states.rule(1, finding, NOISE, BOB, LATER) == Ruled("rejected", None)


async def test_a_finding_that_people_expect_closes_and_asks_its_reference_to_move(store: Database) -> None:
    assert (await ProjectStore(store).make_default()).id == 1
    states, case = FindingStates(store), await opened(store, seen())
    (row,) = await fetch(store, "select id from finding")
    for _ in range(2):
        assert await states.expect(1, row["id"], ANN, LATER) == Ruled("closed", case.id)
    (resolved,) = await fetch(store, "select resolution, resolved_by from detection_case")
    assert tuple(resolved) == ("absorbed", ANN.name)
    (move,) = await fetch(store, "select reference, from_at from reference_move")
    assert tuple(move) == ("tool:1", seen().onset_at)
    secret = await fire(store, seen(2, reference=None))
    assert await states.expect(1, secret, ANN, LATER) == FindingRefusal("NOT_ABSORBABLE")
    assert await states.recover(1, row["id"], LATER) == FindingRefusal("CLOSED", ANN.name, LATER)


async def test_detectors_go_on_with_what_lives_and_know_its_case(store: Database) -> None:
    case, loose = await opened(store, seen(1)), await fire(store, seen(2, severity=0.2))
    gone = await fire(store, seen(3))
    await FindingStates(store).recover(1, gone, LATER)
    (listed_one, other) = await FindingStore(store).live(1)
    assert {(one_.case_id, one_.role) for one_ in (listed_one, other)} == {(case.id, "cause"), (None, None)}
    (found,) = [one_ for one_ in (listed_one, other) if one_.id == loose]
    assert (found.cause, found.status, found.severity) == (seen(2).cause, "withheld", 0.2)
    assert (found.reference, found.onset_at) == ("tool:2", seen(2).onset_at)


async def listed(store: Database, **asked: Any) -> Any:
    asked = {"status": None, "call_site_id": None, "detector": None, "confirmed_only": True} | asked
    return await FindingStore(store).list(1, **asked)


async def test_unconfirmed_findings_are_withheld_and_counted(store: Database) -> None:
    for number in (1, 2, 3):
        await fire(store, seen(number, detected_at=NOW + number * MINUTE, triage_source="agent"))
    (first, _, third) = await FindingStore(store).live(1)
    await confirm(store, first.id)
    await FindingStates(store).rule(1, third.id, NOISE, AGENT, LATER)
    confirmed = await listed(store)
    assert ([row["title"] for row in confirmed["findings"]], confirmed["withheld"]) == (["cause 1"], 2)
    everything = await listed(store, confirmed_only=False)
    assert [row["title"] for row in everything["findings"]] == ["cause 3", "cause 2", "cause 1"]
    assert everything["withheld"] == 0
    assert (await listed(store, status="rejected"))["withheld"] == 1
    assert "evidence" not in everything["findings"][0]


async def test_a_listing_holds_200_findings_of_each_triage_source(store: Database) -> None:
    await execute(
        store,
        "insert into finding (project_id, title, detector, cause_kind, cause_key, status, first_seen_at,"
        " last_seen_at, onset_at, trace_count, triage_source, confirmed)"
        " select 1, 't', 'd', 'k', n::text, 'confirmed', $1, $1, $1, 1,"
        " case when n < 260 then 'rule' else 'agent' end, true from generate_series(1, 300) n",
        NOW,
    )
    assert len((await listed(store))["findings"]) == FINDINGS_SHOWN + 41
