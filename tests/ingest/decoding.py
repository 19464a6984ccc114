"""`python -m tests.ingest.decoding`: decodes the bodies that it is sent, and says all that became of them.

A body is four bytes of length and the bytes; so is an answer. One process runs on compiled modules, another
on plain Python: what they say must be the same.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import IO, Any

import attrs
import msgspec

from protocol.compiled import MODULES
from protocol.otlp.reading import open_envelope
from protocol.storage import Batch
from svc.domain.detect.detectors.settled_trace import SpanTexts, texts_of
from svc.domain.exporters.counters import Observations
from svc.domain.intake.batches import StoredSpan, decoder
from svc.domain.intake.payload import payload_of
from svc.domain.pricing.prices import PriceBook
from svc.store.spans.encoding import encode
from svc.store.spans.writing import _rolled

_LENGTH = struct.Struct(">I")
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def send(stream: IO[bytes], data: bytes) -> None:
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    head = stream.read(_LENGTH.size)
    return stream.read(_LENGTH.unpack(head)[0]) if head else None


def told(rows: list[StoredSpan]) -> Iterator[Any]:
    """Every row, its payload, what it becomes in COPY, and what others read of it again."""
    by_trace: dict[bytes, list[StoredSpan]] = {}
    for row in rows:
        by_trace.setdefault(row.row.trace_id, []).append(row)
    for group in by_trace.values():
        rollup = _rolled(group)
        yield [getattr(rollup, field.name) for field in attrs.fields(type(rollup))]
    for row in rows:
        yield msgspec.to_builtins(row, builtin_types=(bytes, datetime, Decimal))
        yield b"".join(encode([(1, NOW, 1, row.payload.digest, row.row)]))
        if not row.payload.messages:
            span = open_envelope(b"".join(row.payload.literals))
            yield payload_of(span)
            texts = texts_of(span, row.row.kind)
            yield [_text(texts, name) for name in _TEXTS]


_TEXTS = SpanTexts.__struct_fields__


def _text(texts: SpanTexts, name: str) -> Any:
    """One field, as what it says, however it says it."""
    field = getattr(texts, name)
    if name in ("given", "tools_heard"):
        return field()
    if name == "tool_schemas" and field is not None:
        return field.schemas, field.only_functions
    return field


def main() -> None:
    """Say how many modules are compiled, then answer until the input ends."""
    suffixes = sum(str(getattr(sys.modules.get(name), "__file__", "")).endswith(".so") for name in MODULES)
    send(sys.stdout.buffer, str(suffixes).encode())
    while (body := receive(sys.stdin.buffer)) is not None:
        # Each body is judged by itself, whatever was seen before it.
        decode = decoder(PriceBook(), Observations())
        try:
            said = repr(list(told([row for some in decode(Batch(1, body, 1, NOW, 0.0)) for row in some])))
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        send(sys.stdout.buffer, said.encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    main()
