"""One span of a trace: the panel that shows what it said and was told, and each part of it in full.

A panel is a fragment, and stands in the page where there are no modules. Texts beyond what a panel shows are
fetched when somebody opens them, pictures and sounds when they are in sight or played; what is longer than a
page can hold is downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import trio

from protocol.refusals import NO_PAYLOAD, NOT_FOUND, PAYLOAD_HOLDS_TOO_MUCH, Refusal
from svc.domain.spans.span import TOKEN_BUCKETS
from svc.store.feedback.reads import FeedbackRow
from svc.store.reads.one_trace.trace_marks import TraceMarkReads
from svc.store.reads.payloads import said_in
from svc.store.reads.traces.spans import SpanReads
from svc.web.feedback.feedback_view import of_span, rows_of
from svc.web.messages.message_media import Media
from svc.web.messages.message_parts import UNSAID, Room, media_at, messages, part_at, pretty
from svc.web.shell.aged_out import aged_out
from svc.web.shell.page import BYTES, Html, PageRoute, Sent, Visit
from svc.web.shell.render import packers
from svc.web.traces.one_trace import TRACE, OpenedTrace, opened

Found = TypeVar("Found")

SPAN: Final = TRACE + "/spans/{spanId}"

#: Payload of one panel, and of one part in full.
PANEL_BYTES: Final = 8 * 1024 * 1024
PART_BYTES: Final = 64 * 1024 * 1024
#: A part in full that a page shows; more is downloaded.
SHOWN_BYTES: Final = 2 * 1024 * 1024
#: Attributes, events and links that a panel lists.
MOST_LISTED: Final = 300

_SPAN_ID: Final = re.compile(r"[0-9a-fA-F]{16}", re.ASCII)
_AT: Final = re.compile(r"[a-z_]{4,16}(?:\.\d{1,6}){0,2}", re.ASCII)
NO_SPAN: Final = NOT_FOUND.saying("there is no such span in this trace")


async def panel(visit: Visit) -> Html | Refusal:
    """The panel of a span."""
    opened_trace = await opened(visit)
    context = await panel_context(visit, opened_trace, visit.call.path["spanId"])
    if isinstance(context, Refusal):
        return context
    return Html(
        "traces/trace_panel", {"panel": context, "found": opened_trace, "here": opened_trace.link}, part=True
    )


async def panel_context(
    visit: Visit,
    opened_trace: OpenedTrace,
    span_id: str,
    said: Sequence[FeedbackRow] | None = None,
    *,
    reviewed: bool = False,
) -> dict[str, Any] | Refusal:
    """What a panel shows. `said`: the trace's feedback, where it was read already; `reviewed`: the span is an
    entry of the set that is being reviewed.
    """
    if not _SPAN_ID.fullmatch(span_id):
        return NO_SPAN
    reads = SpanReads(visit.means.history)
    span = await reads.one(
        visit.project.id, opened_trace.trace_id, bytes.fromhex(span_id), room_bytes=2 * PANEL_BYTES
    )
    if span is None:
        return NO_SPAN
    panel_fields = await trio.to_thread.run_sync(_panel_fields, span, limiter=packers)
    marks = await TraceMarkReads(visit.means.history).of(
        visit.project.id, opened_trace.trace_id, opened_trace.head
    )
    return {
        **panel_fields,
        "aged_out": await aged_out(visit, [span["payload_available"]]),
        "feedback": of_span(
            visit,
            opened_trace.trace_id,
            bytes.fromhex(span_id),
            await rows_of(visit, opened_trace.trace_id) if said is None else said,
            keyed=reviewed,
            blind=reviewed,
        ),
        "add_to_set": f"{visit.base}/sets/add",
        "marks": [mark for mark in marks if span_id.lower() in mark.told_of],
    }


def _panel_fields(span: dict[str, Any]) -> dict[str, Any]:
    span = {**UNSAID, **span}
    room = Room()
    tool = span.get("tool") or {}
    if tool:
        input_messages = messages(tool.get("arguments", span.get("input")), "input", room)
        output_messages = messages(tool.get("result", span.get("output")), "output", room)
    else:
        input_messages, output_messages = (
            messages(span.get(side), side, room) for side in ("input", "output")
        )
    usage = [(name.removesuffix("_tokens").replace("_", " "), span.get(name)) for name in TOKEN_BUCKETS]
    return {
        "span": span,
        "asked": input_messages,
        "answered": output_messages,
        "attributes": _pairs(span.get("attributes"), room),
        "resource": _pairs((span.get("resource") or {}).get("attributes"), room),
        "provided": _pairs(span.get("provided_usage"), room),
        "usage": [(name, count) for name, count in usage if count is not None],
        "events": [_event(event, room) for event in (span.get("events") or [])[:MOST_LISTED]],
        "links": (span.get("links") or [])[:MOST_LISTED],
        "counts": {name: len(span.get(name) or ()) for name in ("attributes", "events", "links")},
        "cut": span.get("payload_truncated"),
    }


def _pairs(fields: Any, room: Room) -> list[tuple[str, str, bool]]:
    pairs = sorted((fields or {}).items())[:MOST_LISTED]
    return [(key[:300], *room.shown(pretty(value))) for key, value in pairs]


def _event(event: dict[str, Any], room: Room) -> dict[str, Any]:
    return {"name": event["name"], "time": event["time"], "attributes": _pairs(event["attributes"], room)}


async def text(visit: Visit) -> Html | Sent | Refusal:
    """One part of a span in full, as a fragment or as a download."""
    opened_trace = await opened(visit)
    part_text = await _within(visit, opened_trace, _text)
    if isinstance(part_text, Refusal):
        return part_text
    body = part_text.encode("utf-8", "replace")
    if visit.query.get("download"):
        return Sent(body, file_name=f"{_part_name(visit)}.txt")
    if len(body) > SHOWN_BYTES:
        return Html(
            "traces/trace_text",
            {"text": part_text[:SHOWN_BYTES], "cut": len(body), "found": opened_trace},
            part=True,
        )
    return Html("traces/trace_text", {"text": part_text, "cut": None, "found": opened_trace}, part=True)


async def file(visit: Visit) -> Sent | Refusal:
    """The file that a part holds: a picture or a sound as what it is, anything else as a download."""
    file = await _within(visit, await opened(visit), _file)
    if isinstance(file, Refusal):
        return file
    media, content = file
    if visit.query.get("download") or media.shown == "file":
        return Sent(content, BYTES, file_name=f"{_part_name(visit)}.{media.ending}")
    return Sent(content, media.mime_type)


async def _within(
    visit: Visit, opened_trace: OpenedTrace, work: Callable[[bytes, str], Found]
) -> Found | Refusal:
    """Find something in the payload of a span, beside the loop: it may be long."""
    span_id, part_path = visit.call.path["spanId"], visit.query.get("at", "")
    if not _SPAN_ID.fullmatch(span_id) or not _AT.fullmatch(part_path):
        return NO_SPAN
    reads = SpanReads(visit.means.history)
    envelope = await reads.envelope(
        visit.project.id, opened_trace.trace_id, bytes.fromhex(span_id), PART_BYTES
    )
    if not isinstance(envelope, bytes):
        return NO_PAYLOAD if envelope is None else PAYLOAD_HOLDS_TOO_MUCH
    try:
        return await trio.to_thread.run_sync(work, envelope, part_path, limiter=packers)
    except LookupError:
        return NO_SPAN.saying("this span has no such part")


def _part_name(visit: Visit) -> str:
    return f"{visit.call.path['spanId']}-{visit.query['at']}"


def _text(envelope: bytes, part_path: str) -> str:
    return pretty(part_at(said_in(envelope), part_path))


def _file(envelope: bytes, part_path: str) -> tuple[Media, bytes]:
    media = media_at(said_in(envelope), part_path)
    return media, media.content()


PAGES: Final = (
    PageRoute("GET", SPAN, "ORG_VIEW", panel),
    PageRoute("GET", SPAN + "/text", "ORG_VIEW", text),
    PageRoute("GET", SPAN + "/file", "ORG_VIEW", file),
)
