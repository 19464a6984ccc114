"""Firings of classifiers, one row each: the dataset `classifier_events`.

Written by classifiers; read by the query store. How many subjects a classifier looked at is noted with
`svc.store.aggregates.rollups.note_evals`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from protocol.detection import Firing
from svc.store.postgres.database import Connection

FIRING_COLUMNS: Final = (
    "project_id",
    "classifier_id",
    "severity",
    "confidence",
    "subject_kind",
    "subject_session_id",
    "subject_trace_id",
    "subject_span_id",
    "call_site_id",
    "summary",
    "created_at",
)


async def write_firings(
    connection: Connection, project_id: int, firings: Iterable[Firing], now: datetime
) -> None:
    """Write firings in their order, in the transaction of what they come of; `now` is when those were that do
    not say it.
    """
    records = [
        (
            project_id,
            firing.classifier_id,
            firing.severity,
            firing.confidence,
            firing.subject_kind,
            firing.session_id,
            firing.trace_id,
            firing.span_id,
            firing.call_site_id,
            firing.summary,
            firing.at or now,
        )
        for firing in firings
    ]
    await connection.copy_records_to_table("classifier_event", columns=FIRING_COLUMNS, records=records)
