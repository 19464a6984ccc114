"""What a detector keeps of one subject: the state of the engine that judges it, whichever that is.

Owns: `Watched` and `BucketState`. The judge makes them, the store keeps them, lists show them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from svc.domain.detect.detectors.base import MEASURES, MeasureName
from svc.domain.detect.detectors.malformed_output import Learned
from svc.domain.detect.engine.drift_engine import DriftSettings, DriftState
from svc.domain.detect.engine.rate_engine import RateSettings, RateState
from svc.domain.detect.findings.states import (
    STALE_SLOTS,
    BucketReport,
    Hindrance,
    drift_view,
    rate_view,
    report,
)


@attrs.frozen(order=True)
class Watched:
    """A measure of a subject: a call site or a tool, as `observed.site` and `observed.tool` name it."""

    measure: MeasureName
    subject: str

    @property
    def whole(self) -> tuple[MeasureName, str, str]:
        """The name of its tallies, under no detail."""
        return self.measure, self.subject, ""

    @property
    def reference(self) -> str:
        """What findings and moves call what it is compared with."""
        return f"{self.measure}:{self.subject}"

    @classmethod
    def of_reference(cls, reference: str | None) -> Watched | None:
        """The subject that is called so; None where it names no measure."""
        measure, _, subject = (reference or "").partition(":")
        return cls(measure, subject) if measure in MEASURES else None


@attrs.frozen
class BucketState:
    """The state after the slots before `cursor`: of a rate, or of a size, or of neither for events.

    `learned` is what the answers of a call site have in common where no schema says it; `prose` that they
    were looked at and are no JSON, so that nothing is judged; `parted` that every agent at the call site is
    watched by itself, and so the whole is not any more.
    """

    cursor: int
    rate: RateState | None = None
    drift: DriftState | None = None
    learned: Learned | None = None
    prose: bool = False
    parted: bool = False

    @property
    def watches(self) -> bool:
        """Whether it has learned what is usual, or that there is nothing to learn."""
        return self.prose or (self.rate is not None and self.rate.reference is not None)

    def is_silent(self, now: int) -> bool:
        """Whether a rate has had no traffic for so long that nobody waits for it."""
        last_seen = None if self.rate is None else self.rate.last_seen
        return last_seen is not None and now - last_seen > STALE_SLOTS

    @property
    def alarmed(self) -> bool:
        """Whether an alarm is live, in whichever direction."""
        tracks = [
            *((self.rate.rise, self.rate.fall) if self.rate is not None else ()),
            *((self.drift.up, self.drift.down, self.drift.tail) if self.drift is not None else ()),
        ]
        return any(track.alarm is not None for track in tracks)

    def reported(
        self, now: int, months: float, tuning: Mapping[str, float], *, muted: bool = False
    ) -> BucketReport | None:
        """What the bucket says of itself at this slot, None where only events count."""
        hindrance: Hindrance | None = "no_schema_and_not_json" if self.prose else None
        if self.parted:
            hindrance = "by_agent"
        if self.rate is not None:
            view = rate_view(self.rate, RateSettings.tuned(months, tuning))
            return report(view, now, hindrance=hindrance, muted=muted)
        if self.drift is not None:
            view = drift_view(self.drift, DriftSettings.tuned(months, tuning))
            return report(view, now, hindrance=hindrance, muted=muted)
        return BucketReport("quiet", hindrance) if hindrance else None
