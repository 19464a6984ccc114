"""What a detector is: a row of the table, and the function behind it.

Owns: `Detector`, `Tunable` and `ObserverContext`, what an observer may know beside the trace. Each detector's
file makes one, `table.py` lists them. Pure; never any state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol

import attrs

from svc.domain.detect.detectors.observed import MeasureName, Observation
from svc.domain.detect.detectors.settled_trace import SettledTrace

Grain = Literal["trace", "span", "session"]
Engine = Literal["rate", "drift", "event"]


class Schema(Protocol):
    """A compiled JSON Schema."""

    def is_valid(self, instance: object) -> bool: ...


@attrs.frozen(eq=False)
class ObserverContext:
    """What an observer knows beside the trace: what call sites should answer, by id, each schema with a hash
    of its text; and the key under which secrets are told apart, without which nobody looks for them.
    """

    schemas: Mapping[str, tuple[str, Schema]] = attrs.field(factory=dict)
    secret_key: bytes = attrs.field(default=b"", repr=False)


@attrs.frozen
class Tunable:
    """One thing that people may set: what it is without them, and between which bounds it stays."""

    default: float
    low: float
    high: float

    def clamped(self, value: float) -> float:
        """The value within the bounds."""
        return min(max(value, self.low), self.high)


@attrs.frozen(eq=False)
class Detector:
    """One detector.

    `sentence` says to a user what it finds, `grain` what one firing is about, `engine` who judges: the rate
    engine, the drift engine, or nobody, because one event is enough. `measures` are what is judged, first of
    all, and `observe` makes the observations of a trace, those of `also` too. `needs` names what the install
    must have before it can run at all; `unavailable` is what is said without it.
    """

    name: str
    sentence: str
    grain: Grain
    engine: Engine
    measures: tuple[MeasureName, ...]
    observe: Callable[[SettledTrace, ObserverContext], Iterable[Observation]] | None = None
    also: tuple[MeasureName, ...] = ()
    tuning: Mapping[str, Tunable] = attrs.field(factory=dict)
    needs: Literal["encoder"] | None = None
    unavailable: str | None = None
