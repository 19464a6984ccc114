"""`frustration` and `groundedness`: what only an encoder can see.

Owns: their rows, and what of a trace an encoder is asked: what the user said last, and what was answered
beside what was retrieved for it. They read meaning, which takes a model; without one they are unavailable and
say so, and never that nothing was found. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from protocol.otlp.reading import WireSpan
from svc.domain.detect.detectors.base import Detector, Tunable
from svc.domain.detect.detectors.settled_trace import TracedSpan, texts_of
from svc.domain.dialects import read
from svc.domain.spans.messages import last_user_text, text_of

_REASON: Final = "needs the encoder service, which is not configured"
#: So much of a text is asked about, its end, and so much of what was retrieved, its beginning.
TEXT_CHARS: Final = 4_000
CONTEXT_CHARS: Final = 16_000
#: A score from here on fires.
_SCORE: Final = Tunable(0.8, 0.5, 0.99)


@attrs.frozen
class Sample:
    """What an encoder is asked of a trace: a text, or a claim and what it should stand on; and the span that
    said it.
    """

    asked: str | tuple[str, str] = attrs.field(repr=False)
    span_id: bytes
    call_site_id: str


def _frustration(rows: Sequence[TracedSpan], payloads: Mapping[bytes, WireSpan]) -> Sample | None:
    """The last words of the user, as the first model call of the trace received them."""
    for row in rows:
        span = payloads.get(row.span_id)
        if row.kind == "llm" and span is not None:
            messages = read(span.attributes).input_messages(span)
            question = last_user_text(messages) if messages else None
            if question is not None and question.strip():
                return Sample(question[-TEXT_CHARS:], row.span_id, row.call_site_id)
    return None


def _groundedness(rows: Sequence[TracedSpan], payloads: Mapping[bytes, WireSpan]) -> Sample | None:
    """The last answer of the trace beside all that was retrieved before it; nothing without a retrieval."""
    documents: list[str] = []
    for row in rows:
        if row.kind == "retrieval" and (span := payloads.get(row.span_id)) is not None:
            reading = read(span.attributes)
            documents.append(text_of(reading.documents(span) or reading.found.get("output_value")) or "")
    context = "\n".join(part for part in documents if part)[:CONTEXT_CHARS]
    if not context.strip():
        return None
    for row in reversed(rows):
        if row.kind == "llm" and (span := payloads.get(row.span_id)) is not None:
            answer = texts_of(span, row.kind).said
            if answer is not None and answer.strip():
                return Sample((answer[:TEXT_CHARS], context), row.span_id, row.call_site_id)
    return None


FRUSTRATION: Final = Detector(
    name="frustration",
    sentence="Users show that they are frustrated.",
    grain="session",
    engine="event",
    measures=(),
    tuning={"score": _SCORE},
    needs="encoder",
    unavailable=_REASON,
)

GROUNDEDNESS: Final = Detector(
    name="groundedness",
    sentence="Answers make claims that the retrieved documents do not support.",
    grain="span",
    engine="event",
    measures=(),
    tuning={"score": _SCORE},
    needs="encoder",
    unavailable=_REASON,
)

#: What an encoder is asked of a trace, by detector, and what a firing says.
ENCODED: Final[
    Mapping[str, tuple[Callable[[Sequence[TracedSpan], Mapping[bytes, WireSpan]], Sample | None], str]]
] = {
    FRUSTRATION.name: (_frustration, "The user sounds frustrated"),
    GROUNDEDNESS.name: (_groundedness, "The answer claims what was not retrieved"),
}
