"""Segments of spans by column, or of sums, made into summed ones: a row for all that are alike in its fields.

`svc.store.aggregates.span_sums` calls it for each segment of a day, in a thread: a segment of 131,072 spans
takes it about a tenth of a second. All sums are exact; one that no column can hold makes none at all. Pure.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import numpy as np

from svc.domain.columns.encoding import (
    COST,
    COUNTED,
    MOST,
    PRICED,
    SELECTIONS,
    NumberColumn,
    Segment,
    TextColumn,
)

_Numbers = np.ndarray[Any, np.dtype[np.int64]]

#: Keys are put together in whole numbers of 63 bits, and numbered anew before they outgrow those.
_WIDEST: Final = 2**62
_LOW_BITS: Final = 0xFFFF_FFFF


def summed(segment: Segment, level: int, most: int | None) -> Segment | None:
    """The sums of a selection; None where they have more rows than `most`, or cannot be held."""
    selection = SELECTIONS[level]
    together, size = np.zeros(segment.rows, dtype=np.int64), 1
    for name in (*selection.fields, *selection.keys):
        codes = _numbers_of(segment, name)
        places = int(codes.max(initial=0)) + 1
        if size * places >= _WIDEST:
            together, size = _renumbered(together)
        if size * places >= _WIDEST:
            codes, places = _renumbered(codes)
        together, size = together * places + codes, size * places
    values, first, group_of = np.unique(together, return_index=True, return_inverse=True)
    if most is not None and len(values) > most:
        return None
    sums = Segment((*selection.fields, *selection.keys, *selection.sums), rows=len(values))
    for name in (*selection.fields, *selection.keys):
        _keep(segment, sums, name, first)
    for name in selection.sums:
        numbers = _sum_of(segment, name, group_of, len(values))
        if numbers is None:
            return None
        sums.columns[name] = NumberColumn(array("Q", numbers))
    return sums


def _numbers_of(segment: Segment, name: str) -> _Numbers:
    rows = segment.columns[name].rows
    # No number needs the last bit of eight bytes.
    return np.frombuffer(rows, dtype=f"u{rows.itemsize}").astype(np.int64)


def _renumbered(numbers: _Numbers) -> tuple[_Numbers, int]:
    values, places = np.unique(numbers, return_inverse=True)
    return places, len(values)


def _keep(segment: Segment, sums: Segment, name: str, first: _Numbers) -> None:
    """Keep a column as its first row of each group has it."""
    column = segment.columns[name]
    codes = _numbers_of(segment, name)[first].tolist()
    if isinstance(column, NumberColumn):
        sums.columns[name] = NumberColumn(array("Q", codes))
        return
    texts, kept = list(column.codes), TextColumn()
    kept.extend(texts[code] for code in codes)
    sums.columns[name] = kept


def _sum_of(segment: Segment, name: str, group_of: _Numbers, groups: int) -> list[int] | None:
    """A column of sums, one up and 0 for none; None where one is too large."""
    if name == COUNTED and name not in segment.columns:
        return [number + 1 for number in np.bincount(group_of, minlength=groups).tolist()]
    # Of spans alone, those that have a cost; sums say it themselves.
    counts_alone = name == PRICED and name not in segment.columns
    numbers = _numbers_of(segment, COST if counts_alone else name)
    rows = np.flatnonzero(numbers)
    group_of, numbers = group_of[rows], numbers[rows]
    counts = np.bincount(group_of, minlength=groups).tolist()
    if counts_alone:
        return [number + 1 for number in counts]
    # In halves of 32 bits, since a float adds up as many of those exactly.
    low = np.bincount(group_of, weights=numbers & _LOW_BITS, minlength=groups).tolist()
    high = np.bincount(group_of, weights=numbers >> 32, minlength=groups).tolist()
    # Numbers are one up.
    totals = [(int(up) << 32) + int(down) - n for up, down, n in zip(high, low, counts, strict=True)]
    if max(totals, default=0) > MOST:
        return None
    return [total + 1 if n else 0 for total, n in zip(totals, counts, strict=True)]
