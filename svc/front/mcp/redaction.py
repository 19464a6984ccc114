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
    plain: dict[str, Any] = _without(answer)
    return plain


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without(item) for name, item in value.items() if name not in HIDDEN}
    if isinstance(value, list):
        return [_without(item) for item in value]
    return value
