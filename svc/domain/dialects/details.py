"""One detail of a span out of one key: why the model stopped, the parameters of the call, the first token.

Called by the table of dialects. Never chooses between dialects.
"""

from __future__ import annotations

from typing import Any

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Detail, Dialect
from svc.domain.spans.values import decoded, milliseconds, present, text


def detail_of(span: WireSpan, dialect: Dialect, detail: Detail, key: str) -> Any:
    """What the key says, or None; one that ends in `*` stands for all that begin so."""
    attributes = span.attributes
    if key.endswith("*"):
        start = key[:-1]
        parameters = {
            name[len(start) :]: value for name, value in attributes.items() if name.startswith(start)
        }
        parameters.pop("model", None)
        return parameters or None
    if (value := present(attributes.get(key))) is None:
        return None
    if (reader := dialect.detail_readers.get(key)) is not None:
        return reader(value, span)
    if detail == "finish_reasons":
        opened = decoded(value)
        reasons = opened if type(opened) is list else [value]
        return [reason for item in reasons if (reason := text(item)) is not None] or None
    if detail == "time_to_first_token_ms":
        return milliseconds(value, 1000)
    if detail == "parameters":
        opened = decoded(value)
        return opened if type(opened) is dict and opened else None
    return text(value)
