"""The demo's four weeks, through the real door into a real service: exactly the right cases, with reports by
rule, and on a press by an agent.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from standardwebhooks.webhooks import Webhook

from protocol.detection import Cause, Ref
from svc.application.open_store import Store
from svc.domain.alerts.channels.webhook import secret_of
from svc.store.accounts.projects import ProjectStore
from tests.e2e.agents import Agents, agents, held
from tests.e2e.mcp import beside
from tests.e2e.sleuth import FAILING, HEALTHY, sleuth
from tests.receiver import Receiver, receiving
from tests.runner.standin_model import standin
from tests.service import PLAIN, until
from tests.store.detection.detecting import fire, seen
from tests.web import drawn

pytestmark = [pytest.mark.alone, pytest.mark.release]
PAGES = "/orgs/default/projects/default"


#: What alerts of these tests are signed with.
SIGNING = secret_of(bytes(32))


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def tell(house: Agents, receiver: Receiver, folder: Path) -> None:
    """Have new cases told there."""
    (folder / "secret").write_text(SIGNING)
    channel = ("--kind", "webhook", "--url", receiver.url, "--secret-file", str(folder / "secret"))
    house.service.command("alerts", "add-channel", "hook", *channel)
    house.service.command("alerts", "add", "new cases", "--kind", "case.opened", "--channel", "hook")


@pytest.fixture(scope="module")
def house(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    """A service with the demo's four weeks, judged; its agents ask a model that finds things out."""
    with (
        standin(sleuth) as model,
        agents(None, model, SVC_DETECTORS_INTERVAL_SECONDS="5") as found,
    ):
        tell(found, receiver, tmp_path_factory.mktemp("alerts"))
        # What the small demo sends is no change of what the story tells.
        for _ in range(2):
            found.service.command("demo", "--url", found.service.url)
        found.service.command("demo", "--url", found.service.url, "--weeks", "4", timeout_s=240)
        until(lambda: len(found.tool("list_cases")["cases"]) > 0)
        until(lambda: len(receiver.taken) > 0)
        until(lambda: len(found.tool("list_cases")["cases"]) == 3)
        until(lambda: all(case["rca_available"] for case in found.tool("list_cases")["cases"]))
        yield found


def told_by(house: Agents) -> dict[str, Any]:
    """The cases by their detector. Rates and new kinds of failure are of one rank: whichever began first,
    by the onsets that were found, leads the tool's case.
    """
    return {
        "tool_error" if case["detector"] == "new_signature" else case["detector"]: house.tool(
            "get_case", id=case["id"]
        )
        for case in house.tool("list_cases")["cases"]
    }


def test_four_weeks_end_in_the_three_planted_cases_with_reports_that_name_their_causes(
    house: Agents,
) -> None:
    told = told_by(house)
    assert told.keys() == {"tool_error", "duration_drift", "secret_leak"}
    leads = {"tool_error": "is failing more often", "new_signature": "fails in a new way"}
    assert f"`lookup_order` {leads[told['tool_error']['detector']]}" in told["tool_error"]["title"]
    assert "northwind" in told["tool_error"]["rca"]["summary"]
    assert told["duration_drift"]["rca"]["verdict"] == "model_change"
    assert "is slower" in told["duration_drift"]["title"]
    assert "AKIA…" in told["secret_leak"]["title"]
    # Of the token four characters are told and no more.
    assert re.findall(r"AKIA[0-9A-Z]+", str(told)) == []
    # The tool fails in a new way, which is told beside it, in its case.
    titles = sorted(one["title"] for one in house.tool("list_findings")["findings"])
    assert [title.partition(":")[0] for title in titles] == [
        "Secret leaked by `support`",
        "`lookup_order` fails in a new way",
        "`lookup_order` is failing more often",
        "`ticket-summary` is slower",
    ]


def test_each_case_is_told_once_and_signed(house: Agents, receiver: Receiver) -> None:
    def told() -> list[str]:
        return [item["subject"] for one in receiver.taken for item in one.json["data"]["items"]]

    # What did not stand in the first message stands in the next, a minute later.
    until(lambda: len(told()) >= 3)
    assert sorted(told()) == sorted(case["reference"] for case in told_by(house).values())
    for one in receiver.taken:
        said = Webhook(SIGNING).verify(one.body, dict(one.headers))
        assert said["type"] == "case.opened"
        assert said["data"]["items"][0]["link"].startswith("http://localhost:")


def test_an_agent_confirms_what_is_true_and_rejects_what_was_made_up(house: Agents) -> None:
    case = told_by(house)["tool_error"]
    onset = datetime.fromisoformat(case["onset_at"])
    # Ten days earlier nothing happened.
    quiet = onset - timedelta(days=10)
    between = {"from": quiet.isoformat(), "to": (quiet + timedelta(days=1)).isoformat()}
    (trace,) = house.tool("list_traces", range=between, limit=1)["traces"]

    async def plant(store: Store) -> str:
        project = await ProjectStore(store.database).make_default()
        assert project is not None
        what = seen(
            cause=Cause("tool_error", "rate", "lookup_order of then"),
            title="`lookup_order` is failing more often",
            detected_at=quiet + timedelta(days=1),
            onset_at=quiet,
        )
        ref = Ref("witness", trace_id=bytes.fromhex(trace["trace_id"]))
        return str(await fire(store.database, what, [ref], project.id))

    made_up: str = beside(house.service, plant)
    runs = [house.over(house.press("triage", one)) for one in (case["finding_id"], made_up)]
    assert [run["state"] for run in runs] == ["done", "done"], runs
    ruled = [house.call("GET", f"/findings/{one}") for one in (case["finding_id"], made_up)]
    assert [(one["status"], one["triageVerdict"]) for one in ruled] == [
        ("confirmed", "positive"),
        ("rejected", "negative"),
    ], ruled


def test_one_press_on_the_page_of_a_case_names_the_planted_cause_there_and_over_mcp(house: Agents) -> None:
    case = told_by(house)["tool_error"]
    url = house.service.url
    with httpx2.Client(base_url=url, headers={"Origin": url}, timeout=60, **PLAIN) as owner:
        person = {"email": "owner@example.org", "password": "correct horse battery"}
        assert owner.post("/auth/signup", json=person).status_code == 201
        page = f"{PAGES}/cases/{case['reference']}"
        assert owner.post(f"{page}/agent").status_code == 303
        # While it runs there is none.
        until(lambda: (house.tool("get_case", id=case["id"])["rca"] or {}).get("engine") == "agent")
        report = house.tool("get_case", id=case["id"])["rca"]
        shown = owner.get(page).text
        (where,) = set(re.findall(rf"{PAGES}/rca/([0-9a-f-]{{36}})\">The agent", shown))
        read = owner.get(f"{PAGES}/rca/{where}").text
        labels = [
            drawn.check(owner.get(f"{PAGES}/cases/{one['reference']}").text)
            for one in told_by(house).values()
        ]
        assert len(labels) == 3
    (hypothesis,) = report["hypotheses"]
    assert report["verdict"] == "behavior_change"
    for cause in ("QuotaExceededError", "northwind"):
        assert cause in hypothesis["title"]
        assert cause in read
    # What it cites is there, and what fails is of the finding's own evidence.
    assert len(hypothesis["evidence_trace_ids"]) == FAILING
    cited = [one["id"] for one in hypothesis["citations"] if one["kind"] == "trace"]
    assert len(cited) == FAILING + HEALTHY
    assert {house.tool("get_trace", trace_id=one)["trace_id"] for one in cited} == set(cited)
    assert report["unsupported"] == []
    assert house.living_keys() == 0


def test_a_run_on_a_case_is_cancelled_and_repeated_at_will(house: Agents) -> None:
    case = told_by(house)["tool_error"]
    gate = threading.Event()
    house.model.script = held(gate, sleuth)
    try:
        run_id = house.press("rca", case["id"])
        until(lambda: house.run(run_id)["events"])
        house.call("POST", f"/agent-runs/{run_id}/cancel")
        assert house.over(run_id)["state"] == "cancelled"
    finally:
        gate.set()
        house.model.script = sleuth
    for _ in range(2):
        again = house.over(house.press("rca", case["id"]))
        assert again["state"] == "done", again
    assert house.tool("get_case", id=case["id"])["rca_report_id"] == again["report_id"]
    assert house.living_keys() == 0
