"""Models that a span above names, for calls that report their usage and name none.

Owns: `wants_model`, `with_model`, `with_models` and `inherit_models`. Codex's calls do so: the request names
the model, the answer's span below it the tokens. Decoding asks for the spans of one batch, `remap` for those
of a trace. Links may be missing, or go round in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from protocol.otlp.reading import WireSpan
from svc.domain.dialects import codex, read
from svc.domain.spans.span import SpanRow
from svc.domain.spans.values import text

#: Who names a model further above speaks of something else.
_MOST_LEVELS: Final = 16
_MODEL: Final = "gen_ai.request.model"

SpanKey = tuple[bytes, bytes]


def wants_model(row: SpanRow, span: WireSpan) -> bool:
    """Whether the span is a call that used tokens of a model which its exporter names above it."""
    return row.kind == "llm" and row.provided_model_name is None and codex.THOUGHT in span.attributes


def with_model(span: WireSpan, model: str) -> WireSpan:
    """The span, naming this model."""
    return msgspec.structs.replace(span, attributes={**span.attributes, _MODEL: model})


def with_models(wanting: Iterable[SpanKey], spans: Iterable[WireSpan]) -> Mapping[SpanKey, WireSpan]:
    """Of the spans that want a model those that one above names one for, naming it."""
    by_key = {(span.trace_id, span.span_id): span for span in spans}
    named: dict[SpanKey, WireSpan] = {}
    for key in wanting:
        span = by_key.get(key)
        above = span
        for _ in range(_MOST_LEVELS):
            above = None if above is None else by_key.get((above.trace_id, above.parent_span_id))
            if span is None or above is None:
                break
            if (model := _model_of(above)) is not None:
                named[key] = with_model(span, model)
                break
    return named


def inherit_models(
    rows: list[SpanRow],
    spans: Mapping[SpanKey, WireSpan],
    remake: Callable[[SpanRow, WireSpan], SpanRow],
) -> None:
    """Make those rows of a trace anew, in place, for which a span above names the model."""
    keys = [(row.trace_id, row.span_id) for row in rows]
    wanting = [
        key for key, row in zip(keys, rows, strict=True) if key in spans and wants_model(row, spans[key])
    ]
    named = with_models(wanting, (spans[key] for key in keys if key in spans)) if wanting else {}
    for place, key in enumerate(keys):
        if key in named:
            rows[place] = remake(rows[place], named[key])


def _model_of(span: WireSpan) -> str | None:
    fields = read(span.attributes).found
    model: str | None = fields.get("request_model") or fields.get("response_model")
    return model or text(span.attributes.get("model"))
