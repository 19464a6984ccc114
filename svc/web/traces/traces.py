"""The list of traces: filter bar, range, histogram, rows, facets, and a rail for the one that is looked at.

The address is the state: `q` is the bar with its chips as it is typed, `range` or `from` and `to`, `cursor`
the page behind the first, `trace` what the rail shows. Rows come first; facets are a fragment, because they
cost more.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import trio

from protocol.refusals import NOT_FOUND, Refusal
from protocol.storage import Slow
from svc.domain.attributes.conventions import CONVENTION_FIELDS, PREFIX
from svc.domain.queries.datasets import SPANS
from svc.domain.spans.messages import PREVIEW_CHARS
from svc.store.accounts.saved_views import SavedViewStore
from svc.store.feedback.reads import FeedbackReads, TraceFeedback
from svc.store.reads.questions.attributes import promoted_fields
from svc.store.reads.questions.nothing_found import reasons
from svc.store.reads.traces.by_payload import resolved
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.trace_counts import TraceCounts, TraceFacets
from svc.store.reads.traces.trace_drawing import TraceHistogram
from svc.store.reads.traces.traces import TraceFilter, TraceReads
from svc.store.reads.usage.agent_paths import AgentPathReads, TraceAgents
from svc.web.shell import words
from svc.web.shell.aged_out import aged_out
from svc.web.shell.filters import FIELDS, FilterField, attribute_field
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit
from svc.web.shell.ranges import PRESETS, TimeRange, bar_width
from svc.web.shell.render import query
from svc.web.traces.trace_call import as_call
from svc.web.traces.trace_list import COLUMNS, Asking, chosen, drawn

#: Rows of one page.
ROWS: Final = 50
#: How long rows, a drawing and facets may take before the page says that they take too long.
ROWS_TIMEOUT_S: Final = 5.0
DRAWING_TIMEOUT_S: Final = 2.0
FACETS_TIMEOUT_S: Final = 5.0
#: How long traces are read one by one for a drawing, and how long when somebody asks for more of it: it is
#: then of the newest, and says since when.
DRAWING_BUDGET_S: Final = 0.25
FURTHER_BUDGET_S: Final = 3.0
#: A search that takes too long is tried again over this part of its range, the newest.
_NARROWED: Final = 24

#: Letters of a saved view's name.
VIEW_NAME_MAX: Final = 80

#: The facets in order: the field of the store, the name in the bar, the heading.
FACETS: Final = (
    ("call_site_id", "site", "Call site"),
    ("model", "model", "Model"),
    ("status", "status", "Status"),
    ("mark", "mark", "Mark"),
    ("feedback", "feedback", "Feedback"),
    ("session_id", "session", "Session"),
    ("user_id", "user", "User"),
)


#: Attributes whose values are listed beside them.
ATTRIBUTE_FACETS: Final = 12


@attrs.define
class _Found:
    """What was read, side by side."""

    page: dict[str, Any] = attrs.field(factory=dict)
    #: The start of the newest part of the range, when all of it took too long.
    narrowed_to: datetime | None = None
    drawing: TraceHistogram | None = None
    #: Whether the texts or spans of the range would have to be looked through for it: it comes as a fragment.
    later: bool = False
    drawn: tuple[datetime, datetime] | None = None
    #: Whether an attribute that is no field is asked for: payloads are looked into, and nothing is counted.
    by_payload: bool = False
    #: Keys of the project's own that can be filtered by.
    own_fields: list[FilterField] = attrs.field(factory=list)
    #: By trace, what it was given; read where its column is shown.
    feedback: dict[bytes, list[TraceFeedback]] = attrs.field(factory=dict)
    #: By trace, the agents in it; read where their column is shown.
    agents: dict[bytes, TraceAgents] = attrs.field(factory=dict)


async def traces(visit: Visit) -> Html | Go:
    """The page. A bar that was sent beside its chips leads to the address of both."""
    if chips := visit.query.get("kept"):
        return Go(Asking.of(visit).address(f"{chips} {visit.query.get('q', '')}".strip()))
    asking = Asking.of(visit)
    counts = TraceCounts(visit.means.history)
    page_state = _Found()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read_rows, visit, asking, page_state)
        nursery.start_soon(_read_drawing, visit, asking, counts, page_state)
        nursery.start_soon(_read_fields, visit, page_state)
    rows = page_state.page["traces"]
    context = {
        **_of_rows(visit, asking, page_state),
        "fields": [*FIELDS.values(), *page_state.own_fields],
        "all_columns": COLUMNS.values(),
        "presets": PRESETS,
        "narrowed_to": page_state.narrowed_to,
        **_of_drawing(visit, asking, page_state),
        "later": page_state.later and bool(rows),
        "part": False,
        "views": await SavedViewStore(visit.means.database).list(visit.project.id),
        "saved": visit.query.get("saved", "")[:VIEW_NAME_MAX],
        "follows": asking.range.high is None and not visit.query.get("cursor"),
        "newest": rows[0]["started_at"] if rows else "",
        "paged": bool(visit.query.get("cursor")),
        "call": as_call(asking.filters, asking.range, visit, ROWS),
        "rail": visit.query.get("trace", ""),
        "ends": None,
        "nearest": (None, None),
        "reasons": (),
        "preview_chars": PREVIEW_CHARS,
        "by_payload": page_state.by_payload,
    }
    if not rows:
        context |= await _nothing(visit, asking, counts)
    return Html("traces/traces", context)


async def _read_fields(visit: Visit, page_state: _Found) -> None:
    names = await promoted_fields(visit.means.history, visit.project.id)
    page_state.own_fields = [attribute_field(name, name.removeprefix(PREFIX)) for name in names]


async def _read_rows(visit: Visit, asking: Asking, page_state: _Found) -> None:
    reads = TraceReads(visit.means.history, SpanReads(visit.means.history))
    cursor, range_ = visit.query.get("cursor"), asking.range

    async def read(trace_filter: TraceFilter) -> dict[str, Any]:
        return await reads.page(
            visit.project.id, trace_filter, limit=ROWS, cursor=cursor, timeout_s=ROWS_TIMEOUT_S
        )

    try:
        page_state.page = await read(asking.filters.over(range_))
    except Slow:
        high = range_.high or range_.now
        low = range_.low or high - timedelta(days=90)
        page_state.narrowed_to = high - (high - low) / _NARROWED
        page_state.page = await read(asking.filters.between(page_state.narrowed_to, range_.high))
    trace_ids = [bytes.fromhex(row["trace_id"]) for row in page_state.page["traces"]]
    if "feedback" in visit.preferences.columns:
        page_state.feedback = await FeedbackReads(visit.means.database).of_traces(visit.project.id, trace_ids)
    if "agents" in visit.preferences.columns:
        page_state.agents = await AgentPathReads(visit.means.history).of_traces(visit.project.id, trace_ids)
    page_state.page["aged_out"] = await aged_out(
        visit, [row["payload_available"] for row in page_state.page["traces"]]
    )


async def _read_drawing(
    visit: Visit, asking: Asking, counts: TraceCounts, page_state: _Found, *, walks_s: float | None = None
) -> None:
    low, high = asking.range.low, asking.range.high or asking.range.now
    if low is None:
        ends = await counts.ends(visit.project.id)
        low, high = (high, high) if ends is None else (ends[0], max(ends[1], ends[0]))
    page_state.drawn = (low, high)
    asked = await resolved(visit.means.history, visit.project.id, asking.filters.over(asking.range))
    if asked.by_payload:
        page_state.by_payload = True
        return
    arguments = visit.project.id, asked, bar_width(low, high)
    try:
        if walks_s is not None:
            page_state.drawing = await counts.histogram(
                *arguments, timeout_s=FACETS_TIMEOUT_S, budget_s=walks_s
            )
        else:
            page_state.drawing = await counts.quick_histogram(
                *arguments, timeout_s=DRAWING_TIMEOUT_S, budget_s=DRAWING_BUDGET_S
            )
            page_state.later = page_state.drawing is None
    except Slow:
        page_state.drawing = None


async def _nothing(visit: Visit, asking: Asking, counts: TraceCounts) -> dict[str, Any]:
    """What is said of an empty list: whether there is anything at all, and what is nearest."""
    ends = await counts.ends(visit.project.id)
    filtered = asking.filters.tokens or asking.filters.text
    if ends is not None and filtered:
        fields = {bar: field for field, bar, _ in FACETS}
        values = [
            (field, token.value)
            for token in asking.filters.tokens
            if not token.excluded and (field := SPANS.field(fields.get(token.name, token.name))) is not None
        ]
        names = {field: bar for field, bar, _ in FACETS}
        notes = await reasons(visit.means.history, visit.project.id, SPANS, values, names=names)
        return {"ends": ends, "reasons": notes}
    if ends is None or asking.range.low is None:
        return {"ends": ends}
    nearest = await counts.nearest(visit.project.id, asking.range.low, asking.range.high or asking.range.now)
    return {"ends": ends, "nearest": nearest}


def _headline(visit: Visit, asking: Asking, page_state: _Found) -> str:
    """The answer to the page's question, in a sentence."""
    zone, range_, suffix = visit.preferences.zone, asking.range, ""
    range_text = range_.said(zone)
    if page_state.drawing is not None and page_state.drawing.since is not None:
        since = words.clock(page_state.drawing.since, zone, range_.now)
        to = "" if range_.high is None else words.minute(range_.high, zone, range_.now)
        range_text, suffix = (
            f"from {since} to {to}" if to else f"since {since}",
            "; earlier ones are not counted",
        )
    if page_state.by_payload and not page_state.page:
        # Only a list tells.
        return f"Traces {range_text}"
    if page_state.by_payload:
        found, more = len(page_state.page["traces"]), page_state.page["next_cursor"] is not None
        if not found:
            return f"No matching traces {range_text}{' so far' if more else ''}"
        return f"{'At least ' if more else ''}{words.counted(found, 'trace')} {range_text}"
    none = f"No {'matching ' if asking.filters.tokens or asking.filters.text else ''}traces {range_text}"
    if page_state.later:
        return f"Traces {range_text}, still counting" if page_state.page["traces"] else none
    if page_state.drawing is None:
        return f"Traces {range_text}; too many to count in time"
    count, failed = page_state.drawing.count, page_state.drawing.failed
    # A failed step of a trace whose root went well.
    within = page_state.drawing.failing - failed
    if not count:
        return none + suffix
    if failed == count:
        tail = ", failed" if count == 1 else ", all failed"
    else:
        tail = f" · {words.count(failed)} failed"
        if within > 0:
            tail += f" · {words.count(within)} with failed spans"
    return f"{words.counted(count, 'trace')} {range_text}{tail}"


def _of_drawing(visit: Visit, asking: Asking, page_state: _Found, *, further: bool = False) -> dict[str, Any]:
    """The drawing and what is said of it. One of the newest leads to more of it, once, and to the rest."""
    bars = drawn(asking, page_state.drawing, page_state.drawn)
    further_link = rest_link = None
    if bars is not None and bars.since is not None:
        further_link = (
            None if further else query(asking.part("drawing"), given=asking.range.preset, further=1)
        )
        rest_link = asking.ranged(bars.low, bars.since)
    return {
        "headline": _headline(visit, asking, page_state),
        "bars": bars,
        "further": further_link,
        "rest": rest_link,
    }


def _of_rows(visit: Visit, asking: Asking, page_state: _Found) -> dict[str, Any]:
    page = page_state.page
    cursor = page["next_cursor"]
    return {
        "columns": [COLUMNS[name] for name in chosen(visit.preferences.columns)],
        "asking": asking,
        "rows": page["traces"],
        "agents": {trace_id.hex(): of_trace for trace_id, of_trace in page_state.agents.items()},
        "given": {trace_id.hex(): of_trace for trace_id, of_trace in page_state.feedback.items()},
        "notes": page.get("notes", ()),
        "aged_out": page["aged_out"],
        "more": None if cursor is None else asking.address(kept=True, cursor=cursor),
        "more_part": None if cursor is None else query(asking.part("rows"), cursor=cursor),
    }


async def rows(visit: Visit) -> Html:
    """The rows behind a cursor, for a page that stays."""
    asking, page_state = Asking.of(visit), _Found()
    await _read_rows(visit, asking, page_state)
    return Html("traces/trace_rows", {**_of_rows(visit, asking, page_state), "narrowed_to": None}, part=True)


async def drawing(visit: Visit) -> Html:
    """How many there are and when, where every text has to be looked through for it."""
    asking, page_state, further = Asking.of(visit), _Found(), bool(visit.query.get("further"))
    walks_s = FURTHER_BUDGET_S if further else DRAWING_BUDGET_S
    await _read_drawing(visit, asking, TraceCounts(visit.means.history), page_state, walks_s=walks_s)
    asking = attrs.evolve(asking, range=_as_given(visit, asking))
    context = {"asking": asking, "part": True, **_of_drawing(visit, asking, page_state, further=further)}
    return Html("traces/trace_drawing", context, part=True)


async def facets(visit: Visit) -> Html:
    """The most frequent values of the traces of the filter."""
    asking = Asking.of(visit)
    asked = await resolved(visit.means.history, visit.project.id, asking.filters.over(asking.range))
    facet_counts = None
    if not asked.by_payload:
        with suppress(Slow):
            facet_counts = await TraceCounts(visit.means.history).facets(
                visit.project.id, asked, timeout_s=FACETS_TIMEOUT_S
            )
    asking = attrs.evolve(asking, range=_as_given(visit, asking))
    shown = [*FACETS, *([] if facet_counts is None else _attribute_facets(facet_counts))]
    context = {
        "asking": asking,
        "found": facet_counts,
        "facets": shown,
        "by_payload": asked.by_payload,
    }
    return Html("traces/trace_facets", context, part=True)


def _attribute_facets(counts: TraceFacets) -> list[tuple[str, str, str]]:
    """The attributes that tell these traces apart: conventions first, then keys of the project's own."""
    telling = [name for name, values in counts.fields.items() if len(values) > 1]
    conventions = [name for name in CONVENTION_FIELDS if name in telling]
    own = sorted(name for name in telling if name.startswith(PREFIX))
    headings = {name: name.replace("_", " ").capitalize() for name in conventions}
    headings |= {name: name.removeprefix(PREFIX) for name in own}
    return [(name, name, headings[name]) for name in (*conventions, *own)[:ATTRIBUTE_FACETS]]


def _as_given(visit: Visit, asking: Asking) -> TimeRange:
    """The range that links of a fragment lead to: relative where the page's own is."""
    preset = visit.query.get("given")
    return TimeRange.of({"range": preset}, asking.range.now) if preset else asking.range


async def rail(visit: Visit) -> Html | Refusal:
    """One trace beside the list."""
    try:
        trace_id = bytes.fromhex(visit.query.get("trace", ""))
    except ValueError:
        return NOT_FOUND
    reads = TraceReads(visit.means.history, SpanReads(visit.means.history))
    trace = await reads.one(visit.project.id, trace_id, payload=False)
    if trace is None:
        return NOT_FOUND.saying("there is no such trace in this project, or its term is over")
    notice = await aged_out(visit, [trace["payload_available"]])
    return Html("traces/trace_rail", {"trace": trace, "lines": _lines(trace), "aged_out": notice}, part=True)


#: Spans that the rail draws.
_RAIL_SPANS: Final = 40


@attrs.frozen
class Line:
    """One span of the rail's drawing, in parts of the whole trace."""

    span: dict[str, Any]
    start: float
    length: float


def _lines(trace: dict[str, Any]) -> list[Line]:
    spans = trace["spans"][:_RAIL_SPANS]
    if not spans:
        return []
    begin = min(words.parsed(span["started_at"]) for span in spans)
    end = max(words.parsed(span["ended_at"] or span["started_at"]) for span in spans)
    whole_s = max((end - begin).total_seconds(), 1e-6)
    return [
        Line(
            span,
            (words.parsed(span["started_at"]) - begin).total_seconds() / whole_s,
            max(0.0, (span["latency_ms"] or 0.0) / 1000 / whole_s),
        )
        for span in spans
    ]


async def slowest(visit: Visit) -> Go | Refusal:
    """To the slowest trace of a range, with the list that one came from."""
    asking = Asking.of(visit)
    low, high = asking.range.low, asking.range.high or visit.means.now()
    trace_id = await TraceCounts(visit.means.history).slowest(visit.project.id, low, high)
    if trace_id is None:
        return NOT_FOUND.saying("no trace of this range has ended")
    listed = asking.address("", kept=True).partition("?")[2]
    return Go(query(f"{visit.base}/traces/{trace_id.hex()}", in_=listed))


PAGES: Final = (
    PageRoute("GET", PROJECT + "/traces/slowest", "ORG_VIEW", slowest),
    PageRoute("GET", PROJECT + "/traces", "ORG_VIEW", traces),
    PageRoute("GET", PROJECT + "/traces/rows", "ORG_VIEW", rows),
    PageRoute("GET", PROJECT + "/traces/drawing", "ORG_VIEW", drawing),
    PageRoute("GET", PROJECT + "/traces/facets", "ORG_VIEW", facets),
    PageRoute("GET", PROJECT + "/traces/rail", "ORG_VIEW", rail),
)
