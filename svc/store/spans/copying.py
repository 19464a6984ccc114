"""Rows of `span` in COPY's binary form, made by hand.

Owns the columns of that table, in the order in which they are copied, and their encoding. The writer of spans
calls `copy_spans` within its transaction; every other table is copied by asyncpg. Never decides what a column
holds.

Why: asyncpg asks a codec for each of forty values; here what repeats is encoded once and remembered. CPU time
of the process a span, sending included, on a slow machine: 14 µs instead of 23, and 21 when nothing is
remembered (measured November 2026). The form is that of PostgreSQL's manual, "COPY", "Binary Format": each
field is its length in four bytes, -1 for null, and its value as the `send` function of its type gives it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain, islice
from struct import Struct
from typing import Final, TypeVar

from svc.domain.span import SpanRow
from svc.store.postgres.database import Connection

K = TypeVar("K")

#: Columns of fixed size that differ from row to row.
_OWN: Final = ("project_id", "created_at", "frame", "digest", "trace_id", "span_id", "started_at")
_OPTIONAL: Final = ("parent_span_id", "ended_at")
#: Columns that many rows have in common, taken together.
_SHARED: Final = (
    "kind",
    "name",
    "status",
    "error_type",
    "call_site_id",
    "provided_model_name",
    "model_id",
    "provider",
    "cost_source",
    "usage_repeats",
    "service_tier",
    "price_book",
)
#: Among the shared they would keep spans from having values in common: 3.2 µs a span more where each has a
#: session of its own, 0.3 µs where sessions come again (measured November 2026).
_IDENTITY: Final = ("session_id", "user_id")
_TEXT: Final = ("error_message", "response_id", "input_preview", "output_preview")
_NUMBER: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
)
_COST: Final = ("input_cost", "output_cost", "cache_read_cost", "cache_write_cost", "total_cost")

COLUMNS: Final = (*_OWN, *_OPTIONAL, "tagged", *_SHARED, *_IDENTITY, *_TEXT, *_NUMBER, *_COST)

_HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_TRAILER: Final = b"\xff\xff"
_NULL: Final = b"\xff\xff\xff\xff"
_TAGGED: Final = {True: b"\x00\x00\x00\x01\x01", False: b"\x00\x00\x00\x01\x00"}

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
#: The number of fields, then the columns of `_OWN`, each behind its length.
_own: Final = Struct(">hiqiqiqiqi16si8siq").pack
_length: Final = Struct(">i").pack
_number: Final = Struct(">iq").pack
#: Length, number of digits, weight of the first, sign, scale, digits.
_cost: Final = Struct(">ihhHh7H").pack

#: A row with its project, its `created_at`, its frame and its digest.
Copied = tuple[int, datetime, int, int, SpanRow]

#: Rows of about 1 KB. What the socket does not take at once is copied into a buffer and out of it in bits.
_PIECE_ROWS: Final = 128
#: Values remembered of each kind; then all are forgotten.
_REMEMBERED_BOUND: Final = 4096


class _Remembered(dict[K, bytes]):
    """Encodings by value, made once."""

    def __init__(self, encode: Callable[[K], bytes]) -> None:
        self._encode = encode

    def __missing__(self, value: K) -> bytes:
        if len(self) >= _REMEMBERED_BOUND:
            self.clear()
        encoded = self[value] = self._encode(value)
        return encoded


async def copy_spans(connection: Connection, rows: Iterable[Copied]) -> None:
    """Copy rows, each with its project, its `created_at`, its frame and its digest."""
    await connection.copy_to_table("span", source=_Pieces(encode(rows)), columns=COLUMNS, format="binary")


class _Pieces:
    """What is copied, piece by piece. No generator: one that is left unread when the server refuses a row is
    closed by whichever event loop finds it.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration


def encode(rows: Iterable[Copied]) -> Iterator[bytes]:
    """The rows as one COPY in binary form, in pieces that the socket takes at once."""
    yield _HEADER
    rest = iter(rows)
    while fields := list(chain.from_iterable(_row(*row) for row in islice(rest, _PIECE_ROWS))):
        yield b"".join(fields)
    yield _TRAILER


def _row(project_id: int, created_at: datetime, frame: int, digest: int, row: SpanRow) -> tuple[bytes, ...]:
    parent, ended_at = row.parent_span_id, row.ended_at
    return (
        _own(
            len(COLUMNS),
            8,
            project_id,
            8,
            microseconds(created_at),
            8,
            frame,
            8,
            digest,
            16,
            row.trace_id,
            8,
            row.span_id,
            8,
            microseconds(row.started_at),
        ),
        _NULL if parent is None else b"\x00\x00\x00\x08" + parent,
        _NULL if ended_at is None else _number(8, microseconds(ended_at)),
        _TAGGED[row.tagged],
        _shared[
            row.kind,
            row.name,
            row.status,
            row.error_type,
            row.call_site_id,
            row.provided_model_name,
            row.model_id,
            row.provider,
            row.cost_source,
            row.usage_repeats,
            row.service_tier,
            row.price_book,
        ],
        text(row.session_id),
        text(row.user_id),
        text(row.error_message),
        text(row.response_id),
        text(row.input_preview),
        text(row.output_preview),
        _numbers[row.input_tokens],
        _numbers[row.output_tokens],
        _numbers[row.cache_read_tokens],
        _numbers[row.cache_write_tokens],
        _numbers[row.reasoning_tokens],
        _numbers[row.input_audio_tokens],
        _numbers[row.output_audio_tokens],
        _costs[row.input_cost],
        _costs[row.output_cost],
        _costs[row.cache_read_cost],
        _costs[row.cache_write_cost],
        _costs[row.total_cost],
    )


def microseconds(moment: datetime) -> int:
    """A `timestamptz`: microseconds since the year 2000."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def text(value: str | None) -> bytes:
    """A field of type `text`."""
    if value is None:
        return _NULL
    data = value.encode()
    return _length(len(data)) + data


def numeric(value: Decimal) -> bytes:
    """A field of type `numeric`: digits to the base of 10,000, with the scale of the decimal.

    Seven digits for what costs are, three of them before the point; the server drops zeros at both ends.
    Raises `ValueError` for what is no finite number.
    """
    written = str(value)
    whole, _, fraction = written.partition(".")
    scale = len(fraction)
    if scale > 16 or len(whole) > 9 or not whole.isdecimal() or "E" in fraction:
        return _any_numeric(value)
    high, low = divmod(int(fraction.ljust(16, "0")), 100_000_000)
    million, rest = divmod(int(whole), 100_000_000)
    return _cost(
        *(22, 7, 2, 0, scale, million, *divmod(rest, 10_000)), *divmod(high, 10_000), *divmod(low, 10_000)
    )


def _any_numeric(value: Decimal) -> bytes:
    written = f"{value:f}"
    sign = 0x4000 if written[0] == "-" else 0
    whole, _, fraction = written.lstrip("-").partition(".")
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    digits = whole + fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    groups = [int(digits[at : at + 4]) for at in range(0, len(digits), 4)]
    body = Struct(f">hhHh{len(groups)}H").pack(len(groups), len(whole) // 4 - 1, sign, len(fraction), *groups)
    return _length(len(body)) + body


def _integer(value: int | None) -> bytes:
    return _NULL if value is None else _number(8, value)


def _texts(values: tuple[str | None, ...]) -> bytes:
    return b"".join(map(text, values))


def _optional_numeric(value: Decimal | None) -> bytes:
    return _NULL if value is None else numeric(value)


_shared: Final = _Remembered(_texts)
_numbers: Final = _Remembered(_integer)
# Decimals of equal value are one key: which of their scales is stored does not matter.
_costs: Final = _Remembered(_optional_numeric)
