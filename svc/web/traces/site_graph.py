"""The agent graph of a call site: who called whom in its last thousand traces.

The address is the state: `site` is the call site. Steps stand in the order in which they first appear, so the
drawing stays as it is while traces come in. Reads; writes nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import trio

from protocol.storage import Slow
from svc.domain.traces.agent_graph import agent_graph
from svc.store.reads.one_trace.trace_graph import TraceGraphReads
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.render import packers
from svc.web.traces.graph_view import graph_view

TIMEOUT_S: Final = 8.0
#: How far back traces are looked for; where that takes too long, only this far.
BACK: Final = timedelta(days=30)
BACK_NARROWED: Final = timedelta(days=1)


async def site_graph(visit: Visit) -> Html:
    """The page."""
    site, now, back = visit.query.get("site", ""), visit.means.now(), BACK
    reads = TraceGraphReads(visit.means.history)
    try:
        spans = await reads.of_site(visit.project.id, site, now - back, TIMEOUT_S)
    except Slow:
        back = BACK_NARROWED
        spans = await reads.of_site(visit.project.id, site, now - back)
    # Twenty thousand spans take a while to lay out.
    graph = await trio.to_thread.run_sync(lambda: agent_graph(*spans.traces), limiter=packers)
    context = {
        "site": site,
        "trace_count": len(spans.traces),
        "back": back,
        "drawing": graph_view(graph, truncated=spans.cut),
    }
    return Html("traces/site_graph", context)


PAGES: Final = (PageRoute("GET", PROJECT + "/graph", "ORG_VIEW", site_graph),)
