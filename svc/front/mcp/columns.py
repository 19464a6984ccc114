"""Columns of rows that a caller chooses with `fields`: the ids always, what was chosen, nothing else. Pure.

The handlers of lists call it. Rows that say less are more rows in the same context.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from msgspec import UnsetType

from svc.front.mcp.given import given
from svc.store.reads.payloads import PAYLOAD_FIELDS

PAYLOAD: Final = "payload"
#: Columns of every row, by which it is opened, and what says that it is not whole.
IDS: Final = ("trace_id", "span_id")
_ALWAYS: Final = (*IDS, "payload_truncated")


def wants_payload(fields: Collection[str] | UnsetType) -> bool:
    """Whether payloads are asked for."""
    return PAYLOAD in (given(fields) or ())


def chosen(fields: Collection[str] | UnsetType) -> frozenset[str] | None:
    """The columns that are asked for; None: all of them."""
    asked = frozenset(given(fields) or ())
    columns = asked - {PAYLOAD}
    if not columns:
        return None
    return columns.union(_ALWAYS, PAYLOAD_FIELDS if PAYLOAD in asked else ())


def narrowed(rows: Sequence[dict[str, Any]], columns: Collection[str] | None) -> list[dict[str, Any]]:
    """The rows with these columns alone."""
    if columns is None:
        return list(rows)
    return [{name: value for name, value in row.items() if name in columns} for row in rows]
