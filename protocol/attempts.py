"""An attempt at a password as copies of the service tell one another."""

from __future__ import annotations

from typing import Literal

import attrs

#: An attempt that counts, one that does not after all, or an end to all of this name.
Change = Literal["counted", "taken_back", "forgotten"]


@attrs.frozen
class CountedAttempt:
    """What happened to one count: of which limit, under which name (a digest; who it is nobody needs)."""

    limit: str
    name: bytes
    change: Change


@attrs.frozen
class ReportedAttempt:
    """What another copy told, and how long ago that was."""

    what: CountedAttempt
    age_s: float


@attrs.frozen
class ReportedAttempts:
    """What the other copies reported: where they begin next time, and what is new."""

    seen: dict[str, int]
    attempts: tuple[ReportedAttempt, ...]
