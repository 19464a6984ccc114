"""The documents of one trace's page: its columns, a further page of its conversation, what was found.

Fetched by the page's modules; each is bounded in size and time by the store.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import msgspec

from protocol.refusals import Refusal
from protocol.rest.query import instant
from svc.store.reads.one_trace.skeleton import MOST_PREVIEWS, SkeletonReads, TraceRange
from svc.store.reads.one_trace.trace_payloads import TracePayloads
from svc.web.shell.page import Html, PageRoute, Sent, Visit
from svc.web.traces.one_trace import TRACE, explained, opened, talk

#: Letters of a text that is looked for.
MOST_Q: Final = 200
_SPAN_IDS: Final = re.compile(r"(?:[0-9a-f]{16})(?:,[0-9a-f]{16})*", re.ASCII)


async def skeleton(visit: Visit) -> Sent:
    """The columns of the spans."""
    opened_trace = await opened(visit)
    low, high = (visit.query.get(name) for name in ("from", "to"))
    within = TraceRange(instant(low, "from") if low else None, instant(high, "to") if high else None)
    etag = opened_trace.head.version + (quote(f"-{low or ''}-{high or ''}") if within else "")
    if visit.has(etag):
        return Sent(b"", etag=etag)
    reads = SkeletonReads(visit.means.history)
    body = await reads.document(visit.project.id, opened_trace.trace_id, opened_trace.head, within)
    return Sent(body, etag=etag)


async def conversation(visit: Visit) -> Html:
    """A further page of the conversation."""
    opened_trace = await opened(visit)
    context = {
        "talk": await talk(visit, opened_trace),
        "found": opened_trace,
        "trace": opened_trace.fields,
        "here": opened_trace.link,
    }
    return Html("traces/trace_talk", context, part=True)


async def previews(visit: Visit) -> Sent:
    """What some spans were asked and answered, in short."""
    id_list = visit.query.get("ids", "")
    if not _SPAN_IDS.fullmatch(id_list):
        return Sent(b"{}")
    opened_trace = await opened(visit)
    ids = [bytes.fromhex(id_hex) for id_hex in id_list.split(",")[:MOST_PREVIEWS]]
    texts = await SkeletonReads(visit.means.history).previews(
        visit.project.id, opened_trace.trace_id, opened_trace.head, ids
    )
    return Sent(msgspec.json.encode(texts))


async def find(visit: Visit) -> Sent:
    """The spans that hold a text."""
    opened_trace, q = await opened(visit), visit.query.get("q", "").strip()[:MOST_Q]
    if not q:
        return Sent(b'{"ids":[],"more":false,"unread":0}')
    payloads = TracePayloads(visit.means.history)
    matches = await payloads.find(visit.project.id, opened_trace.trace_id, opened_trace.head, q)
    ids = [span_id.hex() for span_id in matches.span_ids]
    return Sent(msgspec.json.encode({"ids": ids, "more": matches.more, "unread": matches.unread}))


async def explain(visit: Visit) -> Html | Refusal:
    """What one number of the head was made of."""
    context = await explained(visit, await opened(visit), visit.query.get("number", ""))
    return context if isinstance(context, Refusal) else Html("traces/trace_explain", context, part=True)


PAGES: Final = (
    PageRoute("GET", TRACE + "/skeleton", "ORG_VIEW", skeleton),
    PageRoute("GET", TRACE + "/conversation", "ORG_VIEW", conversation),
    PageRoute("GET", TRACE + "/previews", "ORG_VIEW", previews),
    PageRoute("GET", TRACE + "/find", "ORG_VIEW", find),
    PageRoute("GET", TRACE + "/explain", "ORG_VIEW", explain),
)
