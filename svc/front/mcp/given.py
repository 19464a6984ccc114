"""What callers gave, as the stores take it: absent arguments, page sizes, ranges. Pure.

Called by the handlers of the tools. Raises `ToolError`, whose text says what to call instead.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, TypeVar

from msgspec import UnsetType

from protocol.rest.query import SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX, instant, page_size
from svc.domain.spans.values import identifier
from svc.front.mcp.argument_types import Between, BothBounds

PAGE_DEFAULT: Final = 50
PAGE_MAX: Final = 100

T = TypeVar("T")


class ToolError(Exception):
    """The tool cannot answer this; the text is for the agent that asked."""


class NotInProject(ToolError):
    """What was named is not in the project."""


def given(value: T | UnsetType) -> T | None:
    """A value, or None where none was given."""
    return None if isinstance(value, UnsetType) else value


def given_identifier(value: str | UnsetType) -> str | None:
    """An identifier as it is stored: whoever has a long one from elsewhere has it whole."""
    return None if isinstance(value, UnsetType) else identifier(value)


def limit(wanted: int | UnsetType) -> int:
    """Rows of an ordinary page."""
    return page_size(given(wanted), PAGE_DEFAULT, PAGE_MAX)


def long_limit(wanted: int | UnsetType) -> int:
    """Rows of a page of plain rows."""
    return page_size(given(wanted), SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX)


def bounds(
    between: Between | BothBounds | UnsetType,
) -> tuple[datetime | None, datetime | None]:
    """The two bounds; an instant that cannot be read raises `Refused`."""
    if isinstance(between, UnsetType):
        return None, None
    low = None if isinstance(between.from_, UnsetType) else instant(between.from_, "range.from")
    high = None if isinstance(between.to, UnsetType) else instant(between.to, "range.to")
    if low is not None and high is not None and low > high:
        raise ToolError("'range.from' is after 'range.to'; swap them")
    return low, high
