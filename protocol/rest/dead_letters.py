"""Bodies and answers of dead letters: what could not be stored, and what somebody does about it.

Shapes and plain checks only. Instants are texts in our form (`protocol.rest.query.timestamp`).

Secrets: what a letter holds goes out masked, as spans do.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from protocol.rest.accounts import Instant

LETTERS_AT_ONCE: Final = 1_000
REASON_MAX: Final = 10_000

LetterId = Annotated[int, Meta(ge=1, le=2**63 - 1)]
LetterReason = Annotated[str, Meta(max_length=REASON_MAX)]


class LettersQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which letters: of a reason, behind a cursor, so many a page."""

    reason: LetterReason | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50


class LettersChosen(msgspec.Struct, forbid_unknown_fields=True):
    """Which letters: these, those of one reason, or with `all` every one of the project. Just one of the
    three.
    """

    ids: Annotated[list[LetterId], Meta(min_length=1, max_length=LETTERS_AT_ONCE)] | None = None
    reason: LetterReason | None = None
    all: bool = False


class LetterListed(msgspec.Struct):
    """A letter without what it holds. `service` is null when that cannot be told without opening it."""

    id: int
    reason: str
    spans: int
    bytes: int
    received_at: Instant
    buried_at: Instant
    service: str | None


class LetterReasonCount(msgspec.Struct):
    """The letters of one reason."""

    reason: str
    letters: int
    spans: int
    bytes: int
    newest_at: Instant


class LetterPage(msgspec.Struct):
    """Letters, the newest first, and of all letters of the project the most frequent reasons."""

    letters: list[LetterListed]
    reasons: list[LetterReasonCount]
    next_cursor: str | None


class LetterSpan(msgspec.Struct):
    """One span of a letter, with its secrets masked."""

    trace_id: str
    span_id: str
    name: str
    attributes: dict[str, Any]
    resource: dict[str, Any]


class LetterWhole(msgspec.Struct):
    """A letter with what it holds. `fault`: why its bytes are no spans, else null."""

    id: int
    reason: str
    spans: int
    bytes: int
    received_at: Instant
    buried_at: Instant
    holds: list[LetterSpan]
    fault: str | None


class LettersReplayed(msgspec.Struct):
    """What became of a replay: letters that went, spans stored anew (what is stored already is not stored
    twice), letters refused once more (they stay, with the new reason), and letters that nobody came to yet.
    """

    letters: int
    stored: int
    refused: int
    left: int


class LettersDiscarded(msgspec.Struct):
    """How many letters were deleted for good."""

    letters: int


class LettersFetched(msgspec.Struct):
    """How many letters came from the broker."""

    letters: int
