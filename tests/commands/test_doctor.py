"""What `doctor` makes of the health of the running service."""

from __future__ import annotations

from typing import Any

import pytest

from svc.commands import doctor

URL = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("part", "verdict", "text"),
    [
        ({"status": "UP"}, "ok", f"UP at {URL}"),
        ({"status": "DOWN"}, "FAIL", f"DOWN at {URL}"),
        ({"status": "DEGRADED", "details": {"fault": "no CLI"}}, "warn", f"DEGRADED at {URL}: no CLI"),
    ],
)
def test_a_degraded_component_is_a_warning_with_its_reason(
    part: dict[str, Any], verdict: str, text: str
) -> None:
    finding = doctor._component("agents", part, URL)
    assert (finding.verdict, finding.subject, finding.text) == (verdict, "agents", text)
