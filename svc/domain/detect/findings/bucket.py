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
from svc.domain.detect.findings.states import BucketReport, Hindrance, drift_view, rate_view, report


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
    were looked at and are no JSON, so that nothing is judged.
    """

    cursor: int
    rate: RateState | None = None
    drift: DriftState | None = None
    learned: Learned | None = None
    prose: bool = False

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
        if self.rate is not None:
            view = rate_view(self.rate, RateSettings.tuned(months, tuning))
            return report(view, now, hindrance=hindrance, muted=muted)
        if self.drift is not None:
            view = drift_view(self.drift, DriftSettings.tuned(months, tuning))
            return report(view, now, hindrance=hindrance, muted=muted)
        return BucketReport("quiet", hindrance) if hindrance else None
