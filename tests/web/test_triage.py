"""Triage and cases as pages: what stands in the inbox, what people do to a case, and what each role may."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from protocol.detection import RULE, Detection, Triage
from svc.domain.detect.detectors.table import DETECTORS, lacking
from svc.runtime.clock import now
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.judging.detector_settings import DetectorSettingStore
from svc.store.postgres.database import Connection, Database
from svc.web.cases import case_text, triage
from tests.front.people import Replica
from tests.store.detection.counting.test_tallying import begin
from tests.store.detection.detecting import fire, opened, seen
from tests.web.test_pages import HOSTILE, fill, heading
from tests.web.visitor import BASE, Seen, Visitor

TRIAGE = BASE + "/triage"


async def invited(here: Replica, owner: Visitor, email: str, role: str) -> Visitor:
    """Somebody who belongs to the organization as something."""
    made = await owner.post(BASE + "/settings/people/invite", {"email": email, "role": role})
    link = re.search(r"/signup\?invitation=([A-Za-z0-9_-]+)", made.text)
    assert link is not None
    visitor = Visitor.of(here)
    assert (await visitor.sign_up(email, invitation=link[1])).status == 303
    return visitor


def listed(page: Seen) -> list[str]:
    """The references of the list, in its order."""
    return re.findall(r'<li data-ref="(C-\d+)"', page.text)


async def three(store: Database) -> None:
    """Three cases: a low one, a high one, a medium one, in the order of their opening."""
    for number, severity in ((1, 0.2), (2, 0.9), (3, 0.5)):
        await opened(store, seen(number, title=f"`tool {number}` fails: 1 % → 9 %", severity=severity))


async def test_the_inbox_is_ranked_and_the_first_case_is_read_beside_it(
    store: Database, owner: Visitor
) -> None:
    await three(store)
    page = await owner.get(TRIAGE)
    assert heading(page).startswith("Three things need you. The worst began ")
    assert listed(page) == ["C-2", "C-3", "C-1"]
    assert 'data-case="C-2"' in page.text
    assert re.search(r"data-open-cases[^>]*>3<", page.text)
    other = await owner.get(TRIAGE + "?case=C-1")
    assert 'data-case="C-1"' in other.text
    assert listed(other) == ["C-2", "C-3", "C-1"]


async def test_a_case_about_one_agent_names_it_beside_its_call_site_and_leads_to_its_traces(
    store: Database, owner: Visitor
) -> None:
    def of(subject: str, number: int) -> Detection:
        evidence = {"measure": "turn_duration", "subject": subject}
        return seen(number, title=f"`case {number}` is slower: 1 s → 2 s", payload=evidence)

    await opened(store, of("agent:llm › <b>planner/draft", 1))
    await opened(store, of("site:llm", 2))
    finding = await store.fetch("select id from finding where evidence ->> 'subject' like 'agent:%'")
    for path in ("/triage?case=C-1", "/triage/pane?case=C-1", "/cases/C-1", f"/findings/{finding[0]['id']}"):
        page = await owner.get(BASE + path)
        links = dict(re.findall(r'<span>(call site|agent) <a href="([^"]+)"><b>', page.text))
        assert set(links) == {"call site", "agent"}, path
        assert "<b>&lt;b&gt;planner/draft</b>" in page.text
        bars = {
            heading: parse_qs(urlsplit(html.unescape(link)).query)["q"][0] for heading, link in links.items()
        }
        assert bars == {"call site": "site:llm", "agent": "site:llm agent_path:<b>planner/draft"}
        assert (await owner.get(html.unescape(links["agent"]))).status == 200
    assert "- agent: &lt;b&gt;planner/draft" in (await owner.get(BASE + "/cases/C-1")).text
    for other in ("/triage?case=C-2", "/cases/C-2"):
        assert not re.search(r"<span>(call site|agent) <a", (await owner.get(BASE + other)).text)


async def test_a_pane_is_read_alone_and_says_when_there_is_no_such_case(
    store: Database, owner: Visitor
) -> None:
    await three(store)
    pane = await owner.get(TRIAGE + "/pane?case=C-3&of=C-2,C-3,C-1", X_Part="1")
    assert "<html" not in pane.text
    assert 'name="then" value="C-1"' in pane.text
    assert "There is no such case" in (await owner.get(TRIAGE + "/pane?case=C-9")).text
    assert "There is no such case" in (await owner.get(TRIAGE + "?case=C-9")).text
    assert (await owner.get(TRIAGE + "?tab=else")).status == 400


async def test_a_mute_leads_to_the_next_case_and_is_taken_back(store: Database, owner: Visitor) -> None:
    await three(store)
    form = {"back": "triage", "tab": "open", "then": "C-3", "length": "24h"}
    done = await owner.post(BASE + "/cases/C-2/mute", form)
    assert (done.status, done.location) == (303, TRIAGE + "?case=C-3&did=mute%3AC-2")
    page = await owner.get(done.location)
    assert listed(page) == ["C-3", "C-1"]
    assert "C-2 is muted." in page.text
    for other in ("C-1", "C-3"):
        await owner.post(f"{BASE}/cases/{other}/mute")
    empty = await owner.get(TRIAGE)
    assert heading(empty) == "Nothing needs you"
    assert "All quiet" not in empty.text
    assert "3 cases" in empty.text
    for other in ("C-1", "C-3"):
        await owner.post(f"{BASE}/cases/{other}/unmute")
    muted = await owner.get(TRIAGE + "?tab=muted")
    assert (heading(muted), listed(muted)) == ("1 case is muted", ["C-2"])
    assert "muted until" in muted.text
    action = re.search(r'action="([^"]+/unmute)"', page.text)
    assert action is not None
    back = await owner.post(action[1], {"back": "triage", "tab": "open"})
    assert back.location == TRIAGE + "?case=C-2&did=unmute%3AC-2"
    assert listed(await owner.get(back.location)) == ["C-2", "C-3", "C-1"]


async def test_a_mute_lasts_as_long_as_was_said(store: Database, owner: Visitor) -> None:
    await three(store)
    await owner.post(BASE + "/cases/C-1/mute", {"length": "ever"})
    assert "until somebody unmutes it" in (await owner.get(BASE + "/cases/C-1")).text
    until = (now() + timedelta(days=3)).strftime("%Y-%m-%dT%H:%M")
    assert (await owner.post(BASE + "/cases/C-2/mute", {"until": until})).status == 303
    past = await owner.post(BASE + "/cases/C-3/mute", {"until": "2020-01-01T00:00"})
    assert (past.status, "Nothing was done" in past.text) == (400, True)
    assert (await owner.post(BASE + "/cases/C-3/mute", {"length": "long"})).status == 400


async def test_a_case_is_resolved_with_a_reason_and_reopened(store: Database, owner: Visitor) -> None:
    await three(store)
    blank = await owner.post(BASE + "/cases/C-2/resolve", {"reason": "  "})
    assert blank.status == 400
    assert "say why" in blank.text
    done = await owner.post(BASE + "/cases/C-2/resolve", {"reason": "the vendor fixed it"})
    assert done.location == BASE + "/cases/C-2?did=resolve%3AC-2"
    page = await owner.get(done.location)
    assert "the vendor fixed it" in page.text
    assert "data-undo" in page.text
    resolved = await owner.get(TRIAGE + "?tab=resolved")
    assert (heading(resolved), listed(resolved)) == ("Resolved cases", ["C-2"])
    assert (await owner.post(BASE + "/cases/C-2/reopen")).status == 303
    assert listed(await owner.get(TRIAGE)) == ["C-2", "C-3", "C-1"]


async def test_what_compares_with_something_becomes_the_new_normal(store: Database, owner: Visitor) -> None:
    await opened(store, seen(1))
    await opened(store, seen(2, reference=None))
    assert "do-absorb" in (await owner.get(BASE + "/cases/C-1")).text
    assert "do-absorb" not in (await owner.get(BASE + "/cases/C-2")).text
    assert (await owner.post(BASE + "/cases/C-1/absorb", {"reason": ""})).status == 303
    assert "absorbed" in (await owner.get(BASE + "/cases/C-1")).text
    refused = await owner.post(BASE + "/cases/C-2/absorb", {"back": "triage", "tab": "open"})
    assert refused.status == 409
    assert "resolve it instead" in refused.text


async def test_what_is_no_issue_closes_with_a_reason_and_comes_back_as_it_was(
    store: Database, owner: Visitor
) -> None:
    await three(store)
    assert (await owner.post(BASE + "/cases/C-2/reject", {"reason": " "})).status == 400
    done = await owner.post(
        BASE + "/cases/C-2/reject", {"reason": "a load test", "back": "triage", "tab": "open", "then": "C-3"}
    )
    assert done.location == TRIAGE + "?case=C-3&did=reject%3AC-2"
    page = await owner.get(done.location)
    assert "C-2 is no issue." in page.text
    assert listed(page) == ["C-3", "C-1"]
    case = await owner.get(BASE + "/cases/C-2")
    assert "a load test" in case.text
    assert "rejected by owner@example.org" in case.text
    assert (await owner.post(BASE + "/cases/C-2/reopen", {"back": "triage", "tab": "open"})).status == 303
    assert listed(await owner.get(TRIAGE)) == ["C-2", "C-3", "C-1"]


async def test_a_case_leads_to_its_neighbours_in_the_list_that_one_came_from(
    store: Database, owner: Visitor
) -> None:
    await three(store)

    async def beside(path: str) -> list[str]:
        page = await owner.get(BASE + path)
        found = re.findall(r'<a href="([^"]+)" data-(previous|next)', page.text)
        return [f"{way} {href.removeprefix(BASE + '/cases/')}" for href, way in found]

    assert await beside("/cases/C-2") == ["next C-3?in=open"]
    assert await beside("/cases/C-3?in=open") == ["previous C-2?in=open", "next C-1?in=open"]
    assert await beside("/cases/C-1?in=nonsense") == ["previous C-3?in=open"]
    # What has left the list still knows where it stood.
    done = await owner.post(BASE + "/cases/C-3/mute", {"tab": "open", "back": "case"})
    assert done.location == BASE + "/cases/C-3?in=open&did=mute%3AC-3"
    assert await beside("/cases/C-3?in=open") == ["previous C-2?in=open", "next C-1?in=open"]
    assert await beside("/cases/C-3?in=muted") == []
    assert await beside("/cases/C-3?in=resolved") == []


async def test_a_case_leads_back_to_its_row_in_the_list_that_one_came_from(
    store: Database, owner: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await three(store)
    monkeypatch.setattr(triage, "ROWS", 2)

    def link(page: Seen, pattern: str) -> str:
        return html.unescape(re.findall(pattern, page.text)[0])

    later = await owner.get(link(await owner.get(TRIAGE), r'href="([^"]+)">Show the next ones'))
    assert listed(later) == ["C-1"]
    case = link(later, r'class="what card-link" href="([^"]+)"')
    up = link(await owner.get(case), r'href="([^"]+)" data-up')
    assert up.endswith("case=C-1#C-1")
    assert listed(await owner.get(up.partition("#")[0])) == ["C-1"]
    # What has left the list leads to the one behind it.
    await owner.post(BASE + "/cases/C-2/mute", {"tab": "open", "back": "case"})
    for tab, place in (("open", "C-3"), ("muted", "C-2")):
        case = f"{BASE}/cases/C-2?in={tab}"
        assert link(await owner.get(case), r'(#[^"#]*)" data-up') == f"#{place}"


async def test_whoever_is_second_hears_who_was_first(here: Replica, store: Database, owner: Visitor) -> None:
    await three(store)
    member = await invited(here, owner, "ann@example.org", "member")
    assert (await member.post(BASE + "/cases/C-2/resolve", {"reason": "done"})).status == 303
    for back in ("triage", "case"):
        second = await owner.post(
            BASE + "/cases/C-2/resolve", {"reason": "mine", "back": back, "tab": "open"}
        )
        assert second.status == 409
        assert "it is resolved already" in second.text
        assert "ann@example.org was there first" in second.text
        assert len(re.findall("<h1", second.text)) == 1
    await member.post(BASE + "/cases/C-3/mute")
    assert "it is muted already" in (await owner.post(BASE + "/cases/C-3/mute")).text


async def test_each_role_may_what_it_may(here: Replica, store: Database, owner: Visitor) -> None:
    await three(store)
    viewer = await invited(here, owner, "viewer@example.org", "viewer")
    page = await viewer.get(TRIAGE)
    assert page.status == 200
    assert "data-verb" not in page.text
    assert "Your role is read-only" in page.text
    for verb in ("mute", "unmute", "resolve", "absorb", "reject", "reopen", "analyse"):
        assert (await viewer.post(f"{BASE}/cases/C-1/{verb}", {"reason": "x"})).status == 403
    member = await invited(here, owner, "member@example.org", "member")
    assert "data-verb" in (await member.get(TRIAGE)).text
    assert (await member.post(BASE + "/cases/C-1/analyse")).status == 303
    stranger = Visitor.of(here)
    assert (await stranger.get(TRIAGE)).location.startswith("/login")
    assert (await stranger.post(BASE + "/cases/C-1/mute")).status == 401
    assert (await owner.get("/orgs/other/projects/default/triage")).status == 404
    owner.origin = "https://elsewhere.example"
    assert (await owner.post(BASE + "/cases/C-1/mute")).status == 403


async def test_an_analysis_tells_how_far_it_is(store: Database, owner: Visitor) -> None:
    case = await opened(store, seen(1))
    assert "The analysis will start soon." in (await owner.get(BASE + "/cases/C-1")).text
    assert (await owner.post(BASE + "/cases/C-1/analyse")).status == 303
    assert "Looking for the cause since" in (await owner.get(BASE + "/cases/C-1")).text
    await report(store, case.id, "failed", failure="it took too long")
    page = await owner.get(BASE + "/cases/C-1")
    assert "The analysis failed:" in page.text
    assert "it took too long" in page.text
    await report(store, case.id, "done", report=REPORT)
    page = await owner.get(TRIAGE)
    assert "no cause found" in page.text
    assert "No cause found." in page.text


def test_kinds_of_failures_are_told_without_their_hashes() -> None:
    names = ("QuotaError:0123456789ab", "QuotaError:ba9876543210", "error:0123456789ab", "timeout", "a:b")
    report = {"ruled_out": [{"check": f"signatures.{name}", "assessment": "explains"} for name in names]}
    assert [one.label for one in case_text.checks_of(report)] == [
        "Failures `QuotaError` with the same message, 1 of 2",
        "Failures `QuotaError` with the same message, 2 of 2",
        "Failures without a type with the same message",
        "Failures `timeout`",
        "Failures `a:b`",
    ]


def test_only_suspects_are_called_a_cause_or_not() -> None:
    marks = [("sample", "ruled_out"), ("signatures.x", "explains"), ("who.user", "ruled_out")]
    report = {"ruled_out": [{"check": name, "assessment": assessment} for name, assessment in marks]}
    assert {one.label: one.mark[2] for one in case_text.checks_of(report)} == {
        "Failures `x`": "what happened",
        "Number of traces": "enough",
        "User": "not the cause",
    }


async def test_a_page_does_not_list_the_number_of_traces_among_what_is_not_the_cause(
    store: Database, owner: Visitor
) -> None:
    case = await opened(store, seen(1))
    checks = [
        {"check": name, "assessment": "ruled_out", "measurement": "80"} for name in ("sample", "who.user")
    ]
    await owner.post(BASE + "/cases/C-1/analyse")
    await report(store, case.id, "done", report={**REPORT, "ruled_out": checks})
    page = " ".join((await owner.get(BASE + "/cases/C-1")).text.split())
    assert "1 not the cause: user" in page
    assert "<span>Number of traces</span>" in page


REPORT: dict[str, Any] = {
    "engine": "rule",
    "verdict": "inconclusive",
    "summary": "nothing",
    "ruled_out": [
        {"check": "who.user", "assessment": "unknown", "measurement": "-"},
        {"check": "signatures.x", "assessment": "explains", "measurement": "all"},
    ],
    "hypotheses": [],
    "settle": ["more traffic"],
}


async def report(store: Database, case_id: Any, status: str, **fields: Any) -> None:
    """The newest report of a case, as it would end."""

    async def work(connection: Connection) -> None:
        await connection.execute(
            "update rca_report set status = $2, report = $3::text::jsonb, failure = $4, finished_at = now()"
            " where case_id = $1",
            case_id,
            status,
            msgspec.json.encode(fields["report"]).decode() if "report" in fields else None,
            fields.get("failure"),
        )

    await store.run(work)


async def test_what_is_not_confirmed_stands_below_with_the_condition_that_fails(
    store: Database, owner: Visitor
) -> None:
    await three(store)
    finding = await fire(store, seen(7, title="`slow tool` is slower: p50 1 s → 1.2 s"))
    why = Triage("unclear", "wait", "Withheld: it is smaller than ×1.25 for sizes.")
    await FindingStates(store).rule(1, finding, why, RULE, now())
    page = await owner.get(TRIAGE)
    assert "Not confirmed yet: 1 finding" in page.text
    assert "Withheld: it is smaller than ×1.25 for sizes." in page.text
    assert f"/findings/{finding}" in page.text


async def test_an_empty_inbox_says_on_which_step_it_is(store: Database, owner: Visitor) -> None:
    page = await owner.get(TRIAGE)
    assert heading(page) == "Nothing needs you"
    assert "No application is connected yet" in page.text
    await begin(store)
    await fill(store, 3)
    assert "Learning what is usual" in (await owner.get(TRIAGE)).text
    for name, detector in DETECTORS.items():
        if lacking(detector, frozenset()) is None:
            await DetectorSettingStore(store).set_enabled(1, name, False, "tests")
    assert "Every detector is switched off" in (await owner.get(TRIAGE)).text


async def test_who_takes_an_instance_with_traces_lands_where_something_is_to_see(
    store: Database, here: Replica
) -> None:
    await begin(store)
    await fill(store, 2)
    assert (await Visitor.of(here).sign_up()).location == "/"


async def test_hostile_texts_of_a_case_stay_texts(store: Database, owner: Visitor) -> None:
    case = await opened(
        store,
        seen(
            1,
            title=f"`{HOSTILE}`: {HOSTILE}",
            basis=HOSTILE,
            subject_label=HOSTILE,
            subject_id=HOSTILE,
            payload={"measure": "tool_error_rate", "subject": HOSTILE, "signatures": [HOSTILE]},
        ),
    )
    await owner.post(BASE + "/cases/C-1/analyse")
    hostile = {**REPORT, "summary": HOSTILE, "verdict": HOSTILE, "settle": [HOSTILE]}
    hostile["ruled_out"] = [{"check": HOSTILE, "assessment": HOSTILE, "measurement": HOSTILE}]
    hostile["hypotheses"] = [
        {"title": HOSTILE, "rationale": HOSTILE, "confidence": HOSTILE, "evidence_trace_ids": [HOSTILE]}
    ]
    await report(store, case.id, "done", report=hostile)
    await owner.post(BASE + "/cases/C-1/mute")
    await owner.post(BASE + "/cases/C-1/resolve", {"reason": HOSTILE})
    for path in (
        "/triage?tab=resolved",
        "/cases/C-1",
        "/triage/pane?case=C-1",
        "/triage?did=mute:C-1%22%3E%3Cscript%3E",
        "/triage?case=%3Cscript%3E",
    ):
        page = await owner.get(BASE + path)
        assert page.status == 200, path
        assert "<script>" not in page.text.replace("<script type", ""), path
        assert "<img src=x" not in page.text, path


async def test_a_ticket_holds_what_somebody_else_needs(store: Database, owner: Visitor) -> None:
    await three(store)
    page = await owner.get(BASE + "/cases/C-2")
    assert "## C-2: `tool 2` fails: 1 % → 9 %" in page.text
    assert f"http://localhost{BASE}/cases/C-2" in page.text


async def test_there_is_no_page_of_a_case_that_there_is_not(owner: Visitor) -> None:
    for wrong in ("C-1", "x", "00000000-0000-0000-0000-000000000000", "%3Cscript%3E"):
        assert (await owner.get(f"{BASE}/cases/{wrong}")).status == 404
        assert (await owner.post(f"{BASE}/cases/{wrong}/mute")).status == 404
