"""What has been tallied of a bucket, as values: counts of failures by slot, histograms of sizes by slot.

Owns: `RateTallies` and `SizeTallies`, their addition and subtraction. A trace that changes is subtracted as
it was tallied and added anew, so that any order of tallying ends in the same numbers. Whoever tallies and
whoever judges use them. Never holds a value of its own making: arrays are kept as they are given.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from svc.domain.detect.engine.arrays import Flags, Floats, Ints
from svc.domain.detect.engine.axis import BINS
from svc.domain.detect.engine.histogram import Histogram, centres
from svc.domain.detect.engine.slots import block_of_week
from svc.domain.lazy_numpy import np


@attrs.frozen(eq=False)
class RateTallies:
    """Units and failures by slot; `slots` strictly ascending. Raises `ValueError` when they are not so,
    or when a slot holds fewer failures than none or more than its units.
    """

    slots: Ints
    units: Ints
    failures: Ints

    def __attrs_post_init__(self) -> None:
        if not len(self.slots) == len(self.units) == len(self.failures):
            raise ValueError("slots, units and failures differ in number")
        if len(self.slots) and (
            bool(np.any(np.diff(self.slots) <= 0))
            or int(self.failures.min()) < 0
            or bool(np.any(self.failures > self.units))
        ):
            raise ValueError("slots must ascend, and failures lie between none and the units")

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int]]) -> RateTallies:
        """From rows of slot, units and failures in any order; rows of one slot are added up."""
        table = np.array(list(rows), dtype=np.int64).reshape(-1, 3)
        return _summed(table[:, 0], table[:, 1], table[:, 2])

    def add(self, other: RateTallies) -> RateTallies:
        return _summed(
            np.concatenate((self.slots, other.slots)),
            np.concatenate((self.units, other.units)),
            np.concatenate((self.failures, other.failures)),
        )

    def subtract(self, other: RateTallies) -> RateTallies:
        """Without the other. Raises `ValueError` when it was never part of this."""
        return _summed(
            np.concatenate((self.slots, other.slots)),
            np.concatenate((self.units, -other.units)),
            np.concatenate((self.failures, -other.failures)),
        )

    def between(self, first: int, end: int) -> RateTallies:
        """Those of the slots `[first, end)`, as views."""
        i, j = np.searchsorted(self.slots, (first, end))
        return RateTallies(self.slots[i:j], self.units[i:j], self.failures[i:j])

    def only(self, flags: Flags) -> RateTallies:
        """The rows where `flags` is true."""
        return RateTallies(self.slots[flags], self.units[flags], self.failures[flags])


@attrs.frozen(eq=False)
class SizeTallies:
    """Histograms by slot: one row a slot and bin, ascending by slot, then bin, every count above zero.

    Raises `ValueError` when they are not so.
    """

    slots: Ints
    bins: Ints
    counts: Ints

    def __attrs_post_init__(self) -> None:
        if not len(self.slots) == len(self.bins) == len(self.counts):
            raise ValueError("slots, bins and counts differ in number")
        if len(self.slots) and (
            bool(np.any(np.diff(self.slots * BINS + self.bins) <= 0))
            or int(self.counts.min()) < 1
            or int(self.bins.min()) < 0
            or int(self.bins.max()) >= BINS
        ):
            raise ValueError("rows must ascend by slot and bin, and every count be above zero")

    @classmethod
    def of(cls, rows: Iterable[tuple[int, Histogram]]) -> SizeTallies:
        """From a histogram a slot, in any order; those of one slot are merged."""
        slots: list[int] = []
        bins: list[int] = []
        counts: list[int] = []
        for slot, histogram in rows:
            slots += [slot] * len(histogram.bins)
            bins += histogram.bins
            counts += histogram.counts
        return _sized(np.array(slots, np.int64), np.array(bins, np.int64), np.array(counts, np.int64))

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[int, int, int]]) -> SizeTallies:
        """From rows of slot, bin and count in any order; rows of one slot and bin are added up."""
        table = np.array(list(rows), dtype=np.int64).reshape(-1, 3)
        return _sized(table[:, 0], table[:, 1], table[:, 2])

    @classmethod
    def of_values(cls, slots: Ints, bins: Ints) -> SizeTallies:
        """From the slot and the bin (see `histogram.bins_of`) of each value."""
        return _sized(slots, bins, np.ones(len(slots), np.int64))

    def add(self, other: SizeTallies) -> SizeTallies:
        return _sized(
            np.concatenate((self.slots, other.slots)),
            np.concatenate((self.bins, other.bins)),
            np.concatenate((self.counts, other.counts)),
        )

    def subtract(self, other: SizeTallies) -> SizeTallies:
        """Without the other. Raises `ValueError` when it was never part of this."""
        return _sized(
            np.concatenate((self.slots, other.slots)),
            np.concatenate((self.bins, other.bins)),
            np.concatenate((self.counts, -other.counts)),
        )

    def between(self, first: int, end: int) -> SizeTallies:
        """Those of the slots `[first, end)`, as views."""
        i, j = np.searchsorted(self.slots, (first, end))
        return SizeTallies(self.slots[i:j], self.bins[i:j], self.counts[i:j])

    def only(self, flags: Flags) -> SizeTallies:
        """The rows where `flags` is true."""
        return SizeTallies(self.slots[flags], self.bins[flags], self.counts[flags])

    def by_group(self, groups: Ints, size: int) -> Floats:
        """Dense counts, shape (size, BINS), of the rows by the group that each row is given."""
        cells = np.zeros(size * BINS)
        cells += np.bincount(groups * BINS + self.bins, weights=self.counts, minlength=size * BINS)
        return cells.reshape(size, BINS)

    def mean(self, less: Iterable[tuple[int, int]] = ()) -> float | None:
        """The mean in units of the axis, without so many rows of these bins; None of none."""
        counts = np.bincount(self.bins, weights=self.counts, minlength=BINS)
        for bin_, rows in less:
            counts[bin_] = max(counts[bin_] - rows, 0.0)
        total = float(counts.sum())
        return float((counts * np.exp(centres())).sum()) / total if total else None

    def tails(self, thresholds: Ints) -> RateTallies:
        """Rows at or above the bin that `thresholds` names for each of them, as failures, by slot."""
        if not len(self.slots):
            return RateTallies(self.slots, self.counts, self.counts)
        starts = np.flatnonzero(np.diff(self.slots, prepend=self.slots[0] - 1))
        above = np.where(self.bins >= thresholds, self.counts, 0)
        return RateTallies(
            self.slots[starts], np.add.reduceat(self.counts, starts), np.add.reduceat(above, starts)
        )


def _summed(slots: Ints, units: Ints, failures: Ints) -> RateTallies:
    order = np.argsort(slots, kind="stable")
    slots = slots[order]
    if not len(slots):
        return RateTallies(slots, units, failures)
    starts = np.flatnonzero(np.diff(slots, prepend=slots[0] - 1))
    units = np.add.reduceat(units[order], starts)
    failures = np.add.reduceat(failures[order], starts)
    slots = slots[starts]
    nonzero = (units != 0) | (failures != 0)
    return RateTallies(slots[nonzero], units[nonzero], failures[nonzero])


def _sized(slots: Ints, bins: Ints, counts: Ints) -> SizeTallies:
    keys = slots * BINS + bins
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    if not len(keys):
        return SizeTallies(slots, bins, counts)
    starts = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    counts = np.add.reduceat(counts[order], starts)
    nonzero = counts != 0
    keys = keys[starts][nonzero]
    return SizeTallies(keys // BINS, keys % BINS, counts[nonzero])


def blocks_held(slots: Ints) -> int:
    """The blocks of the week that these slots touch, as a set of bits."""
    bits = 0
    for block in np.unique(block_of_week(slots)):
        bits |= 1 << int(block)
    return bits
