"""Stored rows as the read surfaces show them (contract §5): closed lists of columns, and how each prints.

Instants in ISO 8601 UTC, ids hexadecimal, money as numbers. Every field that the contract lists is present,
null where nothing is known; what we show beside those is left out then. The read stores beside this use it;
nothing here reaches the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from protocol.rest.query import timestamp
from svc.domain.detect.secrets.masking import masked_head
from svc.domain.spans.messages import PREVIEW_CHARS
from svc.domain.spans.span import HEAD_COLUMNS, TOKEN_BUCKETS
from svc.domain.spans.values import MESSAGE_CHARS
from svc.domain.traces.rollup import MODEL_CALLS

#: The beginning of what was asked and answered.
PREVIEWS: Final = ("input_preview", "output_preview")

TRACE_COLUMNS: Final = (
    "trace_id",
    "name",
    "started_at",
    "ended_at",
    "session_id",
    "user_id",
    "call_site_id",
    "span_count",
    "error_count",
    "status",
    *TOKEN_BUCKETS,
    "total_tokens",
    "input_cost",
    "output_cost",
    "total_cost",
    "unpriced_spans",
    *PREVIEWS,
)

SPAN_COLUMNS: Final = (
    "trace_id",
    "span_id",
    *HEAD_COLUMNS,
    "created_at",
    "total_cost",
    "cost_source",
    *PREVIEWS,
)
#: Shown beside those of the contract, where there is something to show.
SPAN_EXTRAS: Final = ("error_message", *TOKEN_BUCKETS, "price_book", "usage_repeats")
#: What a span is read with to be shown; its frame says where its payload is.
STORED_SPAN: Final = (*SPAN_COLUMNS, *SPAN_EXTRAS, "frame")

#: Columns that hold what somebody said, and how much of it at most.
_SAID: Final = {
    **dict.fromkeys(PREVIEWS, PREVIEW_CHARS),
    "error_message": MESSAGE_CHARS,
}

#: Whether a trace is settled: nothing of it changed since it was rolled up, and it was quiet for long enough.
SETTLED: Final = "next_at is null and due_at <= now()"
#: The same as a column, for `trace_row`.
IS_SETTLED: Final = f"({SETTLED}) as is_settled"

SESSION_COLUMNS: Final = ("id", "user_id", "started_at", "last_activity_at")


class _Printers(dict[type, Callable[[Any], Any] | None]):
    """How values of a type print, found out once a type: a page has a thousand values of eight types.

    None is as it is. Asking each value what it is took half of the 0.9 ms of fifty spans (measured November
    2026).
    """

    def __missing__(self, kind: type) -> Callable[[Any], Any] | None:
        printers: dict[type, Callable[[Any], Any]] = {
            Decimal: float,
            datetime: timestamp,
            bytes: bytes.hex,
            UUID: str,
        }
        self[kind] = next((printer for parent, printer in printers.items() if issubclass(kind, parent)), None)
        return self[kind]


_PRINTERS: Final = _Printers()


def shown(row: Any, columns: Iterable[str]) -> dict[str, Any]:
    """These columns of a row, ready for JSON; in what somebody said secrets are hidden."""
    fields = {}
    for column in columns:
        value = row[column]
        printer = _PRINTERS[type(value)]
        if printer is not None:
            value = printer(value)
        elif value and column in _SAID:
            value = masked_head(value, _SAID[column])
        fields[column] = value
    return fields


def plain(value: Any) -> Any:
    """One value, ready for JSON."""
    printer = _PRINTERS[type(value)]
    return value if printer is None else printer(value)


def latency_ms(started_at: datetime, ended_at: datetime | None) -> float | None:
    """How long something took, in milliseconds; null while it has no end."""
    return None if ended_at is None else (ended_at - started_at).total_seconds() * 1000.0


def printed(row: Any, column: str) -> Any:
    """One column, ready for JSON; secrets in what somebody said are hidden (`detect.secrets.masking`)."""
    value = row[column]
    return masked_head(value, _SAID[column]) if value and column in _SAID else plain(value)


def trace_row(row: Any, *, payload_available: bool) -> dict[str, Any]:
    """A trace. The row has `is_settled` as well."""
    return {
        **without_aged_out(shown(row, TRACE_COLUMNS), available=payload_available),
        "latency_ms": latency_ms(row["started_at"], row["ended_at"]),
        "is_settled": row["is_settled"],
        "payload_available": payload_available,
    }


def without_aged_out(fields: dict[str, Any], *, available: bool) -> dict[str, Any]:
    """The fields of a row, without previews where the payload that they are taken from is gone."""
    return fields if available else fields | dict.fromkeys(PREVIEWS)


def call_flag(row: Any) -> dict[str, bool]:
    """`counts_as_call` of a span that calls a model: of those that tell one call, whether this is the one."""
    return {"counts_as_call": row["usage_repeats"] is None} if row["kind"] in MODEL_CALLS else {}


def span_row(row: Any) -> dict[str, Any]:
    """A span. The row has `payload_available` as well.

    Usage that repeats another span's is not shown as this span's own, nor is its cost, so that the spans of a
    trace add up to the trace; `provided_usage` in the payload holds what was reported (contract §3).
    """
    fields = without_aged_out(shown(row, SPAN_COLUMNS), available=row["payload_available"])
    extras = {name: value for name, value in shown(row, SPAN_EXTRAS).items() if value is not None}
    if row["usage_repeats"] is not None:
        fields["total_cost"] = None
        extras = {name: value for name, value in extras.items() if name not in TOKEN_BUCKETS}
    counts = [extras[bucket] for bucket in TOKEN_BUCKETS if bucket in extras]
    return {
        **fields,
        **extras,
        **call_flag(row),
        "latency_ms": latency_ms(row["started_at"], row["ended_at"]),
        "total_tokens": sum(counts) if counts else None,
        "payload_available": row["payload_available"],
    }


def session_row(row: Any) -> dict[str, Any]:
    """A session's identity."""
    return shown(row, SESSION_COLUMNS)
