"""An alarm as a finding needs it, whichever engine raised it.

Owns: `Change`, and how it is taken of an alarm of a rate or of a size. The judge calls it, `finding_text`
puts it into words, `case_rules` weigh it. Pure; slots throughout.
"""

from __future__ import annotations

import math
from typing import Literal

import attrs

from svc.domain.detect.engine.change_point import Onset
from svc.domain.detect.engine.drift_track import DriftAlarm, LocationAlarm, Shown
from svc.domain.detect.engine.from_birth import CASE_EVIDENCE, BadFromBirth, ln_evidence
from svc.domain.detect.engine.rate_track import Proportion, RateAlarm
from svc.domain.detect.engine.slots import SLOTS_PER_DAY

Direction = Literal["up", "down"]


@attrs.frozen
class Usual:
    """What the present is compared with: slots `[first, end)`, and the blocks of the week in it, as bits."""

    first: int
    end: int
    blocks: int


@attrs.frozen
class Change:
    """What was seen to change. `fired` is the slot after whose end it was known, `last_fired` the newest
    firing, `confirmed` whether it became ten times rarer than an alarm, `recovered` and `known` when the old
    state came back and when that was sure.

    Rates have `was` and `now`, sizes `shown`. `chance_days` is after how many days chance alone does this,
    None where nobody compares: bad from birth, which has no `usual` either.
    """

    direction: Direction
    fired: int
    last_fired: int
    onset: Onset
    confirmed: bool
    recurrences: int
    arm: str
    statistic: float
    bar: float
    phi: float = 1.0
    recovered: int | None = None
    known: int | None = None
    usual: Usual | None = None
    was: Proportion | None = None
    now: Proportion | None = None
    shown: Shown | None = None
    chance_days: float | None = None


def of_rate(alarm: RateAlarm, direction: Direction, units_a_day: float) -> Change:
    """Of a rate that rose or fell, where the subject has so many units a day."""
    reference = alarm.reference
    return Change(
        direction=direction,
        fired=alarm.fired,
        last_fired=alarm.last_fired,
        onset=alarm.onset,
        confirmed=alarm.confirmed is not None,
        recurrences=alarm.recurrences,
        arm=alarm.arm,
        statistic=alarm.statistic,
        bar=alarm.bar,
        phi=alarm.phi,
        recovered=alarm.recovered,
        known=alarm.recovery_known,
        usual=Usual(reference.first, reference.end, reference.blocks),
        was=Proportion(reference.units, reference.failures),
        now=alarm.present,
        chance_days=alarm.chance_units / units_a_day if units_a_day else None,
    )


def of_early(early: BadFromBirth, first: int) -> Change:
    """Of a rate that is bad from birth, where the subject was first seen in slot `first`."""
    total = early.total
    return Change(
        direction="up",
        fired=early.since,
        last_fired=early.since,
        onset=Onset(first, first, early.since),
        confirmed=early.certain is not None,
        recurrences=0,
        arm="early",
        statistic=max(ln_evidence(total.units, total.failures), 0.0),
        bar=math.log(CASE_EVIDENCE),
        recovered=early.recovered,
        known=early.known,
        now=total,
    )


def of_drift(alarm: DriftAlarm, rows_a_day: float) -> Change:
    """Of a size that grew or shrank, where the subject has so many rows a day."""
    reference, part = alarm.reference, alarm.parts[0]
    span_days = max(reference.end - reference.first, SLOTS_PER_DAY) / SLOTS_PER_DAY
    chance_days = None
    if isinstance(part, LocationAlarm):
        arm, phi = "location", 1.0
        if reference.windows:
            chance_days = part.chance_windows * span_days / reference.windows
    else:
        arm, phi = "tail", part.phi
        chance_days = part.chance_units / rows_a_day if rows_a_day else None
    return Change(
        direction=alarm.direction,
        fired=alarm.fired,
        last_fired=alarm.last_fired,
        onset=alarm.onset,
        confirmed=alarm.confirmed is not None,
        recurrences=alarm.recurrences,
        arm=arm,
        statistic=part.statistic,
        bar=part.bar,
        phi=phi,
        recovered=alarm.recovered,
        known=alarm.recovery_known,
        usual=Usual(reference.first, reference.end, reference.blocks),
        shown=alarm.shown,
        chance_days=chance_days,
    )
