"""Findings, reports and detectors as pages, over four weeks of an application that detectors have judged."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from svc.runtime.clock import now
from svc.store.detection.counting.charts import ChartStep
from svc.store.detection.judging.statistic_path import StatisticReads
from svc.store.postgres.database import Database
from svc.web.cases import case_text
from svc.web.cases.case_text import ToldReport, legible
from svc.web.shell.charts import ChartFrame, chart, small_line
from tests.conftest import filled_once
from tests.detecting.filled import SECRET, fill
from tests.front.people import PASSWORD, Replica, replica
from tests.store.detection.detecting import execute, fire, opened, seen
from tests.web import drawn
from tests.web.test_pages import HOSTILE, heading
from tests.web.test_pages import fill as traced
from tests.web.test_triage import REPORT, invited, report
from tests.web.visitor import BASE, Visitor


@pytest.fixture
async def judged(asyncio_loop: None, served: Any) -> AsyncIterator[Replica]:
    """Four weeks with what detectors said of them; only read."""
    async with (
        filled_once(served, "four_weeks_judged", lambda store: fill(store, now())) as store,
        replica(store) as found,
    ):
        yield found


async def signed_in(judged: Replica) -> Visitor:
    """The owner of a database that several tests read: whoever is first signs up."""
    visitor = Visitor.of(judged)
    if (await visitor.sign_up()).status != 303:
        await visitor.post("/login", {"email": "owner@example.org", "password": PASSWORD})
    return visitor


async def test_every_page_tells_of_what_was_judged(judged: Replica) -> None:
    owner = await signed_in(judged)
    inbox = await owner.get(BASE + "/triage")
    assert re.match(r"(Three|Four) things need you", heading(inbox))
    assert inbox.text.count('class="small-line"') >= 3
    assert "call sites, 2 tools watched" in inbox.text
    cases = re.findall(r'data-ref="(C-\d+)"', inbox.text)
    titles = {}
    for reference in cases:
        page = await owner.get(f"{BASE}/cases/{reference}")
        titles[heading(page)] = page
        assert "Before and after" in page.text
        # A secret is to be revoked; no drift is to be explained.
        assert ("Revoke it" if "Secret" in heading(page) else "What was checked") in page.text
        for path in set(re.findall(rf'"({BASE}/(?:findings|rca)/[0-9a-f-]+)"', page.text)):
            proof = await owner.get(path)
            assert proof.status == 200
            assert heading(proof)
            assert SECRET not in proof.text
        assert SECRET not in page.text
    failing = next(page for title, page in titles.items() if "search" in title)
    assert "HTTP 502" in failing.text
    assert "against=healthy" in failing.text
    path = re.search(rf'"({BASE}/findings/[0-9a-f-]+)"', failing.text)
    assert path is not None
    finding = await owner.get(path[1] + "?role=witness")
    assert "Confirmed: all conditions of the rule hold." in finding.text
    assert re.search(r"(\d+) of \1 recorded rows survive", finding.text)
    assert "Kinds of failure" in finding.text
    drawn = await owner.get(path[1] + "/statistic")
    assert "The statistic over its bar" in drawn.text
    assert "against a bar of" in drawn.text
    assert (await owner.get(path[1] + "?role=nobody")).status == 400
    slower = next(page for title, page in titles.items() if "slower" in title)
    path = re.search(rf'"({BASE}/findings/[0-9a-f-]+)"', slower.text)
    assert path is not None
    assert "Distribution before and since" in (await owner.get(path[1])).text


async def test_headline_facts_axis_and_table_of_every_case_and_finding_agree(judged: Replica) -> None:
    owner = await signed_in(judged)
    pages = {}
    for tab in ("", "?tab=resolved"):
        inbox = await owner.get(BASE + "/triage" + tab)
        for reference in re.findall(r'data-ref="(C-\d+)"', inbox.text):
            page = await owner.get(f"{BASE}/cases/{reference}")
            pages[reference] = page.text
            for path in set(re.findall(rf'"({BASE}/findings/[0-9a-f-]+)"', page.text)):
                pages[path] = (await owner.get(path)).text
    labels = {label for page in pages.values() if (label := drawn.check(page)) is not None}
    # A rate, a size, and something counted.
    assert labels == {"share of traces that failed", "median of durations", "traces"}


def test_a_kind_of_failure_is_counted_and_drawn_as_the_share_of_all_failures() -> None:
    onset = datetime(2026, 11, 20, tzinfo=UTC)
    frame, band = ChartFrame.around(onset, onset), (onset, onset)
    steps = [ChartStep(units=10, failures=place % 4, value=place % 4 / 10) for place in range(frame.steps)]
    drawing = chart(frame, steps, onset, band, "bad", "tool_error_rate", "traces", 0.0)
    assert [text for _, text in drawing.ticks] == ["0", "20 %", "40 %"]
    assert (drawing.write(0.3), drawing.usual) == ("30 %", None)
    assert drawing.label == "share of traces that failed, in whatever way"
    # What counts calls by the model that answered is drawn as counts, whatever the finding's own unit.
    steps = [ChartStep(units=7, value=7.0) for _ in range(frame.steps)]
    drawing = chart(frame, steps, onset, band, "soft", "answered_model", "share", 0.0)
    assert (drawing.label, drawing.write(7.0), drawing.usual) == ("traces", "7", None)


def test_a_case_names_the_new_kinds_of_failure_that_came_with_it_and_not_twice() -> None:
    def finding(number: int, detector: str, status: str = "confirmed") -> dict[str, Any]:
        return {"id": str(number), "detector": detector, "status": status, "title": f"title {number}"}

    findings = [
        finding(1, "tool_error"),
        finding(2, "new_signature"),
        finding(3, "duration_drift"),
        finding(4, "new_signature", "rejected"),
    ]
    assert case_text.new_kinds({"finding_id": "1", "findings": findings}) == ["title 2"]
    assert case_text.new_kinds({"finding_id": "2", "findings": findings}) == []


async def test_detectors_say_why_they_are_quiet_and_what_would_have_fired(judged: Replica) -> None:
    owner = await signed_in(judged)
    page = await owner.get(BASE + "/detectors")
    assert re.match(r"13 detectors active, \d with open findings", heading(page))
    assert "unavailable: needs the encoder service" in page.text
    one = await owner.get(BASE + "/detectors/tool_error")
    assert "1 alarm" in heading(one)
    assert "times its threshold" in one.text
    assert "nothing unusual" in one.text
    assert "Expected false alarms over everything it watches" in one.text
    quiet = await owner.get(BASE + "/detectors/tool_error?state=quiet")
    assert "times its threshold" not in quiet.text
    test = await owner.post(BASE + "/detectors/tool_error/backtest", {"rise": "2"})
    assert re.search(r"It would have fired \d times? in 28 days", test.text)
    assert "Its traces" in test.text
    assert "not available here" in heading(await owner.get(BASE + "/detectors/frustration"))


async def test_one_trace_that_waits_is_one_trace(store: Database, owner: Visitor) -> None:
    await traced(store, 1)
    assert "1 trace is waiting to be counted" in (await owner.get(BASE + "/detectors")).text
    # Sent again otherwise, the first is queued a second time.
    await traced(store, 3, told="again")
    assert "3 traces are waiting to be counted" in (await owner.get(BASE + "/detectors")).text


async def test_a_detector_is_switched_and_tuned_by_members_only(here: Replica, owner: Visitor) -> None:
    path = BASE + "/detectors/duration_drift"
    assert (await owner.post(path + "/switch", {"enabled": "false"})).status == 303
    assert "switched off" in heading(await owner.get(path))
    assert (await owner.post(path + "/switch", {"enabled": "true"})).status == 303
    assert (await owner.post(path + "/tuning", {"w1_floor": "0.2"})).status == 303
    assert 'value="0.2"' in (await owner.get(path)).text
    wrong = await owner.post(path + "/tuning", {"rise": "3"})
    assert wrong.status == 422
    assert "rise" in wrong.text
    assert (await owner.post(path + "/tuning", {"w1_floor": "much"})).status == 400
    assert (await owner.post(BASE + "/detectors/frustration/switch", {"enabled": "true"})).status == 409
    assert (await owner.get(BASE + "/detectors/nothing")).status == 404
    viewer = await invited(here, owner, "viewer@example.org", "viewer")
    page = await viewer.get(path)
    assert (page.status, '<form method="post" action="' + path in page.text) == (200, False)
    for verb in ("switch", "tuning", "backtest"):
        assert (await viewer.post(f"{path}/{verb}")).status == 403


async def test_what_was_said_of_a_finding_without_a_case_is_taken_back(
    store: Database, owner: Visitor
) -> None:
    path = f"{BASE}/findings/{await fire(store, seen(1))}"
    live = await owner.post(path + "/reopen")
    assert (live.status, "nobody closed it" in live.text) == (409, True)
    for said, form in (
        ("This is not an issue", {"action": "rejected", "reason": "a load test"}),
        ("This is the new normal now", {"action": "expected"}),
    ):
        done = await owner.post(path + "/say", form)
        page = await owner.get(done.location)
        assert f"{said}." in page.text
        assert page.text.count("data-undo") == 1
        # The way back stays when the line that told of it has gone.
        assert "Take this back" in (await owner.get(path)).text
        back = await owner.post(path + "/reopen")
        page = await owner.get(back.location)
        assert "This is live again." in page.text
        assert "Not confirmed: the rule has not checked it yet." in page.text
        assert "data-undo" not in page.text
    # One that closed with its case reopens with that.
    assert (await owner.post(path + "/say", {"action": "not_expected"})).status == 303
    await owner.post(BASE + "/cases/C-1/reject", {"reason": "a load test"})
    assert "data-undo" not in (await owner.get(path)).text
    late = await owner.post(path + "/reopen")
    where = f"it closed with its case C-1; reopen that on its page, {BASE}/cases/C-1"
    assert (late.status, where in late.text) == (409, True)
    audit = await owner.get(BASE + "/settings/audit")
    assert audit.text.count("finding.reopen") == 2


async def test_people_say_whether_a_finding_is_real(here: Replica, store: Database, owner: Visitor) -> None:
    real, expected = await fire(store, seen(1)), await fire(store, seen(2))
    path = f"{BASE}/findings/{real}"
    assert "Not confirmed: the rule has not checked it yet." in (await owner.get(path)).text
    assert (await owner.post(path + "/say", {"action": "not_expected", "reason": "seen it"})).status == 303
    page = await owner.get(path)
    assert "seen it" in page.text
    assert f"{BASE}/cases/C-1" in page.text
    other = f"{BASE}/findings/{expected}"
    viewer = await invited(here, owner, "viewer@example.org", "viewer")
    assert (await viewer.post(other + "/say", {"action": "expected"})).status == 403
    assert "A real deviation" not in (await viewer.get(other)).text
    assert (await owner.post(other + "/say", {"action": "maybe"})).status == 400
    assert (await owner.post(other + "/say", {"action": "expected"})).status == 303
    again = await owner.post(other + "/say", {"action": "expected"})
    assert again.status in (303, 409)
    assert "absorbed" in (await owner.get(other)).text
    for wrong in ("x", "00000000-0000-0000-0000-000000000000"):
        assert (await owner.post(f"{BASE}/findings/{wrong}/reopen")).status == 404
        assert (await owner.get(f"{BASE}/findings/{wrong}")).status == 404
        assert (await owner.get(f"{BASE}/findings/{wrong}/statistic")).status == 404
        assert (await owner.get(f"{BASE}/rca/{wrong}")).status == 404


async def test_a_report_that_runs_or_failed_says_so_and_texts_stay_texts(
    store: Database, owner: Visitor
) -> None:
    case = await opened(
        store,
        seen(
            1,
            title=HOSTILE,
            payload={"signatures": [{"signature": HOSTILE}], "measure": HOSTILE, "subject": HOSTILE},
        ),
    )
    await owner.post(BASE + "/cases/C-1/analyse")
    rows = await store.fetch("select id, (select id from finding) as finding from rca_report")
    path, finding = f"{BASE}/rca/{rows[0]['id']}", f"{BASE}/findings/{rows[0]['finding']}"
    assert heading(await owner.get(path)) == "Looking for the cause"
    await report(store, case.id, "failed", failure=HOSTILE)
    assert heading(await owner.get(path)) == "The analysis failed"
    hostile = {**REPORT, "summary": HOSTILE, "verdict": HOSTILE, "populations": {HOSTILE: {"from": HOSTILE}}}
    hostile["hypotheses"] = [{"title": HOSTILE, "evidence_trace_ids": [HOSTILE, "0" * 32]}, HOSTILE]
    await report(store, case.id, "done", report=hostile)
    for address in (path, finding, finding + "/statistic", BASE + "/detectors"):
        page = await owner.get(address)
        assert page.status == 200, address
        assert "<img src=x" not in page.text
        assert "<script>" not in page.text
    assert "<s class=" in (await owner.get(path)).text


async def test_a_call_that_failed_is_no_new_answering_model(store: Database) -> None:
    answers = {
        ("site:writer", '["m","m-1"]'): 100,
        ("site:writer", '["m",null]'): 500,
        ("site:writer", '["m","m-2"]'): 600,
        # Where no answering model is recorded, another one that is asked for is the only sign.
        ("site:plain", '["m",null]'): 100,
        ("site:plain", '["n",null]'): 700,
    }
    for (subject, models), slot in answers.items():
        await execute(
            store,
            "with bucket as (insert into tally_bucket (project_id, measure, subject, detail)"
            f" values (1, 'answered_model', '{subject}', '{models}') returning id)"
            " insert into tally (project_id, bucket_id, slot, bin, units, failures)"
            f" select 1, id, {slot}, 0, 1, 0 from bucket",
        )
    marks = await StatisticReads(store).marks(1, 0, 1000)
    assert [(mark.slot, case_text.detail(mark.detail)) for mark in marks] == [(600, "m, m-2"), (700, "n")]


def test_a_report_of_another_make_is_told_as_far_as_it_goes() -> None:
    assert ToldReport.of(None) is None
    told = ToldReport.of({"verdict": "model_change", "hypotheses": [1], "populations": [], "settle": None})
    assert told is not None
    assert (told.verdict, told.summary, list(told.hypotheses)) == ("Model changed", "", [])
    assert legible({"a": ["key:AKIA:20:" + "7c" * 16 + ", x"]}) == {"a": ["key:AKIA, x"]}


def test_a_chart_covers_what_came_before_in_round_steps() -> None:
    onset = datetime(2026, 11, 20, 9, 40, tzinfo=UTC)
    for hours in (1, 20, 200, 2_000):
        until = datetime.fromtimestamp(onset.timestamp() + hours * 3600, UTC)
        frame = ChartFrame.around(onset, until)
        assert frame.steps <= 96
        assert frame.at(0) < onset < frame.at(frame.steps)
        assert frame.at(frame.steps) >= until
        assert 0 < frame.share(onset) < 1


def test_too_few_values_are_not_drawn() -> None:
    frame = ChartFrame(0, 72, 3)
    assert small_line(frame, [None, 0.5, None], frame.at(1)) is None
    line = small_line(frame, [0.0, 0.5, None], frame.at(1))
    assert line is not None
    assert len(line.after.split()) == 2
