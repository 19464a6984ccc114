"""What a detector would have said: its engine run again over the tallies that are kept.

Reads tallies and judges them from the start, with a tuning that need not be the one in force; nothing is
written. The front and the command line call it. Bounds: the busiest `SUBJECTS` of a detector, and a time; how
many are left out for want of either is told. Only what stands slot by slot is judged: older tallies are by
the hour, in which one bad five minutes cannot be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

from svc.domain.detect.detectors.base import Detector
from svc.domain.detect.engine.bars import budget_months
from svc.domain.detect.engine.slots import LATENESS_S, SLOT_S, SLOTS_PER_DAY
from svc.domain.detect.findings.bucket import BucketState, Watched
from svc.domain.detect.findings.changes import Change
from svc.domain.detect.findings.implied import implied_alarms
from svc.domain.detect.findings.judging import Judgement, judge
from svc.store.detection.judging.bucket_states import BucketStates
from svc.store.detection.judging.judge_evidence import JudgeEvidenceStore
from svc.store.postgres.database import READ_TIMEOUT_S, Database

#: Subjects that one backtest judges, the busiest first.
SUBJECTS: Final = 500
#: How long one may take before the rest is left out.
TIME_S: Final = 20.0
#: Alarms that a backtest lists, the newest.
ALARMS: Final = 1_000

# How far what was counted reaches, and from where it stands slot by slot.
_REACH: Final = """
select newest_slot, greatest(hours_before, gone_before) as first from fold_state where project_id = $1
"""

# The subjects of a measure with their first slot, the busiest first.
_SUBJECTS: Final = """
select b.subject, min(t.slot) as first, sum(t.units)::bigint as units, count(*) over () as subjects
from tally_bucket b join tally t on t.project_id = b.project_id and t.bucket_id = b.id
where b.project_id = $1 and b.measure = $2 and t.slot >= $3 and t.slot < $4 and t.units > 0
group by 1 order by 3 desc, 1 limit $5
"""


@attrs.frozen
class Backtest:
    """What came of it: how many subjects were judged, how many left out, and the alarms, newest first.

    `implied` is how many alarms a month chance alone raises over those that were judged, tuned so.
    """

    buckets: int
    left_out: int
    implied: float
    alarms: Sequence[tuple[Watched, Change]]


@attrs.define(eq=False)
class BacktestStore:
    """Raises `Outage`."""

    database: Database

    async def run(
        self,
        project_id: int,
        detector: Detector,
        tuning: Mapping[str, float],
        *,
        days: int,
        false_alarms_per_month: float,
        time_s: float = TIME_S,
    ) -> Backtest:
        """The alarms of a detector that would have fired within so many days before the watermark.

        Judges in a thread, subject by subject. Cancellation: is waited for by the subject under way.
        """
        months = budget_months(await BucketStates(self.database).armed(project_id), false_alarms_per_month)
        rows = await self.database.fetch(_REACH, project_id)
        if not rows or rows[0]["newest_slot"] is None:
            return Backtest(0, 0, 0.0, ())
        until = rows[0]["newest_slot"] - LATENESS_S // SLOT_S
        since = until - days * SLOTS_PER_DAY
        deadline = trio.current_time() + time_s
        alarms: list[tuple[Watched, Change]] = []
        subjects, left_out = await self._subjects(project_id, detector, rows[0]["first"], until)
        states: list[BucketState] = []
        for bucket, first in subjects:
            if trio.current_time() > deadline:
                left_out += 1
                continue
            judgement = await self._judged(project_id, bucket, first, until, months, tuning)
            states.append(judgement.state)
            alarms += [(bucket, change) for change in judgement.changes if change.fired >= since]
        alarms.sort(key=lambda alarm: (-alarm[1].fired, alarm[0]))
        implied = await trio.to_thread.run_sync(implied_alarms, states, months, tuning)
        return Backtest(len(states), left_out, implied, alarms)

    async def _subjects(
        self, project_id: int, detector: Detector, first: int, until: int
    ) -> tuple[list[tuple[Watched, int]], int]:
        """The busiest subjects of all measures with their first slots, and how many there are beyond."""
        busiest: list[tuple[int, Watched, int]] = []
        total = 0
        for measure in detector.measures:
            # Down the keys of the measure's subjects.
            rows = await self.database.fetch(
                _SUBJECTS, project_id, measure, first, until, SUBJECTS, timeout_s=READ_TIMEOUT_S
            )
            busiest += [(row["units"], Watched(measure, row["subject"]), row["first"]) for row in rows]
            total += rows[0]["subjects"] if rows else 0
        busiest.sort(key=lambda entry: (-entry[0], entry[1]))
        return [(bucket, first_slot) for _, bucket, first_slot in busiest[:SUBJECTS]], total - min(
            len(busiest), SUBJECTS
        )

    async def _judged(
        self,
        project_id: int,
        bucket: Watched,
        first: int,
        until: int,
        months: float,
        tuning: Mapping[str, float],
    ) -> Judgement:
        counted = await JudgeEvidenceStore(self.database).counted(project_id, bucket, first, until)
        return await trio.to_thread.run_sync(judge, None, first, counted, months, tuning, until)
