"""Two traces of the same work side by side: which span of one is which of the other, and where they part.

Pure. Spans are paired by their path (kinds and names from the root down) and their order on it. Called by the
page that compares a trace with a healthy one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final, Literal

import attrs

#: A span that takes so many times as long, and this much longer, is slower.
SLOWER: Final = 2.0
SLOWER_MS: Final = 100.0

#: Pairs that are named for a measure, and the part of all that differs below which a pair is not.
LARGEST: Final = 3
WORTH: Final = 0.02

Difference = Literal["only here", "only there", "failed here", "failed there", "asked", "answered", "slower"]
#: What parts two traces, the strongest first: texts of models differ without a fault.
_RANKS: Final[tuple[frozenset[Difference], ...]] = (
    frozenset(("only here", "only there", "failed here", "failed there")),
    frozenset(("asked",)),
    frozenset(("slower",)),
    frozenset(("answered",)),
)


@attrs.frozen
class Outlined:
    """What is compared of a span."""

    span_id: bytes
    parent_span_id: bytes | None
    kind: str
    name: str
    status: str
    error_type: str | None
    took_ms: float | None
    tokens: int
    cost: Decimal | None
    input_preview: str | None
    output_preview: str | None


@attrs.frozen
class SpanPair:
    """A span and its counterpart, how deep they stand, and in what they differ."""

    here: Outlined | None
    there: Outlined | None
    depth: int
    differs: tuple[Difference, ...]

    @property
    def either(self) -> Outlined:
        """The one here, else the one there."""
        span = self.here or self.there
        assert span is not None, "a pair has a span"
        return span


Path = tuple[tuple[str, str], ...]


def compared(here: Sequence[Outlined], there: Sequence[Outlined]) -> list[SpanPair]:
    """The pairs, in the order of the first trace; what only the second has stands behind its siblings."""
    return list(_pairs(_children(here), _children(there), None, None, 0))


def first_difference(pairs: Sequence[SpanPair]) -> SpanPair | None:
    """The first pair of the strongest kind of difference that there is."""
    for rank in _RANKS:
        for pair in pairs:
            if not rank.isdisjoint(pair.differs):
                return pair
    return None


Measure = Literal["time", "tokens", "cost"]


@attrs.frozen
class MeasuredDifference:
    """How much more, or less, a span here has of a measure than its counterpart."""

    pair: SpanPair
    difference: float


def largest_differences(
    pairs: Sequence[SpanPair], measure: Measure, most: int = LARGEST
) -> list[MeasuredDifference]:
    """The pairs that differ most in a measure, the largest first. Time is without that of children."""
    our_values, their_values = (_values(pairs, measure, side) for side in (0, 1))
    differences = [
        MeasuredDifference(pair, (ours or 0.0) - (theirs or 0.0))
        for pair, ours, theirs in zip(pairs, our_values, their_values, strict=True)
    ]
    total = sum(abs(difference.difference) for difference in differences)
    ranked = sorted(differences, key=lambda difference: -abs(difference.difference))
    return [difference for difference in ranked[:most] if abs(difference.difference) > WORTH * total]


def _values(pairs: Sequence[SpanPair], measure: Measure, side: int) -> list[float | None]:
    spans = [(pair.here, pair.there)[side] for pair in pairs]
    if measure == "tokens":
        return [None if span is None else float(span.tokens) for span in spans]
    if measure == "cost":
        return [None if span is None or span.cost is None else float(span.cost) for span in spans]
    # Pairs stand behind their parents: the open ones above a pair are a stack.
    own_times = [None if span is None else span.took_ms for span in spans]
    open_places: list[int] = []
    for number, (pair, span) in enumerate(zip(pairs, spans, strict=True)):
        del open_places[pair.depth :]
        parent = next((at for at in reversed(open_places) if spans[at] is not None), None)
        open_places.append(number)
        if span is None or span.took_ms is None or parent is None:
            continue
        remaining = own_times[parent]
        own_times[parent] = None if remaining is None else remaining - span.took_ms
    # Children that ran beside each other take more together than their parent.
    return [None if value is None else max(value, 0.0) for value in own_times]


_Children = dict[bytes | None, list[Outlined]]


def _children(spans: Sequence[Outlined]) -> _Children:
    ids = {span.span_id for span in spans}
    children: _Children = defaultdict(list)
    for span in spans:
        parent_id = span.parent_span_id
        children[parent_id if parent_id in ids and parent_id != span.span_id else None].append(span)
    reached: set[bytes] = set()
    waiting = list(children[None])
    _reach(children, waiting, reached)
    for span in spans:
        if span.span_id not in reached:
            # It goes round in a circle, which is cut where it is met first.
            children[span.parent_span_id].remove(span)
            children[None].append(span)
            _reach(children, [span], reached)
    return children


def _reach(children: _Children, waiting: list[Outlined], reached: set[bytes]) -> None:
    while waiting:
        span = waiting.pop()
        reached.add(span.span_id)
        waiting += [child for child in children.get(span.span_id, ()) if child.span_id not in reached]


def _pairs(
    here: _Children, there: _Children, above: bytes | None, beside: bytes | None, depth: int
) -> Iterator[SpanPair]:
    """Pairs from these parents down. A stack and no recursion: a trace may be thousands of levels deep."""
    waiting = [iter(_siblings(here.pop(above, []), there.pop(beside, []), depth))]
    while waiting:
        pair = next(waiting[-1], None)
        if pair is None:
            waiting.pop()
            continue
        yield pair
        children = (
            here.pop(pair.here.span_id, []) if pair.here else [],
            there.pop(pair.there.span_id, []) if pair.there else [],
        )
        if children[0] or children[1]:
            waiting.append(iter(_siblings(*children, pair.depth + 1)))


def _siblings(here: Sequence[Outlined], there: Sequence[Outlined], depth: int) -> list[SpanPair]:
    partners: dict[tuple[str, str], list[Outlined]] = defaultdict(list)
    for span in reversed(there):
        partners[span.kind, span.name].append(span)
    pairs = []
    for span in here:
        matches = partners[span.kind, span.name]
        pairs.append(_pair(span, matches.pop() if matches else None, depth))
    unmatched = {span.span_id for group in partners.values() for span in group}
    pairs += [_pair(None, span, depth) for span in there if span.span_id in unmatched]
    return pairs


def _pair(here: Outlined | None, there: Outlined | None, depth: int) -> SpanPair:
    if here is None or there is None:
        return SpanPair(here, there, depth, ("only here",) if there is None else ("only there",))
    differs: list[Difference] = []
    if here.status != there.status:
        differs.append("failed here" if here.status == "error" else "failed there")
    if here.input_preview != there.input_preview:
        differs.append("asked")
    if here.output_preview != there.output_preview:
        differs.append("answered")
    if here.took_ms is not None and there.took_ms is not None:
        longer = here.took_ms > SLOWER * there.took_ms and here.took_ms - there.took_ms > SLOWER_MS
        if longer:
            differs.append("slower")
    return SpanPair(here, there, depth, tuple(differs))
