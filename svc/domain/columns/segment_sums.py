"""What the segments of one question come to: sums by bucket and group side by side, durations, distinct ids.

`scanning` adds each segment, `svc.store.reads.questions.columns.answers` takes the cells when all are added.
A cell for each bucket and group of each segment took half the time of an answer by user (November 2026).
Pure; reads no column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

import attrs
import numpy as np

from svc.domain.columns.encoding import (
    COST,
    COST_DIGITS,
    COST_REST,
    COST_REST_DIGITS,
    PRICED,
    TOKENS,
    UNPRICED,
)
from svc.domain.columns.scan import Scan
from svc.domain.columns.totals import Cell, DistinctIds, Key

T = TypeVar("T")
Numbers = np.ndarray[Any, np.dtype[np.int64]]
Hashes = np.ndarray[Any, np.dtype[np.uint64]]

#: Names of sums beside those of columns. What a column adds up to has two more, the upper half of the sum and
#: how many rows have a number.
SPANS: Final = "spans"
ERRORS: Final = "errors"
UPPER: Final = " upper"
ROWS: Final = " rows"
#: Side by side lie no more places than these.
UNTIDY: Final = 20_000
#: Stands for the group of a value that has several, or none.
_SEVERAL: Final = -1
_COST_UNIT: Final = 10 ** (COST_REST_DIGITS - COST_DIGITS)


@attrs.frozen
class Places:
    """What the numbers of bucket and value of one segment stand for: each for some places of the answer."""

    #: The bucket of the answer that each bucket of the segment is.
    buckets: Numbers
    #: The groups of the answer that the values of the segment belong to, one value after the other.
    groups: Numbers
    #: How many groups each value has; None where each has one.
    counts: Numbers | None
    #: How many buckets the answer has.
    width: int
    #: How many numbers there are.
    size: int

    def of(self, spots: Numbers) -> tuple[Numbers, Numbers | None]:
        """The places of these numbers, and which of the numbers each belongs to; None where each has one."""
        buckets, values = np.divmod(spots, self.size // len(self.buckets))
        if self.counts is None:
            return self.groups[values] * self.width + self.buckets[buckets], None
        counts = self.counts[values]
        owners = np.repeat(np.arange(len(spots)), counts)
        # The how manieth group of its value each is.
        steps = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = (np.cumsum(self.counts) - self.counts)[values]
        return self.groups[first[owners] + steps] * self.width + self.buckets[buckets][owners], owners


@attrs.frozen
class Bins:
    """How many spans of one segment there are of each bin of durations.

    `spots` are the numbers of bucket and value that have any, `starts` where the bins of each begin, which
    are in order.
    """

    spots: Numbers
    starts: Numbers
    bins: Numbers
    counts: Numbers


class _Groups(dict[str | None, int]):
    """The number of the group of each value that any segment had, or `_SEVERAL` where it has not one.

    Segments share most of their values: asking anew in each took 12 of the 60 ms of an answer by user at ten
    million spans, a line of Python for each value 8 of 47 (November 2026).
    """

    def __init__(self, groups_of: Callable[[str | None], Sequence[str | None]]) -> None:
        super().__init__()
        self._groups_of = groups_of
        #: The groups by their number, in order, and those of values that have not one.
        self.numbers: dict[str | None, int] = {}
        self._several: dict[str | None, Sequence[int]] = {}

    def __missing__(self, value: str | None) -> int:
        numbers = self.numbers
        groups = tuple(numbers.setdefault(group, len(numbers)) for group in self._groups_of(value))
        if len(groups) != 1:
            self._several[value] = groups
        self[value] = groups[0] if len(groups) == 1 else _SEVERAL
        return self[value]

    def of(self, values: Sequence[str | None]) -> tuple[Numbers, Numbers | None]:
        """The groups of these, one value after the other, and how many each has; None where all have one."""
        groups = np.fromiter(map(self.__getitem__, values), np.int64, len(values))
        if not self._several:
            return groups, None
        of_values = [self._several.get(value, (self[value],)) for value in values]
        return (
            np.array(list(chain.from_iterable(of_values)), dtype=np.int64),
            np.fromiter(map(len, of_values), np.int64, len(values)),
        )


@attrs.define(eq=False)
class SegmentSums:
    """What the segments so far come to, by place: a number of bucket and group."""

    question: Scan
    _groups: _Groups = attrs.field(init=False)
    #: Places, and their sums by name, of the segments since the last tidying and of all before.
    _parts: list[tuple[Numbers, Mapping[str, Numbers]]] = attrs.field(factory=list, init=False)
    _durations: dict[int, Numbers] = attrs.field(factory=dict, init=False)
    _hashes: dict[int, list[Hashes]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._groups = _Groups(self.question.groups_of)

    def places(self, buckets: Sequence[int], values: Sequence[str | None]) -> Places:
        """The places of a segment: its buckets by their number in the question, from one, and 0 for none.

        `values` are those of the column that splits the answer, None alone where there is no such column.
        """
        groups, counts = self._groups.of(values)
        return Places(
            buckets=np.array(buckets, dtype=np.int64),
            groups=groups,
            counts=counts,
            width=len(self.question.starts) + 1,
            size=len(buckets) * len(values),
        )

    def add_sums(self, places: Places, sums: Mapping[str, Numbers]) -> None:
        """Add sums of a segment, each by number of bucket and value."""
        spots = np.flatnonzero(sums[SPANS])
        keys, owners = places.of(spots)
        chosen = spots if owners is None else spots[owners]
        self._parts.append((keys, {name: numbers[chosen] for name, numbers in sums.items()}))

    def add_durations(self, places: Places, durations: Bins) -> None:
        """Add how many spans there are by bin."""
        if not len(durations.spots):
            return
        keys, owners = places.of(durations.spots)
        starts = [*durations.starts.tolist(), len(durations.bins)]
        for number, owner in zip(
            keys.tolist(), range(len(keys)) if owners is None else owners.tolist(), strict=True
        ):
            part = slice(starts[owner], starts[owner + 1])
            bins = durations.bins[part]
            size, before = int(bins[-1]) + 1, self._durations.get(number)
            if before is None or len(before) < size:
                longer = self._durations[number] = _zeros(size)
                if before is not None:
                    longer[: len(before)] = before
            self._durations[number][bins] += durations.counts[part]

    def add_hashes(self, places: Places, by_spot: Mapping[int, Hashes]) -> None:
        """Add the hashes of ids, each once for each number of bucket and value."""
        for number, hashes in _by_place(places, by_spot):
            self._hashes.setdefault(number, []).append(hashes)

    def count(self) -> int:
        """How many places have a span. A few may be counted once for each segment."""
        count = sum(len(keys) for keys, _ in self._parts)
        return self._tidy() if count > UNTIDY else count

    def _tidy(self) -> int:
        """Add up what lies side by side."""
        keys, positions = np.unique(np.concatenate([keys for keys, _ in self._parts]), return_inverse=True)
        added: dict[str, Numbers] = {}
        for name in {name for _, sums in self._parts for name in sums}:
            added[name] = _zeros(len(keys))
            numbers = [sums.get(name, _zeros(len(places))) for places, sums in self._parts]
            np.add.at(added[name], positions, np.concatenate(numbers))
        self._parts = [(keys, added)]
        return len(keys)

    def add_to(self, cells: dict[Key, Cell]) -> None:
        """Give each cell its own."""
        if not self._parts:
            return
        self._tidy()
        places, sums = self._parts[0]
        keys = self._keys(places)
        for key, cell in zip(keys.values(), self._cells(sums, len(places)), strict=True):
            before = cells.get(key)
            if before is None:
                cells[key] = cell
            else:
                before.add(cell)
        for number, counts in self._durations.items():
            bins = np.flatnonzero(counts)
            durations = dict(zip(bins.tolist(), counts[bins].tolist(), strict=True))
            cells[keys[number]].add(Cell(durations=durations))
        for number, parts in self._hashes.items():
            cells[keys[number]].add(Cell(distinct=DistinctIds.of_sorted(sorted_once(np.concatenate(parts)))))

    def _keys(self, places: Numbers) -> dict[int, Key]:
        starts: list[int | None] = [None, *self.question.starts]
        groups, width = list(self._groups.numbers), len(starts)
        return {number: (starts[number % width], groups[number // width]) for number in places.tolist()}

    def _cells(self, sums: Mapping[str, Numbers], count: int) -> list[Cell]:
        def of(name: str) -> list[int]:
            numbers: list[int] = sums.get(name, _zeros(count)).tolist()
            return numbers

        def whole(name: str) -> list[int]:
            if name + UPPER not in sums:
                return of(name)
            return [(upper << 32) + lower for upper, lower in zip(of(name + UPPER), of(name), strict=True)]

        measures = self.question.measures
        # What is not asked is zero for all.
        cells = [Cell(spans, errors) for spans, errors in zip(of(SPANS), of(ERRORS), strict=True)]
        if "cost" in measures:
            columns = map(whole, (COST, COST_REST, PRICED, UNPRICED))
            for cell, cost, cost_rest, priced, unpriced in zip(cells, *columns, strict=True):
                cell.cost, cell.priced, cell.unpriced = cost * _COST_UNIT + cost_rest, priced, unpriced
        if "tokens" in measures:
            for index, name in enumerate(TOKENS):
                for cell, rows, tokens in zip(cells, of(name + ROWS), whole(name), strict=True):
                    if rows:
                        cell.tokens = cell.tokens or [None] * len(TOKENS)
                        cell.tokens[index] = tokens
        return cells


def _zeros(count: int) -> Numbers:
    return np.zeros(count, dtype=np.int64)


def _by_place(places: Places, by_spot: Mapping[int, T]) -> Iterable[tuple[int, T]]:
    parts = list(by_spot.values())
    keys, owners = places.of(np.fromiter(by_spot, np.int64, len(parts)))
    return zip(keys.tolist(), parts if owners is None else [parts[owner] for owner in owners], strict=True)


def sorted_once(numbers: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Each number once, in order. `np.unique` hashes them first: 2 to 5 times as long (November 2026)."""
    ordered = np.sort(numbers)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(ordered) else ordered
