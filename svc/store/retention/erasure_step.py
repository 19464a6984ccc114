"""One step of an erasure: what it is given, and what it says back. Made and noted by `erasing`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

import attrs

from svc.store.postgres.database import Connection
from svc.store.retention.erasures import Erasure

#: The phase of an erasure that is over.
DONE: Final = "done"


@attrs.frozen(eq=False)
class ErasureStep:
    """A transaction in which the erasure is locked, and where the step before it ended in this phase."""

    connection: Connection
    erasure: Erasure
    place: tuple[str, ...]
    now: datetime

    @property
    def subject(self) -> str:
        """Whom it is about; it is known until it is done."""
        assert self.erasure.subject is not None, "an erasure that is done makes no step"
        return self.erasure.subject


@attrs.frozen(eq=False)
class StepOutcome:
    """Where the next step of the phase begins, or that it is over; what was erased, and days that changed."""

    place: tuple[str, ...] = ()
    over: bool = False
    counts: Mapping[str, int] = attrs.field(factory=dict)
    days: Collection[datetime] = ()
