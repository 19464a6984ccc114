"""Answers of the query API and of health, and the failure envelope, as classes (contract §1, §4, §7).

The document of the API is made from these; the handlers answer dictionaries of the same shape, and a test
holds real answers against it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from protocol.rest.accounts import Instant


class Counted(msgspec.Struct):
    """How many rows; on `metric_rollups` the sum of their values, which may have a fraction."""

    count: int | float


class Bucket(msgspec.Struct):
    """One interval and its count."""

    bucket_start: Instant
    count: int | float


class Buckets(msgspec.Struct):
    """Every interval of the range, ascending, empty ones with 0."""

    buckets: list[Bucket]


class Facet(msgspec.Struct):
    """A value and how often it is there; null counts rows without one."""

    value: str | int | float | bool | None
    count: int | float


class Ranked(msgspec.Struct):
    """The most frequent values of a field, most frequent first."""

    field: str
    facets: list[Facet]


class FoundRow(msgspec.Struct):
    """One row of a search."""

    id: str
    created_at: Instant
    fields: dict[str, Any]


class FoundPage(msgspec.Struct):
    """A page of rows, newest first, and the cursor of the next page."""

    rows: list[FoundRow]
    next_cursor: str | None


class SpanPayload(msgspec.Struct):
    """Everything a span said; beside these what `svc.domain.payload` knows of it."""

    input: Any
    output: Any
    attributes: dict[str, Any]
    provided_usage: dict[str, Any]
    events: list[dict[str, Any]]
    links: list[dict[str, Any]]
    resource: dict[str, Any]
    scope: dict[str, Any]


class ErrorBody(msgspec.Struct):
    """Why a request failed."""

    code: str
    message: str
    details: Any = None


class Failure(msgspec.Struct):
    """The failure envelope."""

    ok: Literal[False]
    error: ErrorBody


class HealthReport(msgspec.Struct):
    """UP or DOWN, and for the whole report the same of each part."""

    status: Literal["UP", "DOWN"]
    components: dict[str, Any] = {}
