"""Rows of `span` in COPY's binary form, made by hand.

Owns the columns of that table, in the order in which they are copied, and their encoding.
`svc.store.spans.copying` sends what it makes. Never decides what a column holds.

Why: asyncpg asks a codec for each of forty values; here what repeats is encoded once and remembered. The form
is that of PostgreSQL's manual, "COPY", "Binary Format": each field is its length in four bytes, -1 for null,
and its value as the `send` function of its type gives it. `encoding.pxd` gives it types of C where it is
compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from struct import Struct
from typing import Any, Final

from msgspec.structs import astuple

from svc.domain.spans.span import SpanRow

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
_IDENTITY: Final = ("session_id", "user_id", "facets")
_TEXT: Final = ("error_message", "response_id", "input_preview", "output_preview")
_NUMBER: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
    "cache_write_1h_tokens",
)
_COST: Final = ("input_cost", "output_cost", "cache_read_cost", "cache_write_cost", "total_cost")

COLUMNS: Final = (*_OWN, *_OPTIONAL, "tagged", *_SHARED, *_IDENTITY, *_TEXT, *_NUMBER, *_COST)

_HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_TRAILER: Final = b"\xff\xff"
_NULL: Final = b"\xff\xff\xff\xff"
_EIGHT: Final = b"\x00\x00\x00\x08"
_TRUE: Final = b"\x00\x00\x00\x01\x01"
_FALSE: Final = b"\x00\x00\x00\x01\x00"

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
#: The number of fields, then the first columns of `_OWN`, each behind its length.
_first: Final = Struct(">hiqiqiq").pack
#: The others of `_OWN`.
_others: Final = Struct(">iqi16si8siq").pack
_length: Final = Struct(">i").pack
_number: Final = Struct(">iq").pack
#: Length, number of digits, weight of the first, sign, scale, digits.
_cost: Final = Struct(">ihhHh7H").pack
#: How long most texts are.
_lengths: Final = tuple(_length(size) for size in range(1024))
_FIELDS: Final = len(COLUMNS)
#: All fields of a row, in their order.
_values: Final = astuple

#: A row with its project, its `created_at`, its frame and its digest.
Copied = tuple[int, datetime, int, int, SpanRow]

#: Rows of about 1 KB. What the socket does not take at once is copied into a buffer and out of it in bits.
_PIECE_ROWS: Final = 128
#: Values remembered of each kind; then all are forgotten.
_REMEMBERED_BOUND: Final = 4096

_shared: dict[tuple[Any, ...], bytes] = {}
_numbers: dict[int | None, bytes] = {None: _NULL}
# Decimals of equal value are one key: which of their scales is stored does not matter.
_costs: dict[Decimal | None, bytes] = {None: _NULL}


def encode(rows: Iterable[Copied]) -> Iterator[bytes]:
    """The rows as one COPY in binary form, in pieces that the socket takes at once."""
    yield _HEADER
    remaining = iter(rows)
    while chunk := list(islice(remaining, _PIECE_ROWS)):
        yield _piece(chunk)
    yield _TRAILER


def _piece(rows: list[Copied]) -> bytes:
    fields: list[bytes] = []
    # Spans of one frame stand beside each other.
    last_frame = -1
    last_project = -1
    last_created: datetime | None = None
    first = b""
    for project_id, created_at, frame, digest, row in rows:
        if frame != last_frame or project_id != last_project or created_at is not last_created:
            last_frame, last_project, last_created = frame, project_id, created_at
            first = _first(_FIELDS, 8, project_id, 8, microseconds(created_at), 8, frame)
        fields.append(first)
        _add_row(fields, digest, row)
    return b"".join(fields)


def _add_row(fields: list[bytes], digest: int, row: SpanRow) -> None:
    # In one go: a look at each of forty fields takes 1 µs.
    # fmt: off
    (
        trace_id, span_id, parent, kind, name, status, error_type, error_message, started_at, ended_at,
        call_site_id, tagged, session_id, user_id, provided_model_name, model_id, provider, response_id,
        input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens,
        input_cost, output_cost, cache_read_cost, cache_write_cost, total_cost, cost_source,
        input_preview, output_preview, _, usage_repeats, service_tier,
        input_audio_tokens, output_audio_tokens, cache_write_1h_tokens, price_book, facets, _,
    ) = _values(row)
    shared = (
        kind, name, status, error_type, call_site_id, provided_model_name, model_id, provider,
        cost_source, usage_repeats, service_tier, price_book,
    )
    # fmt: on
    fields.append(_others(8, digest, 16, trace_id, 8, span_id, 8, microseconds(started_at)))
    fields.append(_NULL if parent is None else _EIGHT)
    if parent is not None:
        fields.append(parent)
    fields.append(_NULL if ended_at is None else _number(8, microseconds(ended_at)))
    fields.append(_TRUE if tagged else _FALSE)
    fields.append(_shared.get(shared) or _new_shared(shared))
    _add_text(fields, session_id)
    _add_text(fields, user_id)
    _add_text(fields, facets)
    _add_text(fields, error_message)
    _add_text(fields, response_id)
    _add_text(fields, input_preview)
    _add_text(fields, output_preview)
    fields.append(_numbers.get(input_tokens) or _new_number(input_tokens))
    fields.append(_numbers.get(output_tokens) or _new_number(output_tokens))
    fields.append(_numbers.get(cache_read_tokens) or _new_number(cache_read_tokens))
    fields.append(_numbers.get(cache_write_tokens) or _new_number(cache_write_tokens))
    fields.append(_numbers.get(reasoning_tokens) or _new_number(reasoning_tokens))
    fields.append(_numbers.get(input_audio_tokens) or _new_number(input_audio_tokens))
    fields.append(_numbers.get(output_audio_tokens) or _new_number(output_audio_tokens))
    fields.append(_numbers.get(cache_write_1h_tokens) or _new_number(cache_write_1h_tokens))
    fields.append(_costs.get(input_cost) or _new_cost(input_cost))
    fields.append(_costs.get(output_cost) or _new_cost(output_cost))
    fields.append(_costs.get(cache_read_cost) or _new_cost(cache_read_cost))
    fields.append(_costs.get(cache_write_cost) or _new_cost(cache_write_cost))
    fields.append(_costs.get(total_cost) or _new_cost(total_cost))


def _add_text(fields: list[bytes], value: str | None) -> None:
    """A field of type `text`."""
    if value is None:
        fields.append(_NULL)
    else:
        data = value.encode("utf-8")
        size = len(data)
        fields.append(_lengths[size] if size < 1024 else _length(size))
        fields.append(data)


def _new_shared(values: tuple[str | None, ...]) -> bytes:
    if len(_shared) >= _REMEMBERED_BOUND:
        _shared.clear()
    fields: list[bytes] = []
    for value in values:
        _add_text(fields, value)
    encoded = _shared[values] = b"".join(fields)
    return encoded


def _new_number(value: int | None) -> bytes:
    if len(_numbers) >= _REMEMBERED_BOUND:
        _numbers.clear()
    encoded = _numbers[value] = _NULL if value is None else _number(8, value)
    return encoded


def _new_cost(value: Decimal | None) -> bytes:
    if len(_costs) >= _REMEMBERED_BOUND:
        _costs.clear()
    encoded = _costs[value] = _NULL if value is None else numeric(value)
    return encoded


def microseconds(moment: datetime) -> int:
    """A `timestamptz`: microseconds since the year 2000."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def numeric(value: Decimal) -> bytes:
    """A field of type `numeric`: digits to the base of 10,000, with the scale of the decimal.

    Seven digits for what costs are, three of them before the point; the server drops zeros at both ends.
    Raises `ValueError` for what is no finite number.
    """
    written = str(value)
    integer, _, fraction = written.partition(".")
    scale = len(fraction)
    if scale > 16 or len(integer) > 9 or not integer.isdecimal() or "E" in fraction:
        return _any_numeric(value)
    digits = int(fraction.ljust(16, "0"))
    high, low = digits // 100_000_000, digits % 100_000_000
    number = int(integer)
    million, lower = number // 100_000_000, number % 100_000_000
    return _cost(
        *(22, 7, 2, 0, scale),
        *(million, lower // 10_000, lower % 10_000),
        *(high // 10_000, high % 10_000, low // 10_000, low % 10_000),
    )


def _any_numeric(value: Decimal) -> bytes:
    written = f"{value:f}"
    sign = 0x4000 if written[0] == "-" else 0
    integer, _, fraction = written.lstrip("-").partition(".")
    integer = integer.rjust(-(-len(integer) // 4) * 4, "0")
    digits = integer + fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    groups = [int(digits[start : start + 4]) for start in range(0, len(digits), 4)]
    body = Struct(f">hhHh{len(groups)}H").pack(
        len(groups), len(integer) // 4 - 1, sign, len(fraction), *groups
    )
    return _length(len(body)) + body
