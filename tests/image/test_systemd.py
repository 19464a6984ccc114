"""The units for systemd: systemd itself finds nothing wrong with them, and what they name is ours."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from svc.commands.table import COMMANDS
from svc.config.table import DEFAULT_BIND, setting_rows
from tests.conftest import missing
from tests.service import TRACE_SVC

UNIT = Path(__file__).parents[2] / "deploy" / "trace-svc.service"
SOCKET = UNIT.with_suffix(".socket")


def analysed(folder: Path, text: str, name: str = UNIT.name) -> str:
    """What systemd says of a unit."""
    if shutil.which("systemd-analyze") is None:
        missing("systemd-analyze")
    unit = folder / name
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if name in line)


def installed_here(text: str) -> str:
    """The unit with the command of this installation: a command that is not there is an error."""
    return text.replace("/opt/trace-svc/bin/trace-svc", TRACE_SVC)


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    assert analysed(tmp_path, installed_here(UNIT.read_text())) == ""


def test_systemd_finds_nothing_wrong_with_the_socket_of_the_service(
    tmp_path: Path,
) -> None:
    (tmp_path / UNIT.name).write_text(installed_here(UNIT.read_text()))
    assert analysed(tmp_path, SOCKET.read_text(), SOCKET.name) == ""
    assert analysed(tmp_path, SOCKET.read_text().replace("Backlog=", "Backlog=many"), SOCKET.name) != ""
    assert re.findall(r"^ListenStream=(.*)$", SOCKET.read_text(), re.M) == [DEFAULT_BIND]
    assert set(re.findall(r"\bSVC_[A-Z_]+", SOCKET.read_text())) <= {row.name for row in setting_rows()}


def test_systemd_would_have_found_a_wrong_line(tmp_path: Path) -> None:
    text = installed_here(UNIT.read_text()).replace("Restart=on-failure", "Restart=on-mondays")
    assert "on-mondays" in analysed(tmp_path, text)


def test_commands_and_settings_of_the_unit_are_those_of_the_service() -> None:
    text = UNIT.read_text()
    names = {row.name for row in setting_rows()}
    assert set(re.findall(r"\bSVC_[A-Z_]+", text)) <= names
    assert set(re.findall(r"bin/trace-svc (\w+)", text)) <= {command.name for command in COMMANDS}
