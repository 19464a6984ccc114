"""Who called whom, in one trace or in many: agents and tools as boxes, calls as lines, laid out in columns.

Pure. Spans of one name and kind are one box; model calls and other inner spans count towards the agent or
tool around them. Time is a box's own: at every moment it belongs to the deepest boxes at work, in equal
parts where they work beside each other, so that shares add up to the whole. The same spans give the same
drawing, in whatever order they come. Called by the pages of a trace and of a call site's graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final

import attrs

#: Kinds that have a box; spans of other kinds belong to the nearest of these above them.
BOXED: Final = frozenset({"agent", "tool", "mcp", "retrieval", "reranker", "guardrail"})
#: Boxes that are drawn; those with the least time are one box together.
MOST_BOXES: Final = 24
#: The box of what no agent and no tool did: the start of the trace.
START: Final = ("start", "")

BOX_WIDTH: Final = 208
BOX_HEIGHT: Final = 64
_GAP_X: Final = 84
_GAP_Y: Final = 24

BoxKey = tuple[str, str]


@attrs.frozen
class GraphSpan:
    """What the graph needs of a span; times are microseconds since the trace began."""

    span_id: bytes
    parent_span_id: bytes | None
    kind: str
    name: str
    start: int
    end: int | None
    failed: bool
    tokens: int
    cost: Decimal | None


@attrs.define
class Box:
    """An agent or a tool, with its own time, tokens and cost; `column` is how deep it is first called."""

    key: BoxKey
    calls: int = 0
    failed: int = 0
    model_calls: int = 0
    time: float = 0.0
    tokens: int = 0
    cost: Decimal | None = None
    column: int = 0
    x: int = 0
    y: int = 0
    #: The first call, which a page leads to.
    span_id: bytes | None = None

    @property
    def kind(self) -> str:
        """The kind of its spans."""
        return self.key[0]

    @property
    def name(self) -> str:
        """The name of its spans."""
        return self.key[1]


@attrs.define
class CallLine:
    """Calls of one box by another. `handoff`: control passed on; `parallel`: calls beside other calls."""

    caller: BoxKey
    callee: BoxKey
    calls: int = 0
    failed: int = 0
    handoff: bool = False
    parallel: bool = False


@attrs.frozen
class AgentGraph:
    """The drawing: boxes by column and place, lines between them, and how large it is."""

    boxes: Sequence[Box]
    lines: Sequence[CallLine]
    width: int
    height: int
    #: Boxes that are drawn as one.
    joined: int = 0

    @property
    def time(self) -> float:
        """The time of all boxes."""
        return sum(box.time for box in self.boxes)

    def share(self, box: Box) -> float:
        """The part of the time that is a box's own."""
        return box.time / self.time if self.time else 0.0


def agent_graph(*traces: Iterable[GraphSpan]) -> AgentGraph:
    """The graph of a trace, or of several together: boxes stand in the order in which they first appear."""
    boxes: dict[BoxKey, Box] = {START: Box(START)}
    lines: dict[tuple[BoxKey, BoxKey], CallLine] = {}
    for spans in traces:
        _add_trace(spans, boxes, lines)
    return _laid_out(boxes, lines)


def _add_trace(
    spans: Iterable[GraphSpan], boxes: dict[BoxKey, Box], lines: dict[tuple[BoxKey, BoxKey], CallLine]
) -> None:
    """Count the spans of one trace."""
    ordered = sorted(spans, key=lambda span: (span.start, span.span_id))
    owners = _owners(ordered)
    keys = {span.span_id: _key(span) for span in ordered if _boxed(span)}
    # A clock that is behind may let a call begin before its caller.
    for span in ordered:
        if _boxed(span):
            boxes.setdefault(_key(span), Box(_key(span), span_id=span.span_id))
    # Of the calls of each owner so far, the last end.
    busy_until: dict[bytes | None, int] = {}
    givers = _handoffs(ordered, owners)
    for span in ordered:
        owner = owners[span.span_id]
        caller = START if owner is None else keys[owner]
        if not _boxed(span):
            _count_inner(boxes[caller], span)
            continue
        key = keys[span.span_id]
        box = boxes[key]
        box.calls += 1
        box.failed += span.failed
        _count_inner(box, span)
        origin = givers.get(span.span_id)
        caller = caller if origin is None else keys[origin]
        line = lines.setdefault((caller, key), CallLine(caller, key))
        line.calls += 1
        line.failed += span.failed
        line.handoff = line.handoff or origin is not None
        end = span.start if span.end is None else span.end
        line.parallel = line.parallel or span.start < min(end, busy_until.get(owner, span.start))
        busy_until[owner] = max(end, busy_until.get(owner, end))
    _share_time(ordered, owners, keys, boxes)


def _boxed(span: GraphSpan) -> bool:
    return span.kind in BOXED


def _key(span: GraphSpan) -> BoxKey:
    return span.kind, span.name


def _count_inner(box: Box, span: GraphSpan) -> None:
    box.model_calls += span.kind in ("llm", "reasoning")
    box.tokens += span.tokens
    if span.cost is not None:
        box.cost = (box.cost or Decimal()) + span.cost


def _owners(spans: Sequence[GraphSpan]) -> dict[bytes, bytes | None]:
    """For each span the nearest span above it that has a box; circles and lost parents end at the start."""
    by_id = {span.span_id: span for span in spans}
    owners: dict[bytes, bytes | None] = {}
    for span in spans:
        path: list[GraphSpan] = []
        visited: set[bytes] = set()
        ancestor: GraphSpan | None = span
        owner: bytes | None = None
        while ancestor is not None and ancestor.span_id not in owners and ancestor.span_id not in visited:
            path.append(ancestor)
            visited.add(ancestor.span_id)
            ancestor = by_id.get(ancestor.parent_span_id or b"")
        if ancestor is not None and ancestor.span_id in owners:
            owner = ancestor.span_id if _boxed(ancestor) else owners[ancestor.span_id]
        for step in reversed(path):
            owners[step.span_id] = owner
            if _boxed(step):
                owner = step.span_id
    return owners


def _handoffs(spans: Sequence[GraphSpan], owners: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
    """Agents that were handed the work, and the agent that handed it on.

    A handoff span stands in the giving agent; the next agent that begins is the receiving one.
    """
    receiving: dict[bytes, bytes] = {}
    giver: bytes | None = None
    for span in spans:
        if span.kind == "handoff":
            giver = owners[span.span_id]
        elif span.kind == "agent" and giver is not None:
            if span.span_id != giver:
                receiving[span.span_id] = giver
            giver = None
    return receiving


def _share_time(
    spans: Sequence[GraphSpan],
    owners: Mapping[bytes, bytes | None],
    keys: Mapping[bytes, BoxKey],
    boxes: Mapping[BoxKey, Box],
) -> None:
    """Give every moment to the deepest boxed spans at work, in equal parts."""
    events: list[tuple[int, int, bytes]] = []
    for span in spans:
        if span.end is not None and span.end > span.start and (_boxed(span) or owners[span.span_id] is None):
            events += [(span.start, 1, span.span_id), (span.end, 0, span.span_id)]
    children: dict[bytes, int] = defaultdict(int)
    # Boxed spans at work, and what no box holds.
    at_work: set[bytes] = set()
    unboxed_ids: set[bytes] = set()
    # What one of the deepest spans has got so far, and how much that was when each of them became one: to
    # add to every one of them at every event took minutes for 20,000 calls side by side (November 2026).
    share = 0.0
    deepest: dict[bytes, float] = {}
    until = 0
    for moment, begins, span_id in sorted(events):
        if deepest:
            share += (moment - until) / len(deepest)
        elif unboxed_ids:
            boxes[START].time += moment - until
        until = moment
        if span_id not in keys:
            (unboxed_ids.add if begins else unboxed_ids.discard)(span_id)
            continue
        owner = owners[span_id]
        (at_work.add if begins else at_work.discard)(span_id)
        if owner is not None:
            children[owner] += 1 if begins else -1
        for affected_id in (span_id, owner):
            if affected_id in at_work and not children[affected_id]:
                deepest.setdefault(affected_id, share)
            elif affected_id in deepest:
                boxes[keys[affected_id]].time += share - deepest.pop(affected_id)


def _laid_out(boxes: dict[BoxKey, Box], lines: dict[tuple[BoxKey, BoxKey], CallLine]) -> AgentGraph:
    """Columns by the depth at which a box is first called, places by first appearance."""
    joined_count = _join_smallest(boxes, lines)
    columns: dict[BoxKey, int] = {START: 0}
    waiting = [START]
    while waiting:
        caller = waiting.pop(0)
        for line in lines.values():
            if line.caller == caller and line.callee not in columns:
                columns[line.callee] = columns[caller] + 1
                waiting.append(line.callee)
    places: dict[int, int] = defaultdict(int)
    for key, box in boxes.items():
        box.column = columns.get(key, 1)
        box.x = box.column * (BOX_WIDTH + _GAP_X)
        box.y = places[box.column] * (BOX_HEIGHT + _GAP_Y)
        places[box.column] += 1
    width = max(box.x for box in boxes.values()) + BOX_WIDTH
    height = max(box.y for box in boxes.values()) + BOX_HEIGHT
    return AgentGraph(list(boxes.values()), list(lines.values()), width, height, joined_count)


def _join_smallest(boxes: dict[BoxKey, Box], lines: dict[tuple[BoxKey, BoxKey], CallLine]) -> int:
    """Make one box of those with the least time where there are more than are drawn."""
    if len(boxes) <= MOST_BOXES:
        return 0
    # Boxes that call others stay, as far as there is room: what they call would hang in the air.
    callers = {line.caller for line in lines.values()} | {START}
    ranked = sorted(boxes.values(), key=lambda box: (box.key in callers, box.time, box.key))
    smallest = [box for box in ranked if box.key != START][: len(boxes) - MOST_BOXES + 1]
    names = {box.key for box in smallest}
    remainder = Box(("other", f"{len(smallest)} more"), span_id=None)
    for box in smallest:
        remainder.calls += box.calls
        remainder.failed += box.failed
        remainder.model_calls += box.model_calls
        remainder.time += box.time
        remainder.tokens += box.tokens
        if box.cost is not None:
            remainder.cost = (remainder.cost or Decimal()) + box.cost
        del boxes[box.key]
    boxes[remainder.key] = remainder
    for line in list(lines.values()):
        if line.caller in names or line.callee in names:
            del lines[line.caller, line.callee]
            ends = [remainder.key if key in names else key for key in (line.caller, line.callee)]
            line_left = lines.setdefault((ends[0], ends[1]), CallLine(ends[0], ends[1]))
            line_left.calls += line.calls
            line_left.failed += line.failed
            line_left.handoff = line_left.handoff or line.handoff
            line_left.parallel = line_left.parallel or line.parallel
    return len(smallest)
