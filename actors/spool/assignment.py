"""What was taken from a partition of a broker, and how far it is done.

Owns the rule of committing: a position never passes a batch that is not stored, in whatever order drainers
finish. The broker spool calls it; it knows no broker and no queue.
"""

from __future__ import annotations

from collections import deque

import attrs

from actors.spool.memory import Entry


class Assignment:
    """What was taken from one partition in one assignment, and how far all of it is done, without a gap."""

    def __init__(self, partition: int) -> None:
        self.partition, self.live = partition, True
        self._generation = 0
        self._open: deque[int] = deque()
        self._done: set[int] = set()

    def take(self, offset: int) -> int:
        """Note an offset that arrived. Returns its generation.

        An offset that is not above the last one begins a new generation: the partition was made anew, or is
        read again. What was taken before is still worth storing, and says nothing about the position.
        """
        if self._open and offset <= self._open[-1]:
            self._generation += 1
            self._open.clear()
            self._done.clear()
        self._open.append(offset)
        return self._generation

    def settle(self, offset: int, generation: int) -> int | None:
        """Note that an offset is done. Returns the new position when this moved it."""
        if generation != self._generation or not self.live:
            return None
        self._done.add(offset)
        position = None
        while self._open and self._open[0] in self._done:
            offset_ = self._open.popleft()
            self._done.remove(offset_)
            position = offset_ + 1
        return position


@attrs.define(eq=False, kw_only=True)
class TakenEntry(Entry):
    """A batch from the broker, and the assignment it came with. `damage` says why it is none."""

    source: Assignment
    offset: int
    generation: int
    data: bytes = attrs.field(repr=False)
    damage: str | None = None
