"""Segments of spans by column: what a column holds, and how it is packed and unpacked.

A segment is many spans that arrived in one stretch and began on one day. In a summed segment a row stands
for all of them that are alike in the fields it keeps, with their number and sums. A column of texts is a
dictionary and a code for each row, a column of numbers the numbers themselves, one up, since 0 stands for
none. Both take as few bytes each as the largest needs, byte by byte side by side, and are compressed; where
all rows have the same number it is kept once. The builders in `svc.store.aggregates` pack,
`scanning` unpacks. Never needs numpy, which only readers do.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import msgspec
import zstandard

#: Fields with a dictionary, by which spans are filtered and grouped. `facets` are the characters of the
#: values of attributes that a span has.
TEXTS: Final = (
    "kind",
    "name",
    "status",
    "call_site_id",
    "session_id",
    "user_id",
    "provided_model_name",
    "model_id",
    "provider",
    "cost_source",
    "usage_repeats",
    "error_type",
    "facets",
)
#: The hour of the day in which a span arrived, and in which it began.
ARRIVED: Final = "arrived"
BEGAN: Final = "began"
#: Half of the id of its trace, as a text of sixteen digits: enough to tell traces apart.
TRACE: Final = "trace"
#: Bin of its duration on the axis below.
DURATION: Final = "duration"
#: Its cost in units of 1e-12 USD, and what is left of it in units of 1e-24: nothing for most.
COST: Final = "cost"
COST_REST: Final = "cost_rest"
#: 1 where it has usage and no price.
UNPRICED: Final = "unpriced"
TOKENS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
COLUMNS: Final = (*TEXTS, TRACE, ARRIVED, BEGAN, DURATION, COST, COST_REST, UNPRICED, *TOKENS)
#: Of a summed segment: how many spans a row stands for, and how many of them have a cost.
COUNTED: Final = "counted"
PRICED: Final = "priced"
SUMS: Final = (COUNTED, COST, COST_REST, PRICED, UNPRICED, *TOKENS)


@attrs.frozen
class Selection:
    """What the rows of a summed segment keep apart: fields, `keys` of numbers; and what they add up."""

    fields: tuple[str, ...]
    keys: tuple[str, ...]
    sums: tuple[str, ...]


def _without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in TEXTS if name not in ("session_id", "user_id", *names))


#: The sums that a day may have. By hour, with fewer and fewer fields and so fewer rows; and of a whole day
#: durations, and what users use, which by hour would be as many rows as spans.
SELECTIONS: Final = (
    Selection(_without(), (ARRIVED, BEGAN), SUMS),
    Selection(_without("facets"), (ARRIVED, BEGAN), SUMS),
    Selection(_without("facets", "name", "call_site_id"), (ARRIVED, BEGAN), SUMS),
    Selection(_without("facets", "cost_source", "usage_repeats"), (DURATION,), (COUNTED,)),
    Selection(("kind", "name", "status", "call_site_id"), (DURATION,), (COUNTED,)),
    Selection(("kind", "status", "user_id"), (), SUMS),
)

#: Digits of a cost behind the point: those of the first number, and those of both.
COST_DIGITS: Final = 12
COST_REST_DIGITS: Final = 24
#: The largest number a column holds; 1 is added to it.
MOST: Final = 2**63 - 2
#: Spans of one segment; more are in a further one. Packing a column of as many holds the builder for less
#: than 20 ms, and sums of 32 bits of as many stay exact in a float.
MOST_ROWS: Final = 2**17

#: Bins of durations count from a microsecond, each wider than the one before by this: a bin's middle is
#: within one per cent of all its values.
DURATION_UNIT_MS: Final = 0.001
DURATION_RATIO: Final = 1.02

_LEVEL: Final = 3
_CODE_TYPES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
#: The first byte of a column that holds one number for all.
_SAME: Final = 0


@attrs.frozen
class PackedColumn:
    """One column of a segment: `values` are the dictionary of texts, None for numbers."""

    values: bytes | None
    codes: bytes


class Codes(dict[str | None, int]):
    """A code for each text, given out at first sight."""

    def __missing__(self, text: str | None) -> int:
        code = self[text] = len(self)
        return code


@attrs.define
class TextColumn:
    """A column of texts that is being filled."""

    codes: Codes = attrs.field(factory=Codes)
    rows: array[int] = attrs.field(factory=lambda: array(_CODE_TYPES[1]))

    def extend(self, texts: Iterable[str | None]) -> None:
        """Add the texts of further spans."""
        self.rows = _extended(self.rows, list(map(self.codes.__getitem__, texts)))

    def packed(self) -> PackedColumn:
        """What is stored of it."""
        return PackedColumn(_compressed(msgspec.msgpack.encode(list(self.codes))), pack_numbers(self.rows))


@attrs.define
class NumberColumn:
    """A column of numbers that is being filled. None is none."""

    rows: array[int] = attrs.field(factory=lambda: array(_CODE_TYPES[1]))

    def extend(self, numbers: Iterable[int | None]) -> None:
        """Add the numbers of further spans, 0 to `MOST`."""
        self.rows = _extended(self.rows, [0 if number is None else number + 1 for number in numbers])

    def packed(self) -> PackedColumn:
        """What is stored of it."""
        return PackedColumn(None, pack_numbers(self.rows))


def _extended(rows: array[int], numbers: list[int]) -> array[int]:
    """The rows with further numbers, in as few bytes each as the largest needs: most need one or two."""
    size = _size_of(max(numbers, default=0))
    if size > rows.itemsize:
        rows = array(_CODE_TYPES[size], rows)
    rows.fromlist(numbers)
    return rows


def _size_of(number: int) -> int:
    width = (number.bit_length() + 7) // 8
    return next(size for size in _CODE_TYPES if width <= size)


def pack_numbers(numbers: array[int]) -> bytes:
    """Numbers from 0 on: how many bytes each has, then those, compressed; or one number for all."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    if low == high:
        return bytes([_SAME]) + high.to_bytes(8, "little")
    width = (high.bit_length() + 7) // 8
    size = _size_of(high)
    narrow = array(_CODE_TYPES[size], numbers)
    if sys.byteorder == "big":
        narrow.byteswap()
    plain = narrow.tobytes()
    return bytes([width]) + _compressed(b"".join(plain[byte::size] for byte in range(width)))


def unpack_texts(column: PackedColumn) -> list[str | None]:
    """The dictionary of a column of texts."""
    return msgspec.msgpack.decode(unpack_plain(column), type=list[str | None])


def unpack_plain(column: PackedColumn) -> bytes:
    """The dictionary of a column of texts, as MessagePack has it."""
    assert column.values is not None
    return _decompressed(column.values)


def unpack_bytes(column: PackedColumn) -> tuple[bytes, int] | int:
    """The codes or numbers of a column, all lowest bytes first, and how many bytes each has; or the one."""
    width = column.codes[0]
    if width == _SAME:
        return int.from_bytes(column.codes[1:], "little")
    return _decompressed(memoryview(column.codes)[1:]), width


@attrs.define
class Segment:
    """The columns of one segment that are being filled, one batch of rows after the other."""

    names: Sequence[str] = COLUMNS
    rows: int = 0
    columns: dict[str, TextColumn | NumberColumn] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        texts = {*TEXTS, TRACE}
        self.columns = {name: TextColumn() if name in texts else NumberColumn() for name in self.names}

    def extend(self, rows: int, values: Sequence[Sequence[object]]) -> None:
        """Add so many rows; `values` holds a sequence for each of `names`."""
        for column, batch in zip(self.columns.values(), values, strict=True):
            column.extend(batch)  # type: ignore[arg-type]  # texts or numbers, as the column's name says
        self.rows += rows

    def packed(self) -> Iterable[tuple[str, PackedColumn]]:
        """Each column by its name, packed when it is asked for."""
        for name, column in self.columns.items():
            yield name, column.packed()


def _compressed(plain: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(plain)


class _Unpacking(threading.local):
    """What unpacks in this thread; to make one takes as long as to unpack a few kilobytes (9 µs)."""

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor()


_unpacking: Final = _Unpacking()


def _decompressed(packed: bytes | memoryview) -> bytes:
    return _unpacking.zstd.decompress(packed)
