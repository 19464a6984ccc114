"""Findings and cases over REST: what is read is what is documented, and people move it within one project."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from protocol.detection import Ref
from protocol.rest.cases import CasePage, CaseWhole, EvidencePage, FindingList, FindingWhole
from svc.store.detection.rca.reports import RcaStore
from tests.front.people import ORG, PROJECT, Browser, Replica
from tests.store.detection.detecting import AGENT, confirm, execute, fire, opened, seen
from tests.store.spans.test_writing import NOW, fetch

CASES, FINDINGS = PROJECT + "/cases", PROJECT + "/findings"
MISSING = "00000000-0000-0000-0000-000000000000"
SESSIONS = [Ref("witness", session_id="s1"), Ref("baseline", session_id="s2")]


@pytest.fixture
def api_clock() -> Callable[[], datetime]:
    return lambda: NOW + timedelta(hours=2)


def documented(data: Any, type_: Any) -> None:
    """Holds real data against the class that documents it: no field more, none less, none of another type."""
    assert msgspec.to_builtins(msgspec.convert(data, type_)) == data


async def test_findings_and_cases_are_answered_as_they_are_documented(api: Replica, owner: Browser) -> None:
    case = await opened(api.database, seen(payload={"signatures": ["Timeout"]}), SESSIONS)
    await execute(
        api.database,
        "insert into session (project_id, id, started_at, last_activity_at) values (1, 's1', $1, $1)",
        NOW,
    )
    (listed,) = (await owner.get(CASES)).data["cases"]
    assert (listed["id"], listed["reference"], listed["state"]) == (str(case.id), "C-1", "open")
    documented((await owner.get(CASES)).data, CasePage)
    for name in ("C-1", "c-1", str(case.id)):
        whole = (await owner.get(f"{CASES}/{name}")).data
        documented(whole, CaseWhole)
        assert [finding["role"] for finding in whole["findings"]] == ["cause"]
    finding_id = whole["finding_id"]
    documented((await owner.get(FINDINGS)).data, FindingList)
    finding = (await owner.get(f"{FINDINGS}/{finding_id}")).data
    documented(finding, FindingWhole)
    # What MCP takes out stands here.
    assert (finding["triageVerdict"], finding["evidence"]) == ("positive", {"signatures": ["Timeout"]})
    # To an admin key as well as to people.
    keyed = api.browser(key=await api.token("admin"))
    assert (await keyed.get(f"{FINDINGS}/{finding_id}")).data == finding
    evidence = (await owner.get(f"{FINDINGS}/{finding_id}/evidence")).data
    documented(evidence, EvidencePage)
    assert evidence["refs"] == [{"role": "witness", "grain": "session", "session_id": "s1"}]
    assert (evidence["counts"]["baseline"], evidence["recorded_counts"]["baseline"]) == (0, 1)
    assert (await owner.get(f"{FINDINGS}/{finding_id}/evidence?count_only=true")).data["refs"] == []
    assert (await owner.get(f"{FINDINGS}/{finding_id}/baseline-events")).data["refs"] == []


async def test_findings_are_narrowed_by_what_stands_in_the_query(api: Replica, owner: Browser) -> None:
    site = "a/site?with&everything #1"
    await confirm(api.database, await fire(api.database, seen(1, call_site_id=site)))
    await fire(api.database, seen(2))
    found = (await owner.get(FINDINGS)).data
    assert ([row["title"] for row in found["findings"]], found["withheld"]) == (["cause 1"], 1)
    everything = (await owner.get(FINDINGS + "?include=all")).data
    assert {row["title"] for row in everything["findings"]} == {"cause 1", "cause 2"}
    assert everything["withheld"] == 0
    for query, titles in (
        ("call_site_id=a%2Fsite%3Fwith%26everything%20%231", ["cause 1"]),
        ("include=all&status=withheld", ["cause 2"]),
        ("detector=nothing", []),
        ("include=all&detector=tool-errors&call_site_id=site-2", ["cause 2"]),
    ):
        rows = (await owner.get(f"{FINDINGS}?{query}")).data["findings"]
        assert [row["title"] for row in rows] == titles, query
    for bad in ("status=closedd", "include=none", "unknown=1"):
        assert (await owner.get(f"{FINDINGS}?{bad}")).refused[0] == 400, bad


async def test_a_page_of_cases_goes_on_and_is_bounded(api: Replica, owner: Browser) -> None:
    for number in (1, 2, 3):
        await opened(api.database, seen(number))
    first = (await owner.get(CASES + "?limit=2")).data
    assert len(first["cases"]) == 2
    second = (await owner.get(f"{CASES}?limit=2&cursor={first['next_cursor']}")).data
    assert len(second["cases"]) == 1
    assert second["next_cursor"] is None
    for bad in ("limit=0", "limit=101", "limit=many", "state=closed"):
        assert (await owner.get(f"{CASES}?{bad}")).refused[0] == 400, bad
    assert (await owner.get(CASES + "?call_site_id=site-2")).data["cases"][0]["call_site_id"] == "site-2"


async def test_a_case_is_muted_unmuted_and_resolved_with_a_reason(api: Replica, owner: Browser) -> None:
    await opened(api.database, seen())
    muted = await owner.post(CASES + "/C-1/mute", {"until": "2099-01-01T00:00:00Z"})
    assert muted.data == {"reference": "C-1", "state": "muted"}
    assert (await owner.get(CASES + "?state=muted")).data["cases"][0]["muted_until"].startswith("2099-01-01")
    assert (await owner.post(CASES + "/C-1/mute", {})).refused[:2] == (409, "ALREADY_MUTED")
    assert (await owner.post(CASES + "/C-1/unmute")).data["state"] == "open"
    for body in ({}, {"reason": " \n"}):
        assert (await owner.post(CASES + "/C-1/resolve", body)).refused[:2] == (400, "REASON_REQUIRED")
    done = await owner.post(CASES + "/C-1/resolve", {"reason": "a retry\u0000 was added"})
    assert done.data == {"reference": "C-1", "state": "resolved"}
    case = (await owner.get(CASES + "/C-1")).data
    assert (case["resolution"], case["resolution_reason"]) == ("resolved", "a retry\ufffd was added")
    again = await owner.post(CASES + "/C-1/resolve", {"reason": "another"})
    assert again.refused[:2] == (409, "ALREADY_RESOLVED")
    assert again.body["error"]["details"]["by"] == "owner@example.org"
    for verb in ("mute", "unmute", "absorb", "reject"):
        sent = None if verb == "unmute" else {"reason": "so"} if verb == "reject" else {}
        answer = await owner.call("POST", f"{CASES}/C-1/{verb}", sent)
        assert answer.refused[:2] == (409, "ALREADY_RESOLVED"), verb
    audit = await fetch(api.database, "select action, actor from audit_row where subject_kind = 'case'")
    assert {tuple(row) for row in audit} == {
        (f"case.{verb}", "owner@example.org") for verb in ("mute", "unmute", "resolve")
    }


async def test_an_unmuted_case_is_not_unmuted_and_a_mute_ends_in_the_future(
    api: Replica, owner: Browser
) -> None:
    await opened(api.database, seen())
    assert (await owner.post(CASES + "/C-1/unmute")).refused[:2] == (409, "NOT_MUTED")
    for until in ("2020-01-01T00:00:00Z", "soon"):
        assert (await owner.post(CASES + "/C-1/mute", {"until": until})).refused[0] == 400, until
    assert (await owner.get(CASES + "/C-1")).data["state"] == "open"


async def test_absorbing_a_case_asks_its_detector_to_move_its_reference(api: Replica, owner: Browser) -> None:
    await opened(api.database, seen(1))
    await opened(api.database, seen(2, reference=None))
    assert (await owner.post(CASES + "/C-1/absorb", {})).data["state"] == "resolved"
    moves = await fetch(api.database, "select reference, asked_by from reference_move")
    assert [tuple(row) for row in moves] == [("tool:1", "owner@example.org")]
    assert (await owner.post(CASES + "/C-2/absorb", {})).refused[:2] == (409, "NOT_ABSORBABLE")


async def test_an_expected_finding_closes_and_a_real_one_is_confirmed_by_a_person(
    api: Replica, owner: Browser
) -> None:
    normal, real = await fire(api.database, seen(1)), await fire(api.database, seen(2))
    odd = await fire(api.database, seen(3, reference=None))

    async def say(finding_id: Any, action: str) -> Any:
        return await owner.post(f"{FINDINGS}/{finding_id}/resolution", {"action": action, "reason": "so"})

    assert (await say(normal, "expected")).data == {"status": "closed", "case_id": None}
    assert [
        row["reference"] for row in await fetch(api.database, "select reference from reference_move")
    ] == ["tool:1"]
    assert (await say(odd, "expected")).refused[:2] == (409, "NOT_ABSORBABLE")
    for _ in range(2):
        confirmed = (await say(real, "not_expected")).data
        assert confirmed["status"] == "confirmed"
        assert (await owner.get(f"{CASES}/{confirmed['case_id']}")).data["reference"] == "C-1"
    finding = (await owner.get(f"{FINDINGS}/{real}")).data
    assert (finding["triageVerdict"], finding["triageSummary"]) == ("positive", "so")
    # Closed in one way, it is not confirmed in another.
    assert (await say(normal, "not_expected")).refused[:2] == (409, "ALREADY_RESOLVED")
    assert (await say(real, "rejected")).data["status"] == "rejected"
    assert (await owner.get(CASES + "/C-1")).data["resolution"] == "rejected"
    blank = await owner.post(f"{FINDINGS}/{odd}/resolution", {"action": "rejected"})
    assert blank.refused[:2] == (400, "REASON_REQUIRED")
    assert (await say(real, "dunno")).refused[0] == 400
    actions = await fetch(api.database, "select action from audit_row where subject_kind = 'finding'")
    assert sorted(row["action"] for row in actions) == ["finding.confirm", "finding.expect", "finding.reject"]


async def test_whoever_reopens_a_finding_that_closed_with_its_case_is_told_the_page_to_do_it_on(
    api: Replica, owner: Browser
) -> None:
    case = await opened(api.database, seen())
    finding_id = (await owner.get(f"{CASES}/{case.reference}")).data["finding_id"]
    assert (await owner.post(f"{CASES}/{case.reference}/reject", {"reason": "a load test"})).status == 200
    refused = await owner.post(f"{FINDINGS}/{finding_id}/reopen")
    page = f"{PROJECT.removeprefix('/api')}/cases/{case.reference}"
    assert refused.refused == (
        409,
        "CONFLICT",
        f"it closed with its case C-1; reopen that on its page, {page}",
    )
    assert refused.body["error"]["details"] == {"case": case.reference, "page": page}


async def test_a_press_begins_one_report_and_the_next_press_names_it(api: Replica, owner: Browser) -> None:
    await opened(api.database, seen())
    first, second = [await owner.post(CASES + "/C-1/rca?engine=rule") for _ in range(2)]
    assert (first.status, first.data["coalesced"]) == (202, False)
    assert second.data == {
        "rca_report_id": first.data["rca_report_id"],
        "coalesced": True,
        "run": None,
        "state": None,
    }
    case = (await owner.get(CASES + "/C-1")).data
    assert (case["rca_report_id"], case["rca"], case["rca_available"]) == (
        first.data["rca_report_id"],
        None,
        False,
    )
    lease = await RcaStore(api.database).claim(NOW)
    assert lease is not None
    assert await RcaStore(api.database).finish(lease, {"summary": "a timeout"}, AGENT, NOW)
    assert (await owner.get(CASES + "/C-1")).data["rca"] == {"summary": "a timeout"}


READS = [CASES, FINDINGS, CASES + "/C-1", "{finding}", "{finding}/evidence", "{finding}/baseline-events"]
WRITES = [
    (CASES + "/C-1/mute", {}),
    (CASES + "/C-1/unmute", None),
    (CASES + "/C-1/resolve", {"reason": "done"}),
    (CASES + "/C-1/absorb", {}),
    (CASES + "/C-1/reject", {"reason": "done"}),
    (CASES + "/C-1/rca", None),
    ("{finding}/resolution", {"action": "not_expected"}),
]


async def test_viewers_and_query_keys_read_and_change_nothing(api: Replica, owner: Browser) -> None:
    case = await opened(api.database, seen())
    finding = f"{FINDINGS}/{(await owner.get(f'{CASES}/{case.id}')).data['finding_id']}"
    viewer = await api.member("viewer@example.org", "viewer", owner)
    query = api.browser(key=await api.token("query"), origin=None)
    write = api.browser(key=await api.token("write"), origin=None)
    for path in READS:
        path = path.format(finding=finding)
        assert (await viewer.get(path)).status == 200, path
        assert (await query.get(path)).status == 200, path
        assert (await write.get(path)).status == 403, path
        assert (await api.browser().get(path)).status == 401, path
    for path, body in WRITES:
        path = path.format(finding=finding)
        for caller in (viewer, query, write):
            assert (await caller.post(path, body)).status == 403, path
        assert (await api.browser().post(path, body)).status == 401, path
    assert (await owner.get(CASES + "/C-1")).data["state"] == "open"
    assert await fetch(api.database, "select from audit_row where subject_kind in ('case', 'finding')") == []


async def test_members_and_admin_keys_act_and_the_trail_names_them(api: Replica, owner: Browser) -> None:
    await opened(api.database, seen())
    member = await api.member("member@example.org", "member", owner)
    minted = await api.minted("admin")
    key = api.browser(key=minted.plaintext, origin=None)
    assert (await member.post(CASES + "/C-1/mute", {})).status == 200
    assert (await key.post(CASES + "/C-1/unmute")).status == 200
    trail = (await owner.get(CASES + "/C-1")).data["events"]
    assert [(step["kind"], step["actor"]) for step in trail[1:]] == [
        ("muted", "member@example.org"),
        ("unmuted", f"key:{minted.key.id}"),
    ]


async def test_what_lies_in_another_project_does_not_exist(api: Replica, owner: Browser) -> None:
    case = await opened(api.database, seen())
    finding_id = (await owner.get(f"{CASES}/{case.id}")).data["finding_id"]
    other = (await owner.post(ORG + "/projects", {"name": "Other", "slug": "other"})).data
    theirs = ORG + "/projects/other"
    assert (await owner.get(theirs + "/cases")).data["cases"] == []
    assert (await owner.get(theirs + "/findings?include=all")).data["findings"] == []
    for name in ("C-1", str(case.id), MISSING, "C-0", "no id"):
        assert (await owner.get(f"{theirs}/cases/{name}")).refused[:2] == (404, "NOT_FOUND"), name
        for verb, body in (("mute", {}), ("unmute", None), ("rca", None), ("resolve", {"reason": "x"})):
            answer = await owner.post(f"{theirs}/cases/{name}/{verb}", body)
            assert answer.refused[:2] == (404, "NOT_FOUND"), (name, verb)
    for name in (finding_id, MISSING, "no id"):
        for path in ("", "/evidence", "/baseline-events"):
            assert (await owner.get(f"{theirs}/findings/{name}{path}")).status == 404, (name, path)
        answer = await owner.post(f"{theirs}/findings/{name}/resolution", {"action": "expected"})
        assert answer.refused[:2] == (404, "NOT_FOUND")
    # Nor does this one to a key of the other.
    (project,) = await fetch(api.database, "select id from project where slug = $1", other["slug"])
    key = api.browser(key=await api.token("admin", project["id"]), origin=None)
    for path in (CASES, CASES + "/C-1", f"{FINDINGS}/{finding_id}"):
        assert (await key.get(path)).status == 404, path
    assert (await key.post(CASES + "/C-1/mute", {})).status in (403, 404)
    assert (await owner.get(CASES + "/C-1")).data["state"] == "open"
