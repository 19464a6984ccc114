"""Bodies and answers of `POST /v1/feedback` and `{p}/feedback`: what people and programs think of an answer.

Shapes and plain checks only; what an entry may hold is decided by `svc.domain.feedback.entries`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from protocol.rest.accounts import Instant

#: Entries of one request.
ENTRIES_MAX = 1_000

PageSize = Annotated[int, Meta(ge=1, le=500)]
Source = Literal["api", "page", "span"]


class FeedbackNew(msgspec.Struct, forbid_unknown_fields=True):
    """What somebody says on the pages; who says it is who is signed in. Ids of traces and spans are
    hexadecimal.
    """

    name: str
    trace_id: str | None = None
    span_id: str | None = None
    session_id: str | None = None
    number: float | None = None
    category: str | None = None
    text: str | None = None


class FeedbackEntry(FeedbackNew, forbid_unknown_fields=True):
    """One entry as a program sends it: with its own id, who says it, and when that was."""

    id: str | None = None
    author: str | None = None
    at: str | None = None


class FeedbackTaken(msgspec.Struct, rename="camel", omit_defaults=True):
    """What became of a request: how many of its entries were refused, and why the first was."""

    rejected_feedback: int = 0
    error_message: str = ""


class FeedbackAnswer(msgspec.Struct, rename="camel", omit_defaults=True):
    """The answer of the door; `partialSuccess` is there when something was refused."""

    partial_success: FeedbackTaken | None = None


class FeedbackBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/feedback`: entries one by one, each kept or refused by itself."""

    feedback: list[msgspec.Raw]


class FeedbackShown(msgspec.Struct):
    """One entry as it is kept. `at` is when it was judged, `created_at` when it came."""

    id: str
    source: Source
    name: str
    trace_id: str | None
    span_id: str | None
    session_id: str | None
    number: float | None
    category: str | None
    text: str | None
    author: str | None
    at: Instant
    created_at: Instant


class FeedbackPage(msgspec.Struct):
    """Entries, the newest first."""

    feedback: list[FeedbackShown]
    next_cursor: str | None


class FeedbackQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What a list of entries is narrowed to."""

    name: str | None = None
    trace_id: str | None = None
    session_id: str | None = None
    limit: PageSize = 100
    cursor: str | None = None


class FeedbackName(msgspec.Struct):
    """A name of feedback over a range: its entries, the mean of their numbers with its 95 % interval, and the
    range of all numbers so far. `better` says which end is the good one; `is_set` that somebody said so.
    Of a name without numbers detectors watch the categories in `watched`; those in `bad` were called so.
    """

    name: str
    entries: int
    numbers: int
    mean: float | None
    interval: tuple[float, float] | None
    low: float | None
    high: float | None
    better: Literal["higher", "lower"]
    is_set: bool
    categories: dict[str, int]
    watched: list[str]
    bad: list[str]


class FeedbackNames(msgspec.Struct):
    """All names of the project that were said in the range."""

    names: list[FeedbackName]


class NamesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The range, of instants as texts; without it all there is."""

    from_: str | None = msgspec.field(name="from", default=None)
    to: str | None = None


class BetterBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which end of a name's numbers is the good one; null leaves it to the name."""

    better: Literal["higher", "lower"] | None


class BadCategoriesBody(msgspec.Struct, forbid_unknown_fields=True):
    """The categories of a name that are bad: more of them is worse."""

    categories: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=50)]


class FeedbackGone(msgspec.Struct):
    """It was taken away."""
