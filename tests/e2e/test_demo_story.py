"""The demo's four weeks, through the real door into a real service: exactly the right cases, with reports."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest
from standardwebhooks.webhooks import Webhook

from tests.receiver import Receiver, receiving
from tests.service import PLAIN, Service, running, until

pytestmark = pytest.mark.alone


def ask(service: Service, key: str, tool: str, **arguments: Any) -> Any:
    """What a tool answers an agent."""
    answer = httpx2.post(
        f"{service.url}/mcp",
        json={
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        },
        headers={"authorization": f"Bearer {key}"},
        timeout=30,
        **PLAIN,
    )
    return answer.json()["result"]["structuredContent"]


def test_four_weeks_end_in_the_three_planted_cases_with_reports_that_name_their_causes() -> None:
    with running(SVC_DETECTORS_INTERVAL_SECONDS="5") as service, receiving() as receiver:
        key = service.command("keys", "create", "--scope", "admin", "--name", "agent").strip()
        secret = service.command(
            "alerts", "add-channel", "hook", "--kind", "webhook", "--url", receiver.url
        ).strip()
        service.command("alerts", "add", "new cases", "--kind", "case.opened", "--channel", "hook")
        service.command("demo", "--url", service.url, "--weeks", "4", timeout_s=240)
        until(lambda: len(ask(service, key, "list_cases")["cases"]) > 0, 120)
        # The first of them is told within half a minute, signed; later ones within the rest of its rule.
        until(lambda: len(receiver.taken) > 0, 30)
        alert = receiver.taken[0]
        said = Webhook(secret).verify(alert.body, dict(alert.headers))
        assert said["type"] == "case.opened"
        assert said["data"]["items"][0]["link"].startswith("http://localhost:")
        until(lambda: len(ask(service, key, "list_cases")["cases"]) == 3, 120)
        until(lambda: all(case["rca_available"] for case in ask(service, key, "list_cases")["cases"]), 90)
        cases = {case["detector"]: case for case in ask(service, key, "list_cases")["cases"]}
        assert cases.keys() == {"tool_error", "duration_drift", "secret_leak"}
        told = {name: ask(service, key, "get_case", id=case["id"]) for name, case in cases.items()}
        assert "`lookup_order` fails more often" in told["tool_error"]["title"]
        assert "northwind" in told["tool_error"]["rca"]["summary"]
        assert told["duration_drift"]["rca"]["verdict"] == "model_change"
        assert "is slower" in told["duration_drift"]["title"]
        assert "AKIA…" in told["secret_leak"]["title"]
        # Of the token four characters are told and no more.
        assert re.findall(r"AKIA[0-9A-Z]+", str(told)) == []
        assert len(ask(service, key, "list_findings")["findings"]) == 3
        until(lambda: len(told_of(receiver)) == 3, 90)
        assert sorted(told_of(receiver)) == sorted(case["reference"] for case in cases.values())


def told_of(receiver: Receiver) -> list[str]:
    """The cases that were told, over all messages; each once."""
    told = [item["subject"] for one in receiver.taken for item in one.json["data"]["items"]]
    assert len(told) == len(set(told))
    return told
