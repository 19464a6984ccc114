"""Distinct traces by the ends of their ids: all of a question, or the smallest so many once there are more.

An end is the last half of an id, sixteen digits. `scanning` adds those of each segment,
`svc.store.reads.questions.columns.traces` those of rows. What is kept does not depend on the order in which
ends come. Pure; holds no more than `SPARE` times what is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs
import numpy as np

Digits = np.ndarray[Any, np.dtype[np.uint8]]
#: Ends as two numbers each, in the order in which bytes are compared.
_Words = np.ndarray[Any, np.dtype[np.uint64]]

DIGITS: Final = 16
_BYTES: Final = 8
#: So many times what is kept comes in before it is put in order.
SPARE: Final = 4


@attrs.define(eq=False)
class SmallestEnds:
    """The smallest `most` ends of all that were added, each once."""

    most: int
    #: Ends from here on are left out, once some were.
    _limit: _Words | None = attrs.field(default=None, init=False)
    _batches: list[_Words] = attrs.field(factory=list, init=False)
    _size: int = attrs.field(default=0, init=False)

    def add(self, digits: Digits) -> None:
        """Add ends, a row of digits each."""
        words = np.ascontiguousarray(digits).view(">u8").astype(np.uint64)
        if self._limit is not None:
            words = words[_below(words, self._limit)]
        self._batches.append(words)
        self._size += len(words)
        if self._size > SPARE * self.most:
            self._shorten()

    def add_texts(self, ends: Iterable[str]) -> None:
        """Add ends as texts."""
        self.add(np.frombuffer("".join(ends).encode(), np.uint8).reshape(-1, DIGITS))

    def smallest(self) -> tuple[list[bytes], bytes | None]:
        """They, in order, eight bytes each, and the first that was left out, if any was."""
        self._shorten()
        return _bytes_of(self._batches[0]), None if self._limit is None else _bytes_of(self._limit)[0]

    def _shorten(self) -> None:
        words = np.concatenate([*self._batches, np.empty((0, 2), np.uint64)])
        words = words[np.lexsort((words[:, 1], words[:, 0]))]
        words = words[np.concatenate(([True], (words[1:] != words[:-1]).any(axis=1)))[: len(words)]]
        if len(words) > self.most:
            self._limit = words[self.most]
            words = words[: self.most]
        self._batches, self._size = [words], len(words)


def _bytes_of(words: _Words) -> list[bytes]:
    ends = bytes.fromhex(words.astype(">u8").tobytes().decode())
    return [ends[first : first + _BYTES] for first in range(0, len(ends), _BYTES)]


def _below(words: _Words, limit: _Words) -> np.ndarray[Any, np.dtype[np.bool_]]:
    first, second = words[:, 0], words[:, 1]
    below: np.ndarray[Any, np.dtype[np.bool_]] = (first < limit[0]) | (
        (first == limit[0]) & (second < limit[1])
    )
    return below
