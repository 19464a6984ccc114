"""Health tells of agents whose runs cannot be started, in the real processes, and of their recovery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agents import agents
from tests.service import until


@pytest.mark.release
def test_a_missing_agent_program_degrades_agents_and_nothing_else_until_it_is_there(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    with agents(SANDBOX_BACKEND="local", SANDBOX_CLI=str(program)) as house:

        def reported() -> dict[str, Any]:
            found: dict[str, Any] = house.service.health()["components"]["agents"]
            return found

        assert reported()["status"] == "UP"
        house.over(house.press("triage", house.planted()))
        until(lambda: reported()["status"] == "DEGRADED", every_s=0.5)
        assert str(program) in reported()["details"]["fault"]
        assert house.service.health()["status"] == "UP"
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
        until(lambda: reported()["status"] == "UP", every_s=0.5)
        assert "fault" not in reported()["details"]
