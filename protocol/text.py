"""Text and values made fit for PostgreSQL and JSON.

Owns: `clean`, `clean_value` and `utf8_windows`. The span mapper calls the first on every text it stores,
whoever answers a payload calls the second; neither changes what was received: the wire shapes keep it as it
was. The readers of bodies call the third on texts that are not UTF-8.
"""

from __future__ import annotations

import base64
import codecs
import math
from collections.abc import Iterator
from typing import Any, Final

#: What a client hears of a body in which too much would have to be mended.
NOT_UTF8: Final = "too much text of the body is not UTF-8"

# Decoding holds the interpreter lock: 0.8 s for 60 MiB of nothing but errors, in one piece (2026-11).
_WINDOW_BYTES: Final = 1024 * 1024


def utf8_windows(data: bytes | memoryview) -> Iterator[str]:
    """The text in windows, with U+FFFD for what is not UTF-8, so that others are served in between."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for start in range(0, len(data), _WINDOW_BYTES):
        window = bytes(data[start : start + _WINDOW_BYTES])
        yield decoder.decode(window, final=start + _WINDOW_BYTES >= len(data))


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
