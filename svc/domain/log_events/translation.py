"""A logs body as the batch of spans that it becomes.

Owns `translated`, and `counted` for metrics, of which nothing is kept. The intake calls them for a body; from
there on what comes out is an ordinary batch of traces: spool, decoding, dead letters and their replay know
nothing of logs. Pure. Raises `Unreadable`, `OverLimit` and `TooLarge`.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any, Final

import attrs

from protocol.otlp.admission import Form
from protocol.otlp.attributes import value_of
from protocol.otlp.event_spans import SpanRequest
from protocol.otlp.limits import Limits
from protocol.otlp.log_records import Record, count_points, walk_records
from protocol.otlp.screen import Screening, screen
from svc.domain.log_events.event import LogEvent
from svc.domain.log_events.table import event_name, span_of

LOG_RECORDS: Final = "log records"
DATA_POINTS: Final = "data points"
UNREADABLE: Final = "cannot be read"
NO_METRICS: Final = "metrics are not kept"

_MAX_NS: Final = 2**63 - 1


def translated(body: bytes, form: Form, limits: Limits) -> tuple[bytes, Screening]:
    """The spans of the body's events as a trace request, and what was dropped and refused."""
    request = SpanRequest()
    dropped: Counter[str] = Counter()
    for item in walk_records(body, form, limits):
        outcome = UNREADABLE if item.record is None else span_of(_event(item))
        if isinstance(outcome, str):
            dropped[outcome] += 1
        else:
            request.add(outcome, item)
    # The limits were held record by record, and a quota is the only one left to ask.
    screening = attrs.evolve(
        screen(request.message, limits), dropped=tuple(dropped.most_common()), items=LOG_RECORDS
    )
    return request.serialised(), screening


def counted(body: bytes, form: Form, limits: Limits) -> tuple[bytes, Screening]:
    """A metrics body: nothing of it is kept."""
    points = count_points(body, form, limits)
    return b"", Screening(0, 0, dropped=((NO_METRICS, points),) if points else (), items=DATA_POINTS)


def _event(item: Record) -> LogEvent:
    record: Any = item.record
    attributes = {pair.key: value_of(pair.value) for pair in record.attributes}
    name = attributes.get("event.name")
    candidates = (record.event_name, name if type(name) is str else "", record.body.string_value)
    time_ns = record.time_unix_nano or _moment_ns(attributes.get("event.timestamp"))
    return LogEvent(
        event_name(candidates, item.scope.name),
        min(time_ns or record.observed_time_unix_nano, _MAX_NS),
        attributes,
        record.trace_id,
        record.span_id,
        value_of(record.body),
    )


def _moment_ns(value: Any) -> int:
    """A moment in ISO 8601; 0 for anything else."""
    if type(value) is not str or len(value) > 40:
        return 0
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        return 0
    return max(0, int(moment.timestamp() * 1_000_000) * 1000)
