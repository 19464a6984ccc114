"""Whether a finding is confirmed by rule, without anybody looking: all of six conditions, or which fail.

Owns: `Evidence`, `failing` and the sentence for each condition. Whoever keeps findings calls it after each
look; people and agents may always decide otherwise. Never confirms a secret: a high-band one is at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import attrs

from svc.domain.detect.engine.slots import SLOTS_PER_DAY, block_of_week
from svc.domain.quantities import money, percent, times

Condition = Literal["direction", "rarity", "spread", "size", "reference", "explained"]

LEAST_SLOTS: Final = 3
LEAST_TRACES: Final = 5
LEAST_SESSIONS: Final = 2
#: A rate that has doubled, as it is measured: against a reference that came out high, or since an onset
#: while it was still rising. Measured 2026-11, 1,000 units a day from 4 to 8 % within three days, 60
#: buckets: 0.45 of the alarms measure twice as much or more, 0.95 this; where it rises by a half 0.15 do.
RATE_TIMES: Final = 1.8
RATE_POINTS: Final = 0.05
SIZE_TIMES: Final = 1.25
DOLLARS_A_DAY: Final = 10.0
REFERENCE_SLOTS: Final = 7 * SLOTS_PER_DAY

#: Why a finding stays withheld, (a) to (f) in order.
REASONS: Final[Mapping[Condition, str]] = {
    "direction": "it is an improvement",
    "rarity": "it is not yet ten times rarer than an alarm by chance",
    "spread": f"it has fewer than {LEAST_SLOTS} slots, {LEAST_TRACES} traces or {LEAST_SESSIONS} sessions",
    "size": f"it is smaller than {times(RATE_TIMES)} or +{percent(RATE_POINTS)} for rates, "
    f"{times(SIZE_TIMES)} for sizes, {money(DOLLARS_A_DAY)} a day for costs",
    "reference": "the reference is shorter than 7 days or lacks this part of the week",
    "explained": "a confirmed finding explains it",
}


@attrs.frozen
class Evidence:
    """What the rule looks at. `rarer` is whether the engine's alarm is `confirmed`; `slots`, `traces` and
    `sessions` count witnesses. `rate` is (usual, present) of a rate, `ratio` that of a size, `dollars_a_day`
    what it costs more. `reference` is its first slot and end, `blocks` the blocks of the week in it, as bits;
    `seen_at` the newest slot of the change. `explained_by` is the key of a confirmed finding.
    """

    harmful: bool
    rarer: bool
    slots: int
    traces: int
    sessions: int
    reference: tuple[int, int]
    blocks: int
    seen_at: int
    rate: tuple[float, float] | None = None
    ratio: float | None = None
    dollars_a_day: float = 0.0
    explained_by: str | None = None


def failing(evidence: Evidence) -> tuple[Condition, ...]:
    """The conditions that do not hold, in order; none of them: confirmed by rule."""
    first, end = evidence.reference
    holds: dict[Condition, bool] = {
        "direction": evidence.harmful,
        "rarity": evidence.rarer,
        "spread": evidence.slots >= LEAST_SLOTS
        and evidence.traces >= LEAST_TRACES
        and evidence.sessions >= LEAST_SESSIONS,
        "size": _large(evidence),
        "reference": end - first >= REFERENCE_SLOTS
        and bool(evidence.blocks >> block_of_week(evidence.seen_at) & 1),
        "explained": evidence.explained_by is None,
    }
    return tuple(condition for condition, verdict in holds.items() if not verdict)


def _large(evidence: Evidence) -> bool:
    if evidence.dollars_a_day >= DOLLARS_A_DAY:
        return True
    if evidence.rate is not None:
        usual, present = evidence.rate
        # 35 % less 30 % is five points, whatever the fractions round to.
        return present >= RATE_TIMES * usual or present - usual >= RATE_POINTS - 1e-9
    return evidence.ratio is not None and evidence.ratio >= SIZE_TIMES
