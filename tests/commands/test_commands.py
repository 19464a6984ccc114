"""Laws of the command line.

Help is quick, every command is in the table, a first start tells its keys once.
"""

from __future__ import annotations

import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from svc.commands.serve import greeting, keep
from svc.commands.table import COMMANDS
from tests.forked import ran
from tests.service import TRACE_SVC

ROOT = Path(__file__).parents[2]
NO_COMMANDS = {
    *("terminal", "target", "own_service", "neighbour", "outbound", "table", "report", "parquet"),
    *(
        "demo_pictures",
        "demo_recorder",
        "demo_removal",
        "demo_reports",
        "demo_sample",
        "demo_shop",
        "demo_story",
    ),
    *("finding", "tls", "alerts_shown", "asked", "command_line", "completable", "completion_scripts"),
    "remote_backup",
}


def cpu_s(*arguments: str) -> float:
    """The CPU that a command took, in seconds; the least of three."""
    took = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([TRACE_SVC, *arguments], check=True, stdout=subprocess.DEVNULL, timeout=30)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took)


@pytest.mark.parametrize("arguments", [("--help",), ("serve", "--help")], ids=" ".join)
def test_help_takes_under_a_third_of_a_second(arguments: tuple[str, ...]) -> None:
    # As a multiple of what an empty interpreter takes here: 0.3 s where that takes 0.02.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(5):
        subprocess.run([sys.executable, "-c", "import argparse"], check=True, timeout=30)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    empty_s = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 5
    assert cpu_s(*arguments) < max(0.3, 15 * empty_s)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_explains_itself(command: object) -> None:
    name = command.name  # type: ignore[attr-defined]
    done = ran([TRACE_SVC, name, "--help"], timeout_s=30)
    assert done.returncode == 0
    assert f"trace-svc {name}" in done.stdout


def test_every_file_of_a_command_is_in_the_table() -> None:
    files = {path.stem for path in (ROOT / "svc" / "commands").glob("*.py")} - {"__init__"} - NO_COMMANDS
    assert files == {command.file for command in COMMANDS}


def test_the_keys_of_a_first_start_lie_where_only_their_owner_reads_them(tmp_path: Path) -> None:
    kept = keep(tmp_path / "first-keys", greeting("http://localhost:8000", "svc_w_x", "svc_q_x"))
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "svc_w_x" in kept.read_text()
    # A link that somebody put there is replaced, never followed.
    aim = tmp_path / "aim"
    kept.unlink()
    kept.symlink_to(aim)
    keep(kept, greeting("http://localhost:8000", "svc_w_y", "svc_q_y"))
    assert not aim.exists()
    assert not kept.is_symlink()
