"""The list of traces, a trace with its spans, and two traces side by side."""

from __future__ import annotations

from typing import Final

from svc.web.shell.page import PageRoute
from svc.web.traces import (
    into_set,
    saved_views,
    site_graph,
    trace,
    trace_compare,
    trace_documents,
    trace_export,
    trace_span,
    traces,
)

PAGES: Final[tuple[PageRoute, ...]] = (
    *into_set.PAGES,
    *saved_views.PAGES,
    *site_graph.PAGES,
    *trace.PAGES,
    *trace_compare.PAGES,
    *trace_documents.PAGES,
    *trace_export.PAGES,
    *trace_span.PAGES,
    *traces.PAGES,
)
