"""The bodies of the query API (contract §4): read from JSON, with unknown fields refused.

Shapes and their plain checks only. What a dataset or a field means is decided behind the front.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar
from uuid import UUID

import msgspec

from protocol.refusals import BAD_REQUEST, INVALID_RANGE, Q_TOO_LONG, Refused
from protocol.validation import unread_text, validation_text

FilterValue = str | int | float | bool | None

SEARCH_LIMIT_DEFAULT: Final = 100
SEARCH_LIMIT_MAX: Final = 1000
#: Characters of a searched text. One of 100,000 over 20,000 spans ran into 30 s (measured 2026-11).
Q_MAX: Final = 1000
TOP_N_DEFAULT: Final = 20
TOP_N_MAX: Final = 100
#: Series of a timeseries by the values of a field.
SERIES_DEFAULT: Final = 5
SERIES_MAX: Final = 20


class Range(msgspec.Struct, forbid_unknown_fields=True, rename={"from_": "from"}):
    """A half-open range `[from, to)` of instants as texts; either bound may be missing."""

    from_: str | None = None
    to: str | None = None


class CountBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/query/count`."""

    dataset: str
    range: Range | None = None
    filters: dict[str, FilterValue] | None = None
    by: str | None = None
    measure: str | None = None


class TimeseriesBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/query/timeseries`."""

    dataset: str
    interval: str
    range: Range
    filters: dict[str, FilterValue] | None = None
    by: str | None = None
    measure: str | None = None
    group_by: str | None = None
    top_n: int | None = None


class FacetsBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/query/facets`."""

    dataset: str
    field: str
    range: Range | None = None
    filters: dict[str, FilterValue] | None = None
    top_n: int | None = None
    by: str | None = None
    measure: str | None = None
    sort: Literal["descending", "ascending"] | None = None


class SearchBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/query/search`."""

    dataset: str
    q: str | None = None
    mode: str | None = None
    range: Range | None = None
    filters: dict[str, FilterValue] | None = None
    limit: int | None = None
    cursor: str | None = None
    by: str | None = None


class PopulationBody(msgspec.Struct, forbid_unknown_fields=True):
    """Traces by when they began, their status, and the values of one span of theirs."""

    range: Range | None = None
    filters: dict[str, FilterValue] | None = None
    status: Literal["ok", "error"] | None = None
    failed_spans: bool | None = None


class CompareBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/query/compare`."""

    baseline: PopulationBody
    comparison: PopulationBody


Body = TypeVar("Body", bound=msgspec.Struct)


def read_body(body: bytes, type_: type[Body]) -> Body:
    """The body as its class. Raises `Refused` with a text that names the offender."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        text = validation_text(error, type_)
        raise Refused(BAD_REQUEST.saying(f"the body cannot be read: {text}"[:500])) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = unread_text(error, body)
        raise Refused(BAD_REQUEST.saying(f"the body cannot be read: {text}"[:500])) from None


def page_size(wanted: int | None, default: int, most: int) -> int:
    """A page size: below 1 becomes the default, above the most is clamped (contract §5)."""
    return default if wanted is None or wanted < 1 else min(wanted, most)


def searched(q: str | None) -> str | None:
    """The text to search for. Raises `Refused` for a longer one than is taken."""
    if q is not None and len(q) > Q_MAX:
        raise Refused(Q_TOO_LONG.saying(Q_TOO_LONG.message.format(length=len(q), most=f"{Q_MAX:,}")))
    return q


#: ISO 8601 as RFC 3339 profiles it, or a bare date. Python alone would also take week dates and the like.
_INSTANT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))?\s*([Zz]|[+-]\d\d:?\d\d)?)?", re.ASCII
)


def instant(text: str, argument: str) -> datetime:
    """An ISO 8601 instant as aware UTC; without an offset it is UTC already. Raises `Refused`."""
    match = _INSTANT.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        day, clock, fraction, offset = match.groups()
        offset = "+00:00" if offset in (None, "Z", "z") else offset
        micros = (fraction or "0")[:6].ljust(6, "0")
        return (
            datetime.fromisoformat(f"{day}T{clock or '00:00'}")
            .replace(microsecond=int(micros))
            .replace(tzinfo=datetime.strptime(offset.replace(":", ""), "%z").tzinfo)
            .astimezone(UTC)
        )
    except (ValueError, OverflowError):
        raise Refused(
            INVALID_RANGE.saying(
                f"'{argument}' is not an ISO 8601 instant such as 2026-11-21T09:30:00Z: {text[:60]!r}"
            )
        ) from None


def bounds(range_: Range | None) -> tuple[datetime | None, datetime | None]:
    """The two bounds of a range. Raises `Refused` when one cannot be read."""
    if range_ is None:
        return None, None
    low = None if range_.from_ is None else instant(range_.from_, "range.from")
    high = None if range_.to is None else instant(range_.to, "range.to")
    return low, high


def timestamp(moment: datetime) -> str:
    """An instant as we print it: ISO 8601, UTC, microseconds, `Z` (contract §1)."""
    # The database's own are in UTC already, and a page prints a thousand.
    moment = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return moment.isoformat("T", "microseconds")[:-6] + "Z"


def timestamp_or_none(moment: datetime | None) -> str | None:
    """The same, of a moment that may be missing."""
    return None if moment is None else timestamp(moment)


def jsonable(value: Any) -> Any:
    """What msgspec cannot print our way: instants and ids. Used as its `enc_hook` and for row values."""
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, UUID) else value
