"""What the ingest doctor says of a project, over REST and on the command line. Times are ISO 8601 in UTC."""

from __future__ import annotations

import msgspec

from protocol.rest.accounts import Instant


class Share(msgspec.Struct):
    """How many of the spans looked into have something: a dialect, or an attribute nobody reads."""

    name: str
    share: float


class CallShares(msgspec.Struct):
    """How many of an exporter's model calls say what they ought to, from 0 to 1; null without model calls."""

    model: float | None
    usage: float | None
    session: float | None
    content: float | None


class ExporterReport(msgspec.Struct):
    """One exporter: a service, its SDK and the library that makes the spans. Names are null when not said.

    `spans` counts all of them; everything else is of those that were looked into. `conventions` are the
    versions of the semantic conventions that its spans declare by their schema. `least_lag_s` is the least
    time between the end of a span and its arrival. `advice` says what to change, the most telling first.
    """

    service: str | None
    sdk: str | None
    sdk_version: str | None
    scope: str | None
    scope_version: str | None
    last_seen_at: Instant
    spans: int
    looked_into: int
    dialects: list[Share]
    conventions: list[Share]
    model_calls: int
    shares: CallShares
    unread_attributes: list[Share]
    least_lag_s: float | None
    advice: list[str]


class RefusedSpans(msgspec.Struct):
    """Spans that were not stored, and why."""

    reason: str
    spans: int
    last_seen_at: Instant


class IngestReport(msgspec.Struct):
    """Exporters, those with most advice first; spans refused at the doors; dead letters that wait."""

    since: str
    exporters: list[ExporterReport]
    rejected: list[RefusedSpans]
    dead_lettered: list[RefusedSpans]
