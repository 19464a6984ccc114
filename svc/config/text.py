"""The settings table as text: for the README and for `--help`."""

from __future__ import annotations

from svc.config.table import Row, setting_rows


def settings_markdown() -> str:
    """The table as the README shows it."""
    lines = ["| Variable | Type | Default | Unit | What it does |", "|---|---|---|---|---|"]
    lines += [
        f"| `{row.name}` | {row.type} | {_default_text(row)} | {row.unit} | {row.sentence} |"
        for row in setting_rows()
    ]
    return "\n".join(lines)


def _default_text(row: Row) -> str:
    plain = {"blank", "derived", "published placeholder"}
    return row.default if row.default in plain or " " in row.default else f"`{row.default}`"


def settings_help() -> str:
    """The table as `--help` shows it."""
    width = max(len(row.name) for row in setting_rows())
    return "\n".join(
        f"  {row.name:<{width}}  {row.sentence} [{row.default}{' ' + row.unit if row.unit else ''}]"
        for row in setting_rows()
    )
