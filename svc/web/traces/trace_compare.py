"""A trace beside another one of the same work: pairs of spans, the first that differs, its texts by words.

Part of the page of a trace (`against=`): `healthy` is answered with the healthy trace that takes the usual
time, so that a copied link names it. `pair` is the span whose texts are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs

import attrs
import trio

from protocol.refusals import BAD_REQUEST, Refusal
from svc.domain.traces.comparison import SpanPair, compared, first_difference, largest_differences
from svc.store.reads.one_trace.skeleton import SkeletonReads
from svc.store.reads.one_trace.trace_kin import MOST_OUTLINED, TraceKin
from svc.store.reads.traces.spans import SpanReads
from svc.web.messages.message_parts import pretty
from svc.web.shell import words
from svc.web.shell.page import PROJECT, Go, PageRoute, Visit
from svc.web.shell.render import packers, query
from svc.web.traces.one_trace import TRACE_ID, OpenedTrace
from svc.web.traces.word_diff import WordDiff, word_diff

HEALTHY: Final = "healthy"
#: Fields of a form of ticked rows.
MOST_TICKED: Final = 1_000
#: Payload of each of the two spans that are compared, and text of each side.
_PAYLOAD_BYTES: Final = 2 * 1024 * 1024
_TEXT_CHARS: Final = 60_000


@attrs.frozen
class TextPair:
    """One side of two spans, word by word."""

    label: str
    diff: WordDiff


async def comparison(visit: Visit, opened_trace: OpenedTrace) -> dict[str, Any] | Go:
    """What the comparison shows; where to go when the other trace is still to be named."""
    kin, view = TraceKin(visit.means.history), visit.query.get("view", "")
    against = visit.query["against"].strip()
    if against == HEALTHY:
        twin = await kin.twin(visit.project.id, opened_trace.trace_id, opened_trace.head)
        if twin is not None:
            return Go(opened_trace.link(view, against=twin.trace_id.hex(), of=twin.of))
        return {"other": None, "named": None}
    if not TRACE_ID.fullmatch(against):
        return {"other": None, "named": against[:100]}
    other_id = bytes.fromhex(against)
    other_head = await SkeletonReads(visit.means.history).head(visit.project.id, other_id)
    if other_head is None:
        return {"other": None, "named": against}
    ours, ours_truncated = await kin.outline(visit.project.id, opened_trace.trace_id, opened_trace.head)
    theirs, theirs_truncated = await kin.outline(visit.project.id, other_id, other_head)
    pairs = compared(ours, theirs)
    first = first_difference(pairs)
    span_hex = visit.query.get("pair", "")
    chosen = next((pair for pair in pairs if pair.either.span_id.hex() == span_hex), first)
    return {
        "other": other_head.fields,
        "runs": runs(pairs, chosen),
        "count": len(pairs),
        "totals": totals(opened_trace.fields, other_head.fields),
        "largest": [
            (label, spans)
            for label, spans in (
                ("Time", largest_differences(pairs, "time")),
                ("Tokens", largest_differences(pairs, "tokens")),
                ("Cost", largest_differences(pairs, "cost")),
            )
            if spans
        ],
        "first": first,
        "chosen": chosen,
        "texts": await _texts(visit, opened_trace.trace_id, other_id, chosen),
        "cut": MOST_OUTLINED if ours_truncated or theirs_truncated else None,
        "of": visit.query.get("of", "") if visit.query.get("of", "").isdecimal() else "",
    }


#: What the totals of two traces are compared in: the field, its name, and how its values are written.
_TOTALS: Final = (
    ("latency_ms", "Duration", words.duration),
    ("total_tokens", "Tokens", words.count),
    ("total_cost", "Cost", words.money),
    ("span_count", "Spans", words.count),
    ("error_count", "Failed spans", words.count),
)


@attrs.frozen
class Total:
    """One total of two traces, in words; `change` is blank where a side has none or nothing changed."""

    label: str
    here: str
    there: str
    change: str


def totals(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[Total]:
    """What two traces come to, side by side."""
    rows = []
    for field, label, written in _TOTALS:
        ours, theirs = here[field], there[field]
        change = ""
        if ours is not None and theirs is not None and ours != theirs:
            change = ("+" if ours > theirs else "−") + written(abs(ours - theirs))
        rows.append(Total(label, written(ours), written(theirs), change))
    return rows


async def two_traces(visit: Visit) -> Go | Refusal:
    """From two ticked rows of a list to the first beside the second."""
    ticked = parse_qs(visit.address.partition("?")[2], max_num_fields=MOST_TICKED).get("trace_id", [])
    trace_ids = [trace_id for trace_id in dict.fromkeys(ticked) if TRACE_ID.fullmatch(trace_id)]
    if len(trace_ids) != 2:
        return BAD_REQUEST.saying(f"two traces are compared; {len(trace_ids)} are ticked")
    return Go(query(f"{visit.base}/traces/{trace_ids[0]}", against=trace_ids[1]))


@attrs.frozen
class PairRun:
    """A pair, and how many like it follow that do not differ either."""

    pair: SpanPair
    times: int


def runs(pairs: Sequence[SpanPair], chosen: SpanPair | None) -> list[PairRun]:
    """The pairs, equal ones that do not differ as one."""
    pair_runs: list[PairRun] = []
    for pair in pairs:
        last_pair = pair_runs[-1].pair if pair_runs else None
        if (
            last_pair is not None
            and not pair.differs
            and not last_pair.differs
            and chosen not in (pair, last_pair)
        ):
            same = (pair.depth, pair.either.kind, pair.either.name)
            if same == (last_pair.depth, last_pair.either.kind, last_pair.either.name):
                pair_runs[-1] = PairRun(last_pair, pair_runs[-1].times + 1)
                continue
        pair_runs.append(PairRun(pair, 1))
    return pair_runs


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
        for side, label in (("input", "Input"), ("output", "Output"))
    )


def _text(value: Any) -> str:
    """A side as text: of a conversation what was said, else JSON."""
    if value is None:
        return ""
    if type(value) is list and all(
        type(message) is dict and type(message.get("parts")) is list for message in value
    ):
        lines = [
            f"{message.get('role', '')}: "
            + " ".join(
                pretty(part.get("text", part)) if type(part) is dict else pretty(part)
                for part in message["parts"]
            )
            for message in value
        ]
        return "\n".join(lines)[-_TEXT_CHARS:]
    return pretty(value)[:_TEXT_CHARS]


PAGES: Final = (PageRoute("GET", PROJECT + "/traces/compare", "ORG_VIEW", two_traces),)
