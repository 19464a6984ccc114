"""What the store and its callers say to each other: batches, outcomes, outages, notices.

Shapes only. The actors' ports speak in them, the store answers in them; neither knows the other.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import attrs

from protocol.tokens import Scope


class Outage(Exception):
    """Something outside is away (the database, a broker). Waiting helps; the text is for the operator."""


class StoreRefused(Exception):
    """The database refuses this very data; trying the same again gives the same answer."""


@attrs.frozen
class Batch:
    """One accepted request: a clean, inflated OTLP protobuf body and what is known of it.

    `received_at` is aware UTC; `received_s` is the same moment on the monotonic clock of this process.
    """

    project_id: int
    body: bytes = attrs.field(repr=False)
    spans: int
    received_at: datetime
    received_s: float
    key_id: str = ""

    #: What a batch costs beside its body: the object, its queue entry, its lease.
    OVERHEAD_BYTES: ClassVar[int] = 512

    @property
    def size_bytes(self) -> int:
        """What the batch counts for in the spool's budget."""
        return len(self.body) + self.OVERHEAD_BYTES


@attrs.frozen
class Written:
    """What became of the spans of one write: new rows, and re-sent spans that replaced or met an equal."""

    stored: int
    duplicates: int


@attrs.frozen
class Letter:
    """One span (or, when it cannot be taken apart, one batch) that could not be stored, and why."""

    project_id: int
    reason: str
    body: bytes = attrs.field(repr=False)
    received_at: datetime
    spans: int


@attrs.frozen
class Settled:
    """What one settling round did: traces looked at, and of these how many became settled."""

    seen: int
    settled: int


@attrs.frozen
class KeyRecord:
    """A stored, active key of a living project, as needed for verification.

    Secrets: `secret_hash` is a bcrypt hash; it is left out of the repr.
    """

    key_id: str
    project_id: int
    scope: Scope
    secret_hash: bytes = attrs.field(repr=False)


@attrs.frozen
class Eviction:
    """A notice that a key, or all keys of a project, or (both None) any key, may no longer be trusted."""

    key_id: str | None = None
    project_id: int | None = None


@attrs.frozen
class Deleted:
    """A deleted project of which something may be left."""

    project_id: int
    deleted_at: datetime


@attrs.frozen
class Built:
    """One round of building cubes: hours built, and whether more are waiting."""

    hours: int
    more: bool


@attrs.frozen
class Freed:
    """What one step of a retention sweep took away: whole days of a table, or rows of it."""

    table: str
    days: int = 0
    rows: int = 0
    bytes: int = 0
