"""`--where FIELD=VALUE` of commands: read into filters of the query API, and its refusals as a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.operator import OperatorError
from protocol.refusals import Refused
from protocol.rest.query import FilterValue


def read_filters(where: Sequence[str]) -> dict[str, FilterValue]:
    """The filters; `FIELD=` asks for rows without a value. Raises `OperatorError` for what is none."""
    filters: dict[str, FilterValue] = {}
    for text in where:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise OperatorError(f"'{text[:100]}' is no FIELD=VALUE, such as status=error")
        filters[name.strip()] = value or None
    return filters


def refusal_sentence(refused: Refused) -> str:
    """What was wrong, and what is allowed."""
    allowed = (refused.refusal.details or {}).get("allowed")
    return refused.refusal.message + (f"; one of: {', '.join(allowed)}" if allowed else "")
