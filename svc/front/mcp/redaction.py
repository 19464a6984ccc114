"""What no caller of MCP may see: the rulings of triage (spec, "Authentication" 9).

Every answer that holds a case or a finding goes through `redacted`. `triageStatus` and a case's `rca` stay.
"""

from __future__ import annotations

from typing import Any, Final

HIDDEN: Final = frozenset(
    {"triageVerdict", "triageAction", "triageSummary", "triageCitations", "triagedAt", "ruling"}
)


def redacted(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without the hidden fields, at any depth."""
    return {
        name: redacted(value) if type(value) is dict else _each(value) if type(value) is list else value
        for name, value in answer.items()
        if name not in HIDDEN
    }


def _each(values: list[Any]) -> list[Any]:
    # Most of what an answer holds is neither; to call itself for each value doubled the time (November 2026).
    return [
        redacted(value) if type(value) is dict else _each(value) if type(value) is list else value
        for value in values
    ]
