"""The terms of retention that an install has by its settings; projects may have others.

Apart from the wiring of who removes what, so that a command needs no arrays to know a term.
"""

from __future__ import annotations

from svc.config.table import Settings
from svc.domain.retention import Terms


def default_terms(settings: Settings) -> Terms:
    """The install's terms of retention."""
    return Terms(settings.trace_ttl_days, settings.detection_ttl_days)
