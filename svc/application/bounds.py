"""What an install takes in, keeps and has by its settings; projects may have other terms of retention.

Commands and the wiring ask. Pure: no import of what heavy parts need, so that a command starts fast.
"""

from __future__ import annotations

from protocol.otlp.limits import Limits
from svc.config.table import Settings
from svc.domain.retention.terms import Terms


def default_terms(settings: Settings) -> Terms:
    """The install's terms of retention."""
    return Terms(settings.trace_ttl_days, settings.detection_ttl_days)


def ingest_limits(settings: Settings) -> Limits:
    """What one body may hold."""
    return Limits(
        spans=settings.max_spans,
        groups=settings.max_groups,
        entries=settings.max_entries,
        attributes=settings.max_span_attributes,
        events=settings.max_span_events,
        links=settings.max_span_links,
        values=settings.max_span_values,
        depth=settings.max_depth,
    )


def installed(settings: Settings) -> frozenset[str]:
    """What detectors may need that not every install has, as far as this one has it."""
    return frozenset() if settings.encoder_url is None else frozenset({"encoder"})
