"""Secrets in transit: what opening a sealed value can come to, and messages whose text tells none."""

from __future__ import annotations

import attrs
import msgspec


@attrs.frozen
class Lost:
    """A value that cannot be opened, and why, for the operator."""

    reason: str


class Unlogged(msgspec.Struct):
    """The base of messages with a secret in them: a log or a traceback shows their class alone."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"
