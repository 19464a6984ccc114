"""The table of `make chaos`: each attack with its rounds, what was acknowledged, and what was lost of it.

A plugin of pytest, named by the Makefile; tests hand in a row by printing it (`flood.compare`).
"""

from __future__ import annotations

from typing import Any, Final

HEAD: Final = "| attack | rounds | acknowledged | lost | stored twice |\n|---|---|---|---|---|"


def row(attack: str, rounds: int, acknowledged: int, lost: int, doubled: int) -> str:
    """A row of the table."""
    return f"| {attack} | {rounds} | {acknowledged:,} | {lost} | {doubled} |"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the rows of all tests, passed or failed."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, ())
        if report.when == "call"
    ]
    rows = [
        line
        for report in reports
        for title, text in report.sections
        if "stdout" in title
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    if rows:
        terminalreporter.section("attacks")
        terminalreporter.write_line("\n".join([HEAD, *rows]))
