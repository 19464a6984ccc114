"""`malformed_output`: more answers of a call site are not the JSON that they should be.

Owns: what an answer must be. Where the taxonomy has a schema for the call site, that says it. Where it has
none, the answers themselves do: every trace is counted under the shape of its answers, and `learned` reads
from the shapes of the reference whether they are JSON at all and which keys they always have; a call site
whose answers are prose is left alone, and says so. Counted by shape, what was learned never depends on the
order in which traces were tallied. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
import msgspec

from svc.domain.detect.detectors.base import (
    OTHER,
    WITNESSES,
    Caller,
    Detector,
    Observation,
    ObserverContext,
    Schema,
    caller_of,
    site,
    slot_of,
)
from svc.domain.detect.detectors.call_errors import RISE_TUNING
from svc.domain.detect.detectors.settled_trace import (
    SettledTrace,
    SpanTexts,
    TracedSpan,
    is_blank,
)

#: So many answers tell what a call site answers. It answers with JSON when so large a share of them is JSON:
#: the rest, refusals and cut answers, is its usual rate of what is malformed. Of the JSON so large a share
#: must agree on a key or a form. With 0.99 for both, a hundredth of prose left a call site unwatched.
LEARNED_FROM: Final = 200
JSON_SHARE: Final = 0.95
LEARNED_SHARE: Final = 0.99
#: An object with more keys, or with longer ones, is a map from data to data: its keys are no shape.
SHAPE_KEYS: Final = 24
_KEY_CHARS: Final = 64
_SHAPE_CHARS: Final = 190
#: A longer text is not parsed.
PARSED_CHARS: Final = 1 << 20

#: Shapes: an object and its keys, behind a fence or bare; another JSON value; an object whose keys are data;
#: and what is no JSON.
PROSE: Final = '["prose"]'


def observe(trace: SettledTrace, context: ObserverContext) -> Iterable[Observation]:
    """One unit for each agent that answers a call site with text: under its schema, else by its shape."""
    answers: defaultdict[Caller, list[tuple[TracedSpan, str]]] = defaultdict(list)
    for row in trace.spans:
        if row.kind != "llm" or row.status != "ok" or (texts := trace.texts.get(row.span_id)) is None:
            continue
        if _is_final(row, texts):
            answers[caller_of(trace, row)].append((row, texts.said or ""))
    dated: set[str] = set()
    for caller, outputs in answers.items():
        call_site_id, subject = caller[0], site(*caller)
        slot = slot_of(outputs[0][0].started_at)
        if (entry := context.schemas.get(call_site_id)) is not None:
            yield _against(entry[1], subject, slot, outputs)
            if call_site_id not in dated:
                dated.add(call_site_id)
                yield Observation("seen_schema", site(call_site_id), slot, detail=entry[0])
        else:
            # What every answer of the trace has.
            shape = common_shape([shape_of(output) for _, output in outputs])
            yield Observation("output_shape", subject, slot, detail=shape)


def _is_final(row: TracedSpan, texts: SpanTexts) -> bool:
    """Whether the answer is for whoever asked, not a step on the way to it."""
    return not texts.calls and not row.tool_calls and not is_blank(texts.said)


def _against(schema: Schema, subject: str, slot: int, outputs: list[tuple[TracedSpan, str]]) -> Observation:
    failures = [(row, fault) for row, output in outputs if (fault := _fault(schema, output)) is not None]
    return Observation(
        "malformed_rate",
        subject,
        slot,
        failed=bool(failures),
        witnesses=tuple(row.span_id for row, _ in failures)[:WITNESSES],
        signature=failures[0][1] if failures else None,
    )


def _fault(schema: Schema, output: str) -> str | None:
    value = _parsed(output)
    if value is msgspec.UNSET:
        return "not JSON"
    return None if schema.is_valid(value) else "against the schema"


def _parsed(output: str) -> Any:
    """The value of a JSON text, `UNSET` when it is none."""
    if len(output) > PARSED_CHARS:
        return msgspec.UNSET
    try:
        return msgspec.json.decode(output.strip())
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return msgspec.UNSET


def shape_of(output: str) -> str:
    """The shape of one answer: JSON text of `[word, keys…]`."""
    head = output.lstrip()[:1]
    if head == "`":
        fenced = output.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
        value, word = _parsed(fenced), "fenced"
    elif head not in ("{", "["):
        return PROSE
    else:
        value, word = _parsed(output), "object"
    if type(value) is not dict:
        return PROSE if value is msgspec.UNSET else _shape("value")
    keys = sorted(value)
    if len(keys) > SHAPE_KEYS or any(len(key) > _KEY_CHARS for key in keys):
        return _shape(word, "…")
    shape = _shape(word, *keys)
    return shape if len(shape) <= _SHAPE_CHARS else _shape(word, "…")


def _shape(*parts: str) -> str:
    return msgspec.json.encode(parts).decode()


def common_shape(shapes: list[str]) -> str:
    """What all of the shapes have: prose as soon as one is prose, else the keys that none lacks."""
    if len(set(shapes)) == 1:
        return shapes[0]
    opened = [msgspec.json.decode(shape, type=list[str]) for shape in shapes]
    words = {shape[0] for shape in opened}
    if "prose" in words:
        return PROSE
    if "value" in words:
        return _shape("value")
    # A fence around one of them is a fence; an object whose keys are data lacks nothing that can be named.
    word = "fenced" if "fenced" in words else "object"
    key_sets = [set(shape[1:]) for shape in opened if shape[1:] != ["…"]]
    return _shape(word, *sorted(set.intersection(*key_sets))) if key_sets else _shape(word, "…")


@attrs.frozen
class Learned:
    """What the answers of a reference have in common: words of shapes, and the keys of nearly all."""

    words: frozenset[str]
    keys: frozenset[str]

    def fits(self, shape: str) -> bool:
        """Whether an answer of this shape is as it should be; what has no shape of its own passes."""
        if shape == OTHER:
            return True
        word, *keys = msgspec.json.decode(shape, type=list[str])
        return word in self.words and (keys == ["…"] or self.keys <= set(keys))


def learned(units: Mapping[str, int]) -> Learned | None:
    """What a reference teaches, given its units by shape; None for too few, or when too few are JSON."""
    units = {shape: n for shape, n in units.items() if shape != OTHER}
    total = sum(units.values())
    if total < LEARNED_FROM:
        return None
    words: defaultdict[str, int] = defaultdict(int)
    keys: defaultdict[str, int] = defaultdict(int)
    for shape, n in units.items():
        word, *shape_keys = msgspec.json.decode(shape, type=list[str])
        words[word] += n
        for key in shape_keys:
            keys[key] += n
    json_total = total - words["prose"]
    if json_total < JSON_SHARE * total:
        return None
    usual = frozenset(
        word for word, n in words.items() if word != "prose" and n > (1 - LEARNED_SHARE) * json_total
    )
    return Learned(
        usual, frozenset(key for key, n in keys.items() if key != "…" and n >= LEARNED_SHARE * json_total)
    )


MALFORMED_OUTPUT: Final = Detector(
    name="malformed_output",
    sentence="More answers of a call site break its schema, or the JSON that it has always answered with.",
    grain="span",
    engine="rate",
    measures=("malformed_rate", "output_shape"),
    also=("seen_schema",),
    observe=observe,
    tuning={"rise": RISE_TUNING},
    by_agent=True,
)
