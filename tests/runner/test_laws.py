"""The law of the list of laws: what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_law_that_agents_are_said_to_have_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (TESTS / "runner" / "LAWS.md").read_text()))
    there = {
        name
        for file in TESTS.rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    assert len(named) > 60
    assert named - there == set()
