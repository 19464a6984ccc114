"""Text and values made fit for PostgreSQL and JSON.

Owns: `clean` and `clean_value`. The span mapper calls the first on every text it stores, whoever answers a
payload calls the second. Neither changes what was received: the wire shapes keep it as it was.
"""

from __future__ import annotations

import base64
import math
from typing import Any


def clean(text: str) -> str:
    """The text with U+0000, which PostgreSQL refuses in `text` and `jsonb`, as U+FFFD (contract §2)."""
    if "\x00" not in text:
        return text
    return text.replace("\x00", "\ufffd")


def clean_value(value: Any) -> Any:
    """An attribute value as JSON can hold it, cleaned to its depth.

    bytes become base64 text, and the three numbers that JSON lacks become "NaN", "Infinity" and "-Infinity"
    (the words of proto3 JSON). Keys are cleaned too; of two that clean to the same, the last wins.
    """
    match value:
        case str():
            return clean(value)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case dict():
            return {clean(key): clean_value(item) for key, item in value.items()}
        case list() | tuple():
            return [clean_value(item) for item in value]
        case _:
            return value
