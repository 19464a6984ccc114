"""Bodies and answers of erasures: what was asked to be erased, and how far that is.

Shapes and plain checks only. Instants are texts in our form (`protocol.rest.query.timestamp`).

Secrets: no answer says whom an erasure is about; `digest` is a keyed digest of the id.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from protocol.rest.accounts import Instant
from protocol.storage import Erasable

SUBJECT_MAX: Final = 10_000


class ErasureRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to erase: a trace by its 32 hexadecimal digits, a session, or all data of a user."""

    kind: Erasable
    id: Annotated[str, Meta(min_length=1, max_length=SUBJECT_MAX)]


class ErasureShown(msgspec.Struct):
    """One erasure. It is done when `finished_at` is set; `counts` says what is gone so far."""

    id: str
    kind: Erasable
    digest: str
    asked_by: str
    asked_at: Instant
    phase: str
    counts: dict[str, int]
    finished_at: Instant | None


class ErasureList(msgspec.Struct):
    """The newest erasures of a project."""

    erasures: list[ErasureShown]
