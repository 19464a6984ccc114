"""Who exports what: counters over the spans of each exporter, for the ingest doctor.

Owns `Exporter`, `SeenSpans` (counters that add up) and `Observations`, which a decoder feeds. Every span is
counted; of each exporter only the first few spans of a round and then one in `ONE_IN` are looked into, so
that the hot path does not notice (measured November 2026: 1 µs where decoding takes 120). Without a clock.
Never keeps a value of an attribute, only keys.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final

import attrs

from protocol.otlp.reading import WireSpan
from protocol.text import clean
from svc.domain.attributes.conventions import CONVENTIONS, METADATA
from svc.domain.calendar import EPOCH
from svc.domain.dialects import is_read, read
from svc.domain.exporters.renamed_keys import (
    Sightings,
    merge_sightings,
    note_keys,
    sightings_json,
    sightings_of,
)
from svc.domain.spans.span import SpanRow
from svc.domain.spans.values import NAME_CHARS, text
from svc.domain.traces.rollup import MODEL_CALLS

#: The scope of the sample traces.
DEMO_SCOPE: Final = "trace-svc.demo"
#: How often what was counted is written. What an outage keeps from the store is given up: these are
#: statistics, and waiting for them would fill memory.
EXPORTERS_ROUND_S: Final = 5.0
#: Spans of an exporter that are looked into at once, and then one in so many.
FIRST: Final = 16
ONE_IN: Final = 128
#: Exporters and days that are held between two rounds; further ones are counted together, under no name.
_MOST_EXPORTERS: Final = 500
#: Traces whose session is remembered between two rounds; of further ones each span stands for itself.
_MOST_TRACES: Final = 10_000
#: Keys kept of each exporter; further ones are counted together.
_MOST_KEYS: Final = 60
#: An exporter follows one version of the conventions, or two while copies are replaced.
_MOST_SCHEMAS: Final = 4
_KEY_CHARS: Final = 100
OTHER_KEYS: Final = "…"

#: What any OpenTelemetry instrumentation may write: kept and shown, and no question to a reader of models.
_ORDINARY: Final = re.compile(
    r"(http|url|net|network|server|client|peer|db|rpc|messaging|faas|cloud|k8s|container|host|os|process|thread"
    r"|code|exception|error|otel|telemetry|service|deployment|user_agent|enduser|user|session|svc|event)\."
)
#: Keys that say a field, and those of what the application calls its own, which are offered as fields.
_FIELD_KEYS: Final = frozenset(key for convention in CONVENTIONS for key in convention.keys)
_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.|$)")


@attrs.frozen
class Exporter:
    """What names an exporter: the service, its SDK, and the library that made the spans."""

    service: str = ""
    sdk: str = ""
    sdk_version: str = ""
    scope: str = ""
    scope_version: str = ""

    def digest(self) -> bytes:
        """Sixteen bytes that stand for it."""
        return hashlib.blake2b("\0".join(attrs.astuple(self)).encode(), digest_size=16).digest()


@attrs.define(eq=False)
class SeenSpans:
    """Counters over spans; those behind `looked` are over the spans looked into alone.

    `lag_s` is the least time between the end of a span and its arrival: below zero the clock of the exporter
    runs ahead.
    """

    spans: int = 0
    looked: int = 0
    model_calls: int = 0
    with_model: int = 0
    with_usage: int = 0
    #: Model calls that ought to have said their tokens.
    without_usage: int = 0
    with_session: int = 0
    with_content: int = 0
    lag_s: float | None = None
    dialects: Counter[str] = attrs.field(factory=Counter)
    unread: Counter[str] = attrs.field(factory=Counter)
    #: Which conventions its scopes declare to follow, by their address.
    schemas: Counter[str] = attrs.field(factory=Counter)
    #: When model calls had which keys of usage, session and content.
    watched: Sightings = attrs.field(factory=dict)
    last_seen_at: datetime = EPOCH

    def merge(self, other: SeenSpans) -> None:
        """Add what another one saw."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        lags = [lag for lag in (self.lag_s, other.lag_s) if lag is not None]
        self.lag_s = min(lags, default=None)
        self.dialects.update(other.dialects)
        self.unread = _bounded(self.unread + other.unread)
        self.schemas = _largest(self.schemas + other.schemas)
        merge_sightings(self.watched, other.watched)
        self.last_seen_at = max(self.last_seen_at, other.last_seen_at)

    def as_json(self) -> dict[str, Any]:
        """Everything but the time, as it is stored."""
        sums = {name: getattr(self, name) for name in _SUMS}
        return {
            **sums,
            "lag_s": self.lag_s,
            "dialects": dict(self.dialects),
            "unread": dict(self.unread),
            "schemas": dict(self.schemas),
            "watched": sightings_json(self.watched),
        }

    @classmethod
    def of_json(cls, stored: Mapping[str, Any], last_seen_at: datetime) -> SeenSpans:
        """What `as_json` gave."""
        return cls(
            **{name: stored.get(name, 0) for name in _SUMS},
            lag_s=stored.get("lag_s"),
            dialects=Counter(stored.get("dialects", {})),
            unread=Counter(stored.get("unread", {})),
            schemas=Counter(stored.get("schemas", {})),
            watched=sightings_of(stored.get("watched", {})),
            last_seen_at=last_seen_at,
        )


_SUMS: Final = (
    "spans",
    "looked",
    "model_calls",
    "with_model",
    "with_usage",
    "without_usage",
    "with_session",
    "with_content",
)

Key = tuple[int, date, Exporter]


@attrs.define(eq=False)
class Observations:
    """What a decoder saw since the last `take`. One owner: the task that decodes."""

    _seen: dict[Key, SeenSpans] = attrs.field(factory=dict)
    _scope: Any = None
    _current: SeenSpans = attrs.field(factory=SeenSpans)
    #: Traces that any span gave a session to, and model calls that gave none themselves.
    _in_session: set[bytes] = attrs.field(factory=set)
    _without: list[tuple[SeenSpans, bytes]] = attrs.field(factory=list)

    def note(self, project_id: int, received_at: datetime, span: WireSpan, row: SpanRow) -> None:
        """Count a span. Spans of one resource and scope share its object, which is what is compared."""
        if span.scope is not self._scope:
            self._scope = span.scope
            self._current = self._totals_of(project_id, received_at, span)
        totals = self._current
        totals.spans += 1
        if row.session_id is not None and len(self._in_session) < _MOST_TRACES:
            self._in_session.add(row.trace_id)
        if totals.spans > FIRST and totals.spans % ONE_IN:
            return
        _tally(totals, received_at, span, row)
        if row.session_id is None and row.kind in MODEL_CALLS and len(self._without) < _MOST_TRACES:
            self._without.append((totals, row.trace_id))

    def take(self) -> dict[Key, SeenSpans]:
        """All of it, and start anew. A call is in a session when any span of its trace was, in this round."""
        for totals, trace_id in self._without:
            totals.with_session += trace_id in self._in_session
        self._in_session, self._without = set(), []
        by_exporter, self._seen = self._seen, {}
        self._scope = None
        return by_exporter

    def _totals_of(self, project_id: int, received_at: datetime, span: WireSpan) -> SeenSpans:
        key = (project_id, received_at.date(), exporter_of(span))
        totals = self._seen.get(key)
        if totals is None:
            if len(self._seen) >= _MOST_EXPORTERS:
                key = (project_id, received_at.date(), Exporter())
            totals = self._seen.setdefault(key, SeenSpans())
        totals.last_seen_at = received_at
        return totals


def exporter_of(span: WireSpan) -> Exporter:
    """Who made a span."""
    get = span.resource.attributes.get
    sdk = " ".join(
        word for key in ("telemetry.sdk.name", "telemetry.sdk.language") if (word := text(get(key)))
    )
    return Exporter(
        *(
            clean(word[:NAME_CHARS])
            for word in (
                text(get("service.name")) or "",
                sdk,
                text(get("telemetry.sdk.version")) or "",
                span.scope.name,
                span.scope.version,
            )
        )
    )


def _tally(totals: SeenSpans, received_at: datetime, span: WireSpan, row: SpanRow) -> None:
    totals.looked += 1
    if row.kind in MODEL_CALLS:
        totals.model_calls += 1
        totals.with_model += row.provided_model_name is not None
        totals.with_usage += row.has_usage()
        # A reranker reports no tokens, its makers count searches; neither does a call that failed.
        owes_usage = row.kind != "reranker" and row.status != "error"
        totals.without_usage += owes_usage and not row.has_usage()
        totals.with_session += row.session_id is not None
        totals.with_content += row.input_preview is not None or row.output_preview is not None
        note_keys(totals.watched, map(_folded, span.attributes), int(received_at.timestamp()))
    lag_s = (received_at - (row.ended_at or row.started_at)).total_seconds()
    totals.lag_s = lag_s if totals.lag_s is None else min(totals.lag_s, lag_s)
    totals.dialects.update(read(span.attributes).dialects())
    if span.scope.schema_url:
        totals.schemas[clean(span.scope.schema_url[:_KEY_CHARS])] += 1
        totals.schemas = _largest(totals.schemas)
    unread = {_folded(key) for key in span.attributes if _is_unread(key)}
    if unread:
        totals.unread.update(unread)
        if len(totals.unread) > 2 * _MOST_KEYS:
            totals.unread = _bounded(totals.unread)


def _is_unread(key: str) -> bool:
    if is_read(key) or key in _FIELD_KEYS or key.startswith(METADATA):
        return False
    return not _ORDINARY.match(key)


def _folded(key: str) -> str:
    """A key without its numbers."""
    return clean(_NUMBER.sub("N", key[:_KEY_CHARS]))


def _largest(schemas: Counter[str]) -> Counter[str]:
    """The most frequent, of equals the first by name, so that it does not matter who comes first."""
    if len(schemas) <= _MOST_SCHEMAS:
        return schemas
    ranked = sorted(schemas.items(), key=lambda item: (-item[1], item[0]))
    return Counter(dict(ranked[:_MOST_SCHEMAS]))


def _bounded(keys: Counter[str]) -> Counter[str]:
    """The most frequent keys; the others count together."""
    if len(keys) <= _MOST_KEYS:
        return keys
    frequent = Counter(dict(keys.most_common(_MOST_KEYS - 1)))
    frequent[OTHER_KEYS] += keys.total() - frequent.total()
    return frequent
