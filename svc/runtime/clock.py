"""The wall clock. Intervals and deadlines use Trio's own, which never jumps."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The wall clock: aware UTC."""
    return datetime.now(UTC)
