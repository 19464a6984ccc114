"""Ids of traces by their ends: those whose last eight bytes are among some, or are the smallest.

Whoever makes an id, its end is random, so those with the smallest ends are a sample by a fixed rule. Called
by `svc.store.reads.traces.ids_by_end` with ids side by side, in a thread. Pure; holds no more than `SPARE`
times what is kept. Needs numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from svc.domain.lazy_numpy import np
from svc.domain.queries.id_pieces import ID_BYTES

#: Of each id its two halves, as numbers in the order of their bytes.
_Halves = np.ndarray[Any, np.dtype[np.uint64]]

#: So many times what is kept comes in before the larger ends are left out.
SPARE: Final = 4


def ends_of(ends: Sequence[bytes]) -> _Halves:
    """Ends as numbers, in the order in which they came."""
    return np.frombuffer(b"".join(ends), ">u8").astype(np.uint64)


@attrs.define(eq=False)
class IdsByEnd:
    """The ids with ends below `limit`, if there is one, and among these, if they are given: the smallest.

    `among` are in order. No more than `most` are kept.
    """

    most: int
    limit: int | None = None
    among: _Halves | None = None
    #: How many ids came, how many of them have ends below the limit, and how many of those are among these.
    came: int = attrs.field(default=0, init=False)
    below: int = attrs.field(default=0, init=False)
    fitting: int = attrs.field(default=0, init=False)
    _kept: list[_Halves] = attrs.field(factory=list, init=False)
    _size: int = attrs.field(default=0, init=False)
    #: The largest end that is kept, once any was left out.
    _largest: np.uint64 | None = attrs.field(default=None, init=False)

    def add(self, packed: bytes) -> None:
        """Add ids that stand side by side."""
        ids = np.frombuffer(packed, ">u8").reshape(-1, 2)
        ends = ids[:, 1].astype(np.uint64)
        self.came += len(ends)
        if self.limit is not None:
            ids, ends = _chosen(ids, ends, ends < self.limit)
        self.below += len(ends)
        if self.among is not None:
            places = np.searchsorted(self.among, ends)
            # Behind the last one there is none.
            padded = np.append(self.among, np.uint64(0))
            ids, ends = _chosen(ids, ends, (padded[places] == ends) & (places < len(self.among)))
        self.fitting += len(ends)
        if self._largest is not None:
            ids, ends = _chosen(ids, ends, ends <= self._largest)
        self._kept.append(ids.astype(np.uint64))
        self._size += len(ends)
        if self._size > SPARE * self.most:
            self._shorten()

    def smallest(self, size: int) -> list[bytes]:
        """The ids with the smallest ends, in their order, at most so many."""
        self._shorten()
        ids, _ = _smallest(self._kept[0], size)
        packed = ids[np.lexsort((ids[:, 0], ids[:, 1]))[:size]].astype(">u8").tobytes()
        return [packed[first : first + ID_BYTES] for first in range(0, len(packed), ID_BYTES)]

    def _shorten(self) -> None:
        ids, largest = _smallest(np.concatenate([*self._kept, np.empty((0, 2), np.uint64)]), self.most)
        self._largest = self._largest if largest is None else largest
        self._kept, self._size = [ids], min(len(ids), self.most)


def _smallest(ids: _Halves, most: int) -> tuple[_Halves, np.uint64 | None]:
    """Those with the smallest ends, and the largest of these if any was left out; those of one end together,
    so that the order in which they came is no matter.
    """
    if len(ids) <= most:
        return ids, None
    largest = np.partition(ids[:, 1], most - 1)[most - 1]
    return ids[ids[:, 1] <= largest], largest


def _chosen(ids: Any, ends: _Halves, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[Any, _Halves]:
    return ids[mask], ends[mask]
