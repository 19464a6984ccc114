"""What the broker spool and the client of a broker say to each other: messages, positions, answers.

Shapes only; neither knows the other. A broker keeps messages in numbered partitions, each message under an
offset that grows; a position is the offset of the first message that is not done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import attrs

#: Where a message goes: to the batches that wait for the database, or to what could not be stored.
Lane = Literal["batches", "dead letters"]

#: What became of a message: persisted, not taken now (the broker is away or busy), or too large for ever.
Published = Literal["accepted", "full", "never"]


@attrs.frozen
class Arrival:
    """A message that the broker hands out."""

    partition: int
    offset: int
    value: bytes = attrs.field(repr=False)


@attrs.frozen
class Backlog:
    """What no replica has finished yet, over all partitions; `oldest_s` is Unix time, None when empty."""

    messages: int = 0
    oldest_s: float | None = None


class Inbox(Protocol):
    """What a broker's client tells, always from the Trio thread and in the order in which things happened."""

    def away(self, reason: str) -> None: ...

    def back(self) -> None: ...

    def assigned(self, partitions: Sequence[int]) -> None: ...

    def revoked(self, partitions: Sequence[int]) -> None: ...

    def arrived(self, messages: Sequence[Arrival]) -> None: ...

    def measured(self, backlog: Backlog) -> None: ...
