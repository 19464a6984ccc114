"""What the spans of a trace add up to.

Owns: `roll_up` (the row of a trace), the rules by which usage is not counted twice, and `preorder` and
`overlapping`, which `svc.domain.traces.tool_calls` shares. The trace roller calls it when a trace settles;
the store writes the result. Never reads attributes, never touches the clock. Linear in the number of spans,
whatever the links between them: parents may be missing, be the span itself, or go round in a circle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final, Protocol, TypeVar

import attrs

from svc.domain.spans.span import CostSource, Kind, Repeats, Status


class Timed(Protocol):
    """Something that began and perhaps ended."""

    span_id: bytes
    started_at: datetime
    ended_at: datetime | None


class Linked(Protocol):
    """A span and what it stands below."""

    span_id: bytes
    parent_span_id: bytes | None


class RollupSpan(Timed, Protocol):
    """What the roll-up needs of a span; `SpanRow` has it."""

    trace_id: bytes
    parent_span_id: bytes | None
    kind: Kind
    name: str
    status: Status
    call_site_id: str
    tagged: bool
    session_id: str | None
    user_id: str | None
    response_id: str | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    input_cost: Decimal | None
    output_cost: Decimal | None
    cache_read_cost: Decimal | None
    cache_write_cost: Decimal | None
    total_cost: Decimal | None
    cost_source: CostSource | None
    input_preview: str | None
    output_preview: str | None
    usage_repeats: Repeats | None


@attrs.frozen(eq=False)
class TraceRollup:
    """The row of a trace. Sums are null when nobody reported; `repeats` names the spans left out of them."""

    name: str
    started_at: datetime
    last_started_at: datetime
    ended_at: datetime | None
    root_seen: bool
    session_id: str | None
    user_id: str | None
    call_site_id: str
    span_count: int
    error_count: int
    status: Status
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    total_tokens: int | None
    input_cost: Decimal | None
    output_cost: Decimal | None
    total_cost: Decimal | None
    unpriced_spans: int
    input_preview: str | None
    output_preview: str | None
    repeats: dict[bytes, Repeats]

    def is_partly_named(self, rows: Iterable[RollupSpan]) -> bool:
        """Whether, as long as no root said whose it is, some of its spans name what others lack."""
        return not self.root_seen and any(
            (self.session_id and not row.session_id) or (self.user_id and not row.user_id) for row in rows
        )


#: Spans that are one call of a model each, so that two nested ones may be two calls.
MODEL_CALLS: Final = frozenset({"llm", "reasoning", "embedding", "reranker"})

#: Spans around calls that are no turn of their own.
_WRAPPERS: Final = frozenset({"step", "workflow"})

#: What a sum of tokens stops at, and the database holds.
MOST_TOKENS: Final = 2**63 - 1

_T = TypeVar("_T", bound=Timed)
_Summed = TypeVar("_Summed", int, Decimal)


def roll_up(rows: Sequence[RollupSpan]) -> TraceRollup:
    """The roll-up of the spans of one trace, in any order. Raises `ValueError` when there are none.

    Name, session, user and previews are the root's (no parent; the earliest when several), else the
    earliest that has one, previews from llm spans first; where the root is a wrapper that shows an object,
    these before it. Without a root, the earliest span whose parent is not here stands for it. The call site
    is the root's if tagged, else the earliest tagged one, else the root's. The trace has failed when its root
    has, or, as long as no root arrived, when any span has.
    """
    if not rows:
        raise ValueError("a trace without spans has no roll-up")
    ordered = sorted(rows, key=by_start)
    known = {row.span_id for row in ordered}
    root = next((row for row in ordered if row.parent_span_id is None), None)
    head = root or next((row for row in ordered if row.parent_span_id not in known), ordered[0])
    errors = sum(row.status == "error" for row in ordered)
    failed = root.status == "error" if root is not None else errors > 0
    twins: dict[bytes, Repeats] = {row.span_id: "twin" for row in ordered if row.usage_repeats == "twin"}
    repeats = _repeats([row for row in ordered if row.span_id not in twins] if twins else ordered) | twins
    counted = [row for row in ordered if row.span_id not in repeats] if repeats else ordered
    models = [row for row in ordered if row.kind == "llm"]
    # What a tool gave back is nobody's answer.
    speakers = [row for row in ordered if row.kind != "tool" and row.kind != "mcp"]
    given = _tokens(row.input_tokens for row in counted)
    answered = _tokens(row.output_tokens for row in counted)
    read = _tokens(row.cache_read_tokens for row in counted)
    written = _tokens(row.cache_write_tokens for row in counted)
    thought = _tokens(row.reasoning_tokens for row in counted)
    return TraceRollup(
        name=head.name,
        started_at=ordered[0].started_at,
        last_started_at=ordered[-1].started_at,
        ended_at=max((row.ended_at for row in ordered if row.ended_at is not None), default=None),
        root_seen=root is not None,
        session_id=head.session_id or next((row.session_id for row in ordered if row.session_id), None),
        user_id=head.user_id or next((row.user_id for row in ordered if row.user_id), None),
        call_site_id=head.call_site_id
        if head.tagged
        else next((row.call_site_id for row in ordered if row.tagged), head.call_site_id),
        span_count=len(ordered),
        error_count=errors,
        status="error" if failed else "ok",
        input_tokens=given,
        output_tokens=answered,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thought,
        total_tokens=_tokens((given, answered, read, written, thought)),
        input_cost=_sum(
            cost for row in counted for cost in (row.input_cost, row.cache_read_cost, row.cache_write_cost)
        ),
        output_cost=_sum(row.output_cost for row in counted),
        total_cost=_sum(row.total_cost for row in counted),
        unpriced_spans=sum(row.cost_source == "unpriced" for row in counted),
        input_preview=_turn(head, head.input_preview, [row.input_preview for row in (*models, *ordered)]),
        output_preview=_turn(
            head, head.output_preview, [row.output_preview for row in (*models[::-1], *speakers[::-1])]
        ),
        repeats=repeats,
    )


def by_start(row: Timed) -> tuple[datetime, bytes]:
    """In order of start."""
    return row.started_at, row.span_id


def _sum(values: Iterable[_Summed | None]) -> _Summed | None:
    total: _Summed | None = None
    for value in values:
        if value is not None:
            total = value if total is None else total + value
    return total


def _tokens(values: Iterable[int | None]) -> int | None:
    total = _sum(values)
    return None if total is None else min(total, MOST_TOKENS)


def _turn(head: RollupSpan, said: str | None, turns: Sequence[str | None]) -> str | None:
    """What the head said, unless it is a wrapper around calls: what that is given is an object, no turn."""
    if said and not (head.kind in _WRAPPERS and said[0] in "{["):
        return said
    return next((turn for turn in turns if turn), said)


# --- usage that is not counted twice ---------------------------------------------------------------------


def reports_usage(row: RollupSpan) -> bool:
    """Whether any token bucket is known."""
    return not (
        row.input_tokens is row.output_tokens is row.cache_read_tokens is None
        and row.cache_write_tokens is row.reasoning_tokens is None
    )


def _repeats(rows: Sequence[RollupSpan]) -> dict[bytes, Repeats]:
    """The spans, given in order of start, whose usage another span of the trace reports too.

    A span that is no model call of its own repeats its descendants as soon as one of them reports usage;
    one that gives a cost alone, as soon as one of them gives a cost. A model call repeats a descendant with
    its response id, and its descendants together when their sum is its own; else both are calls. One without
    usage repeats a call below it that has some, with nothing but steps between. Of model
    calls beside each other with one response id those that overlap in time are one call, and the first to
    start counts: two calls that follow each other are two, even if a gateway or a stand-in gives both
    answers one id.
    """
    reporting = [reports_usage(row) for row in rows]
    telling = (
        uses or row.total_cost is not None or row.kind == "llm"
        for row, uses in zip(rows, reporting, strict=True)
    )
    if sum(telling) < 2:
        return {}
    order, parents = preorder(rows)
    repeats: dict[bytes, Repeats] = {}
    answered_below = _same_response_below(rows, order, parents, reporting)
    for row in _once_told([row for i, row in enumerate(rows) if reporting[i] and i not in answered_below]):
        repeats[row.span_id] = "response"
    _mark_ancestors(rows, order, parents, answered_below, repeats)
    return repeats


def preorder(rows: Sequence[Linked]) -> tuple[list[int], list[int]]:
    """An order, depth first, with parents before children, and the place of each one's parent, -1 for none.

    A circle is cut at one of its spans.
    """
    places = {row.span_id: i for i, row in enumerate(rows)}
    parents = [-1 if row.parent_span_id is None else places.get(row.parent_span_id, -1) for row in rows]
    children: defaultdict[int, list[int]] = defaultdict(list)
    for i, parent in enumerate(parents):
        if parent == i:
            parents[i] = -1
        elif parent >= 0:
            children[parent].append(i)
    order: list[int] = []
    seen = bytearray(len(rows))

    def descend(start: int) -> None:
        stack = [start]
        while stack:
            i = stack.pop()
            if not seen[i]:
                seen[i] = 1
                order.append(i)
                stack += children.get(i, ())

    for i, parent in enumerate(parents):
        if parent < 0:
            descend(i)
    if len(order) < len(rows):
        for i in range(len(rows)):
            if not seen[i]:
                # Up from here leads into a circle: the first place met twice lies on it.
                met: set[int] = set()
                while i not in met:
                    met.add(i)
                    i = parents[i]
                parents[i] = -1
                descend(i)
    return order, parents


def _same_response_below(
    rows: Sequence[RollupSpan], order: list[int], parents: list[int], reporting: list[bool]
) -> set[int]:
    """The places of spans that report usage above a span that does so for the same response id."""
    found: set[int] = set()
    path: list[int] = []
    open_at: dict[str, list[int]] = defaultdict(list)
    for i in order:
        while path and path[-1] != parents[i]:
            left = path.pop()
            if (response := rows[left].response_id) is not None and reporting[left]:
                open_at[response].pop()
        path.append(i)
        if (response := rows[i].response_id) is not None and reporting[i]:
            if open_at[response]:
                found.add(open_at[response][-1])
            open_at[response].append(i)
    return found


def _once_told(rows: Sequence[RollupSpan]) -> list[RollupSpan]:
    by_response: defaultdict[str, list[RollupSpan]] = defaultdict(list)
    for row in rows:
        if row.response_id is not None:
            by_response[row.response_id].append(row)
    return [again for group in by_response.values() for again in overlapping(group)]


def overlapping(rows: Sequence[_T]) -> list[_T]:
    """Those that start while an earlier one, which stands for them, still runs; an open end runs for ever."""
    again: list[_T] = []
    first: _T | None = None
    for row in rows:
        if first is not None and (
            first.ended_at is None or row.started_at < first.ended_at or row.started_at == first.started_at
        ):
            again.append(row)
        else:
            first = row
    return again


def _mark_ancestors(
    rows: Sequence[RollupSpan],
    order: list[int],
    parents: list[int],
    answered_below: set[int],
    repeats: dict[bytes, Repeats],
) -> None:
    """From the leaves up: what is counted below each span, and whether the span repeats it."""
    size = len(rows)
    usage_below = bytearray(size)
    cost_below = bytearray(size)
    call_below = bytearray(size)
    given_below = [0] * size
    answered_by = [0] * size
    for i in reversed(order):
        row = rows[i]
        given, answered = given_below[i], answered_by[i]
        uses = reports_usage(row)
        costs = row.total_cost is not None
        if (uses or costs) and row.span_id not in repeats:
            own_given = (row.input_tokens or 0) + (row.cache_read_tokens or 0) + (row.cache_write_tokens or 0)
            own_answered = (row.output_tokens or 0) + (row.reasoning_tokens or 0)
            if not uses:
                again = bool(cost_below[i])
            elif row.kind in MODEL_CALLS:
                again = i in answered_below or (
                    bool(usage_below[i]) and own_given == given and own_answered == answered
                )
            else:
                again = bool(usage_below[i])
            if again:
                repeats[row.span_id] = "descendant"
            else:
                given += own_given
                answered += own_answered
        elif row.kind == "llm" and call_below[i] and not uses and not costs:
            repeats[row.span_id] = "descendant"
        parent = parents[i]
        if parent >= 0:
            usage_below[parent] |= uses | usage_below[i]
            cost_below[parent] |= costs | cost_below[i]
            if row.kind == "llm":
                call_below[parent] |= uses | call_below[i]
            elif row.kind == "step":
                call_below[parent] |= call_below[i]
            given_below[parent] += given
            answered_by[parent] += answered
