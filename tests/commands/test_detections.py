"""Detectors, findings and cases on the command line, beside a running service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.rest.cases import CasePage, CaseWhole, FindingList
from svc.domain.detect.detectors.table import DETECTORS
from tests.commands.test_commands import ROOT
from tests.e2e.mcp import beside
from tests.forked import ran
from tests.front.api.test_buckets import END, counted
from tests.front.api.test_cases import documented
from tests.service import TRACE_SVC, Service, running
from tests.store.detection.detecting import execute, fire, opened, seen
from tests.store.spans.test_writing import fetch


@pytest.fixture(scope="module")
def own() -> Iterator[Service]:
    """A service of our own, with two cases, a finding that nobody confirmed, and a tool that fails."""
    with running() as service:

        async def fill(store: Any) -> None:
            for number in (1, 2):
                title = f"cause {number} \x1b[31mred"
                await opened(store.database, seen(number, title=title, payload={"signatures": []}))
            await fire(store.database, seen(3))
            await execute(
                store.database,
                "insert into fold_state (project_id, newest_slot) values (1, $1)"
                " on conflict (project_id) do update set newest_slot = excluded.newest_slot",
                END,
            )
            await counted(store.database, "ill", bad_days=2)

        beside(service, fill)
        yield service


def refused(service: Service, *arguments: str) -> str:
    """What a command that must fail says."""
    done = ran([TRACE_SVC, *arguments], env=service.env, cwd=ROOT, timeout_s=60)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stdout == ""
    return done.stderr


def asked(service: Service, *arguments: str) -> Any:
    return json.loads(service.command(*arguments, "--json"))


def test_detectors_are_listed_with_their_states(own: Service) -> None:
    rows = asked(own, "detectors", "list")
    assert [row["id"] for row in rows] == list(DETECTORS)
    assert {row["id"] for row in rows if row["state"] == "unavailable"} == {"frustration", "groundedness"}
    text = own.command("detectors", "list")
    assert "it needs the encoder service, which is not configured" in text
    assert all(name in text for name in DETECTORS)


def test_a_backtest_says_what_would_have_fired(own: Service) -> None:
    (test,) = asked(own, "detectors", "backtest", "--detector", "tool_error", "--days", "28")
    assert [(one["subject"], one["direction"]) for one in test["alarms"]] == [("tool:ill", "up")]
    text = own.command("detectors", "backtest", "--days", "28")
    assert "tool_error: 1 alarms in 28 days over 1 series" in text
    assert "duration_drift: 0 alarms" in text
    assert "secret_leak" not in text
    for arguments, said in (
        (("--detector", "secret_leak"), "one event is enough"),
        (("--detector", "frustration"), "encoder"),
        (("--detector", "nothing"), "no classifier of this name"),
        (("--days", "0"), "--days"),
        (("--days", "36"), "--days"),
    ):
        assert said in refused(own, "detectors", "backtest", *arguments)


def test_the_first_look_says_what_its_page_says(own: Service) -> None:
    assert own.command("first-look").strip() == "First look: no trace has arrived yet"
    look = asked(own, "first-look")
    assert (look["traces"], look["facts"], look["month"]) == (0, [], None)
    assert "there is no project" in refused(own, "first-look", "--project", "nothing")


def test_findings_are_listed_and_shown(own: Service) -> None:
    found = asked(own, "findings", "list")
    documented(found, FindingList)
    assert (len(found["findings"]), found["withheld"]) == (2, 1)
    assert "1 more unconfirmed" in own.command("findings", "list")
    everything = asked(own, "findings", "list", "--all", "--call-site", "site-3")["findings"]
    assert [one["status"] for one in everything] == ["withheld"]
    one = asked(own, "findings", "show", everything[0]["id"])
    assert (one["title"], one["counts"]["witness"]) == ("cause 3", 0)
    assert "cause 3" in own.command("findings", "show", everything[0]["id"])
    for name in ("nothing", "00000000-0000-0000-0000-000000000000"):
        assert "no such finding" in refused(own, "findings", "show", name)


def test_cases_are_listed_shown_and_moved_by_the_operator(own: Service) -> None:
    page = asked(own, "cases", "list")
    documented(page, CasePage)
    assert {one["reference"] for one in page["cases"]} == {"C-1", "C-2"}
    documented(asked(own, "cases", "show", "C-1"), CaseWhole)
    # Titles come from strangers, who do not steer the operator's terminal.
    for text in (own.command("cases", "list"), own.command("cases", "show", "c-1")):
        assert "cause 1" in text
        assert "\x1b" not in text
    assert own.command("cases", "mute", "C-1", "--days", "2").strip() == "C-1 is muted"
    assert "muted already (by operator" in refused(own, "cases", "mute", "C-1")
    assert [one["reference"] for one in asked(own, "cases", "list", "--state", "muted")["cases"]] == ["C-1"]
    assert asked(own, "cases", "unmute", "C-1") == {"reference": "C-1", "state": "open"}
    assert "not muted" in refused(own, "cases", "unmute", "C-2")
    assert "say why" in refused(own, "cases", "resolve", "C-1")
    assert own.command("cases", "resolve", "C-1", "--reason", "a retry").strip() == "C-1 is resolved"
    assert own.command("cases", "absorb", "C-2").strip() == "C-2 is resolved"
    assert "resolved already" in refused(own, "cases", "resolve", "C-2", "--reason", "late")
    assert "no such case" in refused(own, "cases", "show", "C-9")
    rows = beside(
        own, lambda store: fetch(store.database, "select actor from audit_row where subject_kind = 'case'")
    )
    assert {row["actor"] for row in rows} == {"operator"}
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("cases", "resolve", "C-2"), "--reason must not be blank"),
        (("alerts", "add-channel", "wh", "--kind", "webhook"), "webhook needs --url"),
        (("alerts", "add-channel", "us", "--kind", "email"), "email needs --to"),
        (("alerts", "add", "slow", "--kind", "metric"), "metric needs --param dataset=VALUE"),
        (
            ("alerts", "add", "never", "--kind", "case.opened", "--param", "detectors=bogus"),
            "'bogus', only tool",
        ),
        (("dead-letters", "show", "1"), "there is no dead letter 1"),
        (("backup", "list", "/nope"), "there is no folder /nope"),
        (("keys", "create", "--scope", "read", "--name", "me"), "one of: write, query, admin"),
    ],
)
def test_what_is_missing_is_named_as_it_is_typed(own: Service, arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(own, *arguments)
