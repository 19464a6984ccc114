"""Laws of a look: whatever a subject is counted by, people may say that the present is normal."""

from __future__ import annotations

import attrs
import numpy as np

from svc.domain.detect.engine.slots import SLOTS_PER_DAY
from svc.domain.detect.engine.tallies import RateTallies
from svc.domain.detect.findings.judging import judge, moved

START = 20_000 * SLOTS_PER_DAY
DAYS = 20
BROKEN = 14 * SLOTS_PER_DAY


def every_hour(units: int, since: int = 0, until: int = DAYS * SLOTS_PER_DAY) -> RateTallies:
    slots = START + np.arange(since, until, 12)
    return RateTallies(slots, np.full(len(slots), units), np.zeros(len(slots), np.int64))


def test_answers_that_have_changed_their_form_can_be_the_new_normal() -> None:
    shapes = {'["object","total"]': every_hour(10), '["prose"]': every_hour(10, BROKEN)}
    end = START + DAYS * SLOTS_PER_DAY
    judged = judge(None, START, shapes, 50.0, {}, end)
    [change] = judged.changes
    assert abs(change.onset.median - START - BROKEN) <= 24
    assert isinstance(judged.counted, RateTallies)
    run = judged.counted.between(START + BROKEN, end)
    present = moved(judged.state, run, START + BROKEN, end)
    assert present is not None
    assert present.rate is not None
    assert present.rate.reference is not None
    assert present.rate.reference.rate == 0.5
    # From then on half of them is what is usual.
    again = judge(attrs.evolve(present), START, shapes, 50.0, {}, end + SLOTS_PER_DAY)
    assert again.changes == []
