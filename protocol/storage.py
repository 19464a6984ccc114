"""What the store and its callers say to each other: batches, outcomes, outages, notices.

Shapes only. The actors' ports speak in them, the store answers in them; neither knows the other.
"""

from __future__ import annotations

from datetime import datetime
from traceback import extract_tb
from typing import ClassVar, Final, Literal

import attrs

from protocol.text import clean
from protocol.tokens import Scope

_REASON_CHARS: Final = 500


class Outage(Exception):
    """Something outside is away (the database, a broker). Waiting helps; the text is for the operator."""

    #: How long to wait, where whoever raises it knows better than who waits.
    pause_s: float | None = None


class Slow(Outage):
    """The database did not answer in time: it may be busy, or away."""


class StoreRefused(Exception):
    """The database refuses this very data; trying the same again gives the same answer."""


class WriteFailed(Exception):
    """Data could not be decoded or written, for a cause that nobody foresaw: a bug, as a rule.

    Secrets: `reason` may quote a payload and belongs into a dead letter only; `place` may be logged.
    """

    def __init__(self, reason: str, place: str) -> None:
        super().__init__(place)
        self.reason, self.place = reason, place

    @classmethod
    def of(cls, error: Exception) -> WriteFailed:
        """What an unforeseen error is called from here on."""
        frame = extract_tb(error.__traceback__)[-1]
        # It may quote any character, and burying must not fail of that.
        reason = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
        return cls(
            clean(reason)[:_REASON_CHARS],
            f"{type(error).__name__} in {frame.name} ({frame.filename}:{frame.lineno})",
        )


class SinkLost(Exception):
    """Whoever wrote the data died with it in hand: written or not, trying again is right."""


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
    """What one settling round did: traces looked at, and of these how many became settled.

    `next_at` is when the next trace is due, where none was; None when none will be.
    """

    seen: int
    settled: int
    next_at: datetime | None = None


@attrs.frozen
class KeyRecord:
    """A stored key, as needed for verification. `revoked` is also one of a deleted project.

    Secrets: `secret_hash` is a bcrypt hash; it is left out of the repr.
    """

    key_id: str
    project_id: int
    scope: Scope
    secret_hash: bytes = attrs.field(repr=False)
    revoked: bool = False
    #: What alone it opens, and until when; None: it is a key like any other.
    purpose: str | None = None
    expires_at: datetime | None = None


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


#: What can be erased: a trace, a session, all data of a user.
Erasable = Literal["trace", "session", "user"]


@attrs.frozen
class ErasedNote:
    """What must be erased again after a restore of an older backup: a keyed digest of an id, and its key."""

    project: str
    kind: Erasable
    salt: str
    digest: str
    asked_at: datetime


@attrs.frozen
class Freed:
    """What one step of a retention sweep took away: whole days of a table, or rows of it."""

    table: str
    days: int = 0
    rows: int = 0
    bytes: int = 0


@attrs.frozen
class Census:
    """What the heartbeat makes its buckets of. `traces_last_day` is counted up to a bound only."""

    install_id: str
    orgs: int
    projects: int
    traces_last_day: int
