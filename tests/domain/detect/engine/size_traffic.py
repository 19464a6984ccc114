"""Simulated sizes for the drift engine, over whole days from a Monday on, shared with the bench."""

from __future__ import annotations

import numpy as np

from svc.domain.detect.engine.arrays import Floats
from svc.domain.detect.engine.axis import UNIT_MS
from svc.domain.detect.engine.drift_engine import DriftJudgement, DriftSettings, DriftState, judge_drift
from svc.domain.detect.engine.histogram import bins_of
from svc.domain.detect.engine.tallies import SizeTallies
from tests.domain.detect.engine.traffic import DAY, START


def sizes(
    random: np.random.Generator,
    days: int,
    rows_a_day: float,
    *,
    shift: Floats | None = None,
    sigma: float = 0.8,
    day_noise: float = 0.0,
    season: float = 0.0,
    heavy: bool = False,
    growth: float = 0.0,
    tail: tuple[int, float, float] | None = None,
) -> SizeTallies:
    """Log-normal milliseconds about two seconds.

    `shift` is added to the log by slot, `day_noise` is the deviation of a whole day's log, `season` the
    amplitude of day and night; with `heavy` the log follows Student's t with 3 degrees of freedom; traffic
    grows by `growth` of itself; from the slot `tail[0]` on the share `tail[1]` of rows takes `tail[2]` times
    as long.
    """
    day = np.arange(days * DAY) // DAY
    rows = random.poisson(rows_a_day / DAY * (1 + growth * day / days))
    slots = np.repeat(np.arange(days * DAY), rows)
    logs = np.log(2_000.0) + season * np.sin(2 * np.pi * (slots % DAY) / DAY)
    logs += random.normal(0, 1, days)[slots // DAY] * day_noise
    if shift is not None:
        logs += shift[slots]
    noise = random.standard_t(3, len(slots)) / np.sqrt(3) if heavy else random.normal(0, 1, len(slots))
    logs += sigma * noise
    if tail is not None:
        first, share, times = tail
        logs += np.where((slots >= first) & (random.random(len(slots)) < share), np.log(times), 0.0)
    return SizeTallies.of_values(slots + START, bins_of(np.exp(logs), UNIT_MS))


def drifted(tallies: SizeTallies, days: int, settings: DriftSettings | None = None) -> DriftJudgement:
    """Judged from the start, as if live."""
    return judge_drift(tallies, settings or DriftSettings(), DriftState.start(START), START + days * DAY)
