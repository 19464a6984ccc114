"""A trace beside another one of the same work: pairs of spans, the first that differs, its texts by words.

Part of the page of a trace (`against=`): `healthy` is answered with the healthy trace that takes the usual
time, so that a copied link names it. `pair` is the span whose texts are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs
import trio

from svc.domain.comparison import SpanPair, compared, first_difference
from svc.store.reads.skeleton import SkeletonReads
from svc.store.reads.spans import SpanReads
from svc.store.reads.trace_kin import MOST_OUTLINED, TraceKin
from svc.web.one_trace import TRACE_ID, OpenedTrace, packers
from svc.web.page import Go, Visit
from svc.web.parts import pretty
from svc.web.word_diff import WordDiff, word_diff

HEALTHY: Final = "healthy"
#: Payload of each of the two spans that are compared, and text of each side.
_PAYLOAD_BYTES: Final = 2 * 1024 * 1024
_TEXT_CHARS: Final = 60_000


@attrs.frozen
class TextPair:
    """One side of two spans, word by word."""

    label: str
    diff: WordDiff


async def comparison(visit: Visit, found: OpenedTrace) -> dict[str, Any] | Go:
    """What the comparison shows; where to go when the other trace is still to be named."""
    kin, view = TraceKin(visit.means.history), visit.query.get("view", "")
    against = visit.query["against"]
    if against == HEALTHY:
        twin = await kin.twin(visit.project.id, found.trace_id, found.head)
        if twin is not None:
            return Go(found.link(view, against=twin.trace_id.hex(), of=twin.of))
        return {"other": None, "named": None}
    if not TRACE_ID.fullmatch(against):
        return {"other": None, "named": against[:100]}
    other_id = bytes.fromhex(against)
    other = await SkeletonReads(visit.means.history).head(visit.project.id, other_id)
    if other is None:
        return {"other": None, "named": against}
    ours, more = await kin.outline(visit.project.id, found.trace_id, found.head)
    theirs, more_there = await kin.outline(visit.project.id, other_id, other)
    pairs = compared(ours, theirs)
    first = first_difference(pairs)
    named = visit.query.get("pair", "")
    chosen = next((pair for pair in pairs if pair.either.span_id.hex() == named), first)
    return {
        "other": other.fields,
        "runs": runs(pairs, chosen),
        "count": len(pairs),
        "first": first,
        "chosen": chosen,
        "texts": await _texts(visit, found.trace_id, other_id, chosen),
        "cut": MOST_OUTLINED if more or more_there else None,
        "of": visit.query.get("of", "") if visit.query.get("of", "").isdigit() else "",
    }


@attrs.frozen
class PairRun:
    """A pair, and how many like it follow that do not differ either."""

    pair: SpanPair
    times: int


def runs(pairs: Sequence[SpanPair], chosen: SpanPair | None) -> list[PairRun]:
    """The pairs, equal ones that do not differ as one."""
    found: list[PairRun] = []
    for pair in pairs:
        last = found[-1].pair if found else None
        if last is not None and not pair.differs and not last.differs and chosen not in (pair, last):
            same = (pair.depth, pair.either.kind, pair.either.name)
            if same == (last.depth, last.either.kind, last.either.name):
                found[-1] = PairRun(last, found[-1].times + 1)
                continue
        found.append(PairRun(pair, 1))
    return found


async def _texts(
    visit: Visit, trace_id: bytes, other_id: bytes, pair: SpanPair | None
) -> tuple[TextPair, ...]:
    if pair is None or pair.here is None or pair.there is None:
        return ()
    reads = SpanReads(visit.means.history)
    sides = [
        await reads.one(visit.project.id, trace, span.span_id, room_bytes=_PAYLOAD_BYTES)
        for trace, span in ((trace_id, pair.here), (other_id, pair.there))
    ]
    return await trio.to_thread.run_sync(_diffs, sides[0] or {}, sides[1] or {}, limiter=packers)


def _diffs(here: dict[str, Any], there: dict[str, Any]) -> tuple[TextPair, ...]:
    return tuple(
        TextPair(label, word_diff(_text(here.get(side)), _text(there.get(side))))
        for side, label in (("input", "asked"), ("output", "answered"))
    )


def _text(value: Any) -> str:
    """A side as text: of a conversation what was said, else JSON."""
    if value is None:
        return ""
    if type(value) is list and all(type(one) is dict and type(one.get("parts")) is list for one in value):
        lines = [
            f"{one.get('role', '')}: "
            + " ".join(
                pretty(part.get("text", part)) if type(part) is dict else pretty(part)
                for part in one["parts"]
            )
            for one in value
        ]
        return "\n".join(lines)[-_TEXT_CHARS:]
    return pretty(value)[:_TEXT_CHARS]
