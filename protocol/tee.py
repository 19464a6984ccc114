"""What became of one request that the tee sent on: `svc.outside.tee` says it, `actors.tee` acts on it."""

from __future__ import annotations

import attrs


@attrs.frozen
class Delivered:
    """The endpoint took it."""


@attrs.frozen
class NotNow:
    """It did not answer, or asks to be asked later; `reason` quotes nothing of it."""

    reason: str
    after_s: float | None = None


@attrs.frozen
class Never:
    """It refuses this request, and would again."""

    reason: str


Outcome = Delivered | NotNow | Never
