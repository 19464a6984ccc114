"""A shift of a size as a finding needs it: both arms' alarms as one, and the two distributions it shows.

Owns: `DriftAlarm`, `clusters` (which alarms of the arms are one) and `Shown`. The drift engine calls it after
a look. Never decides whether something shifted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, Literal

import attrs

from svc.domain.detect.engine.drift_reference import DriftReference
from svc.domain.detect.engine.histogram import log_distance, log_quantile
from svc.domain.detect.engine.location_track import LocationAlarm
from svc.domain.detect.engine.onset import Onset
from svc.domain.detect.engine.rate_track import RateAlarm
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, STRATA, stratum
from svc.domain.detect.engine.tallies import SizeTallies

Direction = Literal["up", "down"]
Part = LocationAlarm | RateAlarm

#: What a finding shows is taken from the newest seven days since the onset.
SHOWN_SLOTS: Final = 7 * SLOTS_PER_DAY


@attrs.frozen
class Shown:
    """A distribution against the usual one of the same hours. `w1` is their distance on the log axis and
    `ratio` e to it, below one when smaller; quantiles are in units of the axis (1 ms or $0.00001).
    """

    rows: int
    w1: float
    ratio: float
    p50: float
    p95: float
    usual_p50: float
    usual_p95: float


@attrs.frozen
class DriftAlarm:
    """A shift of a size, by either arm or both: alarms that were live together are one. Slots.

    `locations` and `tails` are in order of firing. `shown` is None where no row is left to show.
    """

    direction: Direction
    locations: tuple[LocationAlarm, ...]
    tails: tuple[RateAlarm, ...]
    reference: DriftReference
    shown: Shown | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The alarms of both arms in order of firing."""
        parts: list[Part] = [*self.locations, *self.tails]
        return tuple(sorted(parts, key=_by_firing))

    @property
    def fired(self) -> int:
        """The slot after whose end it was known."""
        return self.parts[0].fired

    @property
    def onset(self) -> Onset:
        """The onset by the arm that fired first."""
        return self.parts[0].onset

    @property
    def confirmed(self) -> int | None:
        """When either arm had become ten times rarer than an alarm."""
        return min((p.confirmed for p in self.parts if p.confirmed is not None), default=None)

    @property
    def recurrences(self) -> int:
        """How often an arm fired while it was live."""
        return len(self.parts) - 1 + sum(p.recurrences for p in self.parts)

    @property
    def last_fired(self) -> int:
        """The newest firing of either arm."""
        return max(p.last_fired for p in self.parts)

    @property
    def recovered(self) -> int | None:
        """When the last of its arms went back, None while one is live."""
        ends = [p.recovered for p in self.parts]
        return None if None in ends else max(end for end in ends if end is not None)

    @property
    def recovery_known(self) -> int | None:
        """The slot in which the recovery was certain."""
        ends = [p.recovery_known for p in self.parts]
        return None if None in ends else max(end for end in ends if end is not None)


def _by_firing(part: Part) -> int:
    return part.fired


def clusters(direction: Direction, fired: Iterable[tuple[Part, DriftReference]]) -> tuple[DriftAlarm, ...]:
    """The alarms of both arms, oldest first: one that fires while another is live belongs to it.

    Each comes with the reference it fired against, which stays as it is as long as an alarm is live.
    """
    groups: list[list[tuple[Part, DriftReference]]] = []
    until: float = -math.inf
    for part, reference in sorted(fired, key=lambda pair: pair[0].fired):
        if part.fired > until:
            groups.append([])
            until = -math.inf
        groups[-1].append((part, reference))
        until = max(until, math.inf if part.recovery_known is None else part.recovery_known)
    return tuple(
        DriftAlarm(
            direction,
            tuple(part for part, _ in group if isinstance(part, LocationAlarm)),
            tuple(part for part, _ in group if isinstance(part, RateAlarm)),
            group[0][1],
        )
        for group in groups
    )


def with_shown(alarm: DriftAlarm, tallies: SizeTallies, now: int) -> DriftAlarm:
    """The alarm with the distribution of its newest rows, until its recovery or `now`."""
    end = now if alarm.recovered is None else alarm.recovered
    rows = tallies.between(max(alarm.onset.median, end - SHOWN_SLOTS), end)
    if not len(rows.slots):
        return alarm
    by_stratum = rows.by_group(stratum(rows.slots), STRATA)
    present = by_stratum.sum(axis=0)
    usual = alarm.reference.mixture(by_stratum.sum(axis=1))
    w1 = log_distance(present, usual)
    return attrs.evolve(
        alarm,
        shown=Shown(
            rows=int(present.sum()),
            w1=w1,
            ratio=math.exp(w1 if alarm.direction == "up" else -w1),
            p50=math.exp(log_quantile(present, 0.5)),
            p95=math.exp(log_quantile(present, 0.95)),
            usual_p50=math.exp(log_quantile(usual, 0.5)),
            usual_p95=math.exp(log_quantile(usual, 0.95)),
        ),
    )
