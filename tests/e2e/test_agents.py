"""Agents end to end: one press, a report on the page and over MCP, whatever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agents import SECRET, Agents, agents, expire, held, judging, runner_beside, text_of
from tests.runner.standin_model import Reply, standin
from tests.service import until


@pytest.fixture(scope="module")
def one_house() -> Iterator[Agents]:
    with agents() as found:
        yield found


@pytest.fixture
def house(one_house: Agents) -> Agents:
    """The service of this file; its model judges well until a test says otherwise."""
    one_house.model.script = judging
    return one_house


def test_a_true_finding_is_confirmed_and_a_planted_false_one_is_rejected(house: Agents) -> None:
    true, false = house.planted(), house.planted("planted false claim")
    runs = [house.over(house.press("triage", finding)) for finding in (true, false)]
    assert [run["state"] for run in runs] == ["done", "done"], runs
    ruled = [house.call("GET", f"/findings/{finding}") for finding in (true, false)]
    assert [(one["status"], one["triageVerdict"]) for one in ruled] == [
        ("confirmed", "positive"),
        ("rejected", "negative"),
    ]
    happened = {"accepted", "without_scripts", "turn", "tool", "ended"}
    assert {event["kind"] for event in runs[0]["events"]} == happened
    assert runs[0]["spent"]["usd"] > 0
    assert runs[0]["model"].startswith("claude-")
    over_mcp = house.tool("get_finding", id=true)
    assert over_mcp["triageStatus"] == "done"
    assert (
        not {"triageVerdict", "triageSummary", "triageCitations", "triageAction", "triagedAt"}
        & over_mcp.keys()
    )
    assert SECRET not in text_of([runs, ruled])
    assert house.living_keys() == 0


def test_one_press_on_a_case_gives_a_report_that_cites(house: Agents) -> None:
    case = house.planted(case=True)
    run = house.over(house.press("rca", case))
    assert run["state"] == "done", run
    told = house.tool("get_case", id=case)
    assert (told["rca"]["engine"], told["rca"]["verdict"]) == ("agent", "behavior_change")
    assert told["rca"]["hypotheses"][0]["evidence_trace_ids"]
    assert told["rca_report_id"] == run["report_id"]
    (listed,) = [one for one in house.call("GET", "/rca")["reports"] if one["engine"] == "agent"][:1]
    assert listed["id"] == run["report_id"]
    assert house.call("GET", f"/rca/{listed['id']}")["run_id"] == run["id"]
    again = house.call("POST", f"/rca/{listed['id']}/rerun", status=202)
    assert not again["coalesced"]
    assert house.over(again["run"])["state"] == "done"
    shown = house.service.command("agent-runs", "show", again["run"])
    assert "behavior_change" in shown


def test_a_run_is_watched_cancelled_and_repeated_at_will(house: Agents) -> None:
    gate = threading.Event()
    house.model.script = held(gate)
    finding = house.planted()
    run_id = house.press("triage", finding)
    again = house.call("POST", f"/findings/{finding}/triage", status=202)
    assert (again["run"], again["coalesced"]) == (run_id, True)
    until(lambda: house.run(run_id)["events"])
    assert house.tool("get_finding", id=finding)["triageStatus"] == "in_flight"
    health = house.service.health()["components"]["agents"]
    assert (health["status"], health["details"]["in_hand"]) == ("UP", 1)
    house.call("POST", f"/agent-runs/{run_id}/cancel")
    run = house.over(run_id)
    gate.set()
    assert (run["state"], run["failure"].startswith("cancelled by key:")) == ("cancelled", True)
    house.call("POST", f"/agent-runs/{run_id}/cancel", status=409)
    house.model.script = judging
    assert house.over(house.press("triage", finding))["state"] == "done"
    assert house.living_keys() == 0


def test_a_provider_that_refuses_the_key_parks_the_run_until_somebody_changes_something(
    house: Agents,
) -> None:
    house.model.script = lambda _: Reply(status=401)
    run_id = house.press("triage", house.planted())
    run = house.over(run_id)
    assert (run["state"], run["reason"], run["attempt"]) == ("parked", "rejected_credential", 0)
    house.model.script = judging
    settings = house.call("GET", "/agent-settings")
    assert settings == {
        "triage_automatic": False,
        "models": {"triage": None, "rca": None},
        "run_usd": None,
        "day_usd": 20.0,
        "repository": None,
    }
    house.service.command("agent-runs", "list")
    # Whoever owns the organization sets budgets; the command line may begin runs anew only.
    house.call("PUT", "/agent-settings", {**settings, "day_usd": 30.0}, status=403)
    house.call("POST", f"/agent-runs/{run_id}/cancel")


def test_get_project_names_the_runtime_of_each_lane(house: Agents) -> None:
    lane = house.tool("get_project")["judge_runtime"]
    assert lane["triage"] == {"provider": "first_party_api", "model": None, "run_usd": 2.0, "day_usd": 20.0}
    assert lane["rca"]["run_usd"] == 4.0


def test_a_runner_that_is_killed_is_followed_by_another_and_the_run_ends(house: Agents) -> None:
    gate = threading.Event()
    house.model.script = held(gate)
    run_id = house.press("triage", house.planted())
    until(lambda: house.run(run_id)["events"])
    (runner,) = house.service.children("sandbox-runner")
    os.kill(runner, signal.SIGKILL)
    gate.set()
    run = house.over(run_id, 90)
    assert (run["state"], run["refunds"] >= 1, run["attempt"]) == ("done", True, 1), run
    assert house.living_keys() == 0


@pytest.mark.release
@pytest.mark.alone
def test_a_service_that_is_killed_goes_on_with_its_run_where_it_stood(open_folder: Path) -> None:
    gate = threading.Event()
    with standin(held(gate)) as model, runner_beside(model) as settings:
        with agents(open_folder / "data", model, **settings) as first:
            run_id = first.press("triage", first.planted())
            until(lambda: first.run(run_id)["events"])
            first.service.process.kill()
            first.service.process.wait(10)
        with agents(open_folder / "data", model, **settings) as second:
            # Nobody waits for the lease of the dead.
            expire(second)
            gate.set()
            run = second.over(run_id, 90)
            assert (run["state"], run["attempt"]) == ("done", 1), run
            assert second.living_keys() == 0
    # The model was asked what one run asks: nothing was done twice.
    assert len({asked.prompt for asked in model.asked}) == 1
