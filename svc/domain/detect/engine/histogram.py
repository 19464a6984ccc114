"""Sparse histograms of sizes, on the axis that `axis` has.

Owns: `Histogram` (merge, subtract, quantiles, tail counts), the bins of values, and the same figures for many
histograms at once as dense rows. Tallies, the drift engine and whoever shows a distribution call it. Never
keeps a single value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Final

import attrs

from svc.domain.detect.engine.arrays import Floats, Ints
from svc.domain.detect.engine.axis import BINS, LN_RATIO
from svc.domain.lazy_numpy import np

#: The share of rows pulled in at either end before the mean is taken.
WINSORISED: Final = 0.005


@cache
def centres() -> Floats:
    """ln(value / unit) at the middle of each bin."""
    return np.arange(0.5, BINS, dtype=np.float64) * LN_RATIO


def bins_of(values: Floats, unit: float) -> Ints:
    """The bin of each value, of which `unit` is the lower end of the first."""
    logs = np.log(np.maximum(values, unit) / unit) / LN_RATIO
    # A value that stands on a border belongs above it, whatever the logarithm rounds to.
    return np.clip(np.floor(logs + 1e-9), 0, BINS - 1).astype(np.int64)


@attrs.frozen
class Histogram:
    """Counts above zero by bin, bins ascending. Raises `ValueError` when they are not so."""

    bins: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()

    def __attrs_post_init__(self) -> None:
        ascending = all(a < b for a, b in zip(self.bins, self.bins[1:], strict=False))
        if not ascending or any(count < 1 for count in self.counts) or len(self.bins) != len(self.counts):
            raise ValueError("bins must ascend, and every count be above zero")
        if self.bins and not 0 <= self.bins[0] <= self.bins[-1] < BINS:
            raise ValueError("a bin outside the axis")

    @classmethod
    def of_values(cls, values: Iterable[float], unit: float) -> Histogram:
        """Of single values, in the unit's own measure."""
        return cls.of_dense(np.bincount(bins_of(np.array(list(values), np.float64), unit), minlength=BINS))

    @classmethod
    def of_dense(cls, counts: Ints | Floats) -> Histogram:
        """Of whole counts of all bins, shape (BINS,). Raises `ValueError` on a negative one."""
        bins = np.flatnonzero(counts)
        return cls(tuple(bins.tolist()), tuple(int(count) for count in counts[bins]))

    @property
    def total(self) -> int:
        """The number of rows."""
        return sum(self.counts)

    def dense(self) -> Floats:
        """Counts of all bins, shape (BINS,)."""
        counts = np.zeros(BINS)
        counts[list(self.bins)] = self.counts
        return counts

    def merge(self, other: Histogram) -> Histogram:
        return Histogram.of_dense(self.dense() + other.dense())

    def subtract(self, other: Histogram) -> Histogram:
        """Without the other. Raises `ValueError` when it was never part of this."""
        return Histogram.of_dense(self.dense() - other.dense())

    def quantile(self, q: float, unit: float) -> float:
        """The q-quantile in the unit's own measure. Raises `ValueError` of an empty histogram."""
        return unit * math.exp(log_quantile(self.dense(), q))

    def at_least(self, value: float, unit: float) -> int:
        """How many rows lie in the bin of the value or above it."""
        bin_ = int(bins_of(np.array([value]), unit)[0])
        return sum(count for b, count in zip(self.bins, self.counts, strict=True) if b >= bin_)


def log_quantile(counts: Floats, q: float) -> float:
    """ln(value / unit) at the q-quantile of dense counts, even inside a bin. Raises `ValueError` of none."""
    cumulative = np.cumsum(counts)
    if cumulative[-1] <= 0:
        raise ValueError("no rows, no quantile")
    rank = q * cumulative[-1]
    bin_ = min(int(np.searchsorted(cumulative, rank)), int(np.flatnonzero(counts)[-1]))
    if counts[bin_] == 0:
        bin_ = int(np.flatnonzero(counts)[0])
    inside = (rank - (cumulative[bin_] - counts[bin_])) / counts[bin_]
    return (bin_ + min(max(float(inside), 0.0), 1.0)) * LN_RATIO


def winsorised(rows: Floats) -> tuple[Floats, Floats, Floats]:
    """Rows, mean log and variance of the log of histograms, shape (n, BINS), outermost rows pulled in.

    At either end the outermost half percent takes the value of the row next to it, so that a tail of a few
    rows moves neither figure much. An empty histogram has mean and variance 0.
    """
    n = rows.sum(axis=1)
    cumulative = np.cumsum(rows, axis=1)
    low = (cumulative <= WINSORISED * n[:, None]).sum(axis=1)
    high = (cumulative < (1 - WINSORISED) * n[:, None]).sum(axis=1)
    bins = np.arange(BINS)
    values = (np.clip(bins, np.minimum(low, BINS - 1)[:, None], high[:, None]) + 0.5) * LN_RATIO
    safe = np.maximum(n, 1)
    mean = (rows * values).sum(axis=1) / safe
    variance = (rows * (values - mean[:, None]) ** 2).sum(axis=1) / np.maximum(n - 1, 1)
    return n, mean, variance


def log_distance(left: Floats, right: Floats) -> float:
    """The first Wasserstein distance of two dense histograms on the log axis, 0 when either is empty."""
    if not left.sum() or not right.sum():
        return 0.0
    return float(np.abs(np.cumsum(left / left.sum() - right / right.sum())).sum() * LN_RATIO)
