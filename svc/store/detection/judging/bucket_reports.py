"""What the buckets of a detector say of themselves: learning, armed, in alarm, stale, or quiet and why.

Reads the states that the judge keeps, how far events reach, and which findings are muted. The front and the
command line ask. Bars are worked out in a thread, one listing at a time, because the first look at many kinds
of traffic takes up to a second of CPU. Never judges.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

import attrs
import trio

from svc.domain.detect.engine.bars import budget_months
from svc.domain.detect.engine.slots import LATENESS_S, SLOT_S
from svc.domain.detect.findings.bucket import BucketState, Watched
from svc.domain.detect.findings.implied import implied_alarms
from svc.domain.detect.findings.states import BucketReport
from svc.domain.marks.detector import MARK_OF, MARKS_DETECTOR
from svc.store.detection.judging.bucket_states import BucketStates
from svc.store.detection.judging.detector_health import DetectorHealthStore
from svc.store.detection.judging.detector_settings import DetectorSettingStore
from svc.store.detection.judging.mark_settings import MarkSettingStore
from svc.store.postgres.database import Database

_listing: Final = trio.CapacityLimiter(1)


@attrs.frozen
class BucketReported:
    """A bucket, up to which slot it was judged, and what it says."""

    bucket: Watched
    cursor: int
    report: BucketReport


@attrs.define(eq=False)
class BucketReports:
    """Raises `Outage`."""

    database: Database

    async def of(
        self, project_id: int, detector: str, *, false_alarms_per_month: float, now: datetime
    ) -> list[BucketReported]:
        """Every bucket of a detector that has something to say, by name; there are at most `STATES_READ`."""
        states, health = BucketStates(self.database), DetectorHealthStore(self.database)
        by_bucket = await states.all(project_id, detector)
        muted = await health.muted(project_id, detector, now)
        if detector == MARKS_DETECTOR.name:
            marks = await MarkSettingStore(self.database).of(project_id)
            muted = {
                *muted,
                *(b.reference for b in by_bucket if (m := MARK_OF.get(b.measure)) and marks[m].muted),
            }
        newest = await health.newest_slot(project_id)
        months = budget_months(await states.armed(project_id), false_alarms_per_month)
        tuning = (await DetectorSettingStore(self.database).of(project_id))[detector].tuning
        return await trio.to_thread.run_sync(
            _reports, by_bucket, newest, months, tuning, muted, limiter=_listing
        )

    async def implied(
        self, project_id: int, detector: str, tuning: Mapping[str, float], *, false_alarms_per_month: float
    ) -> float:
        """Alarms a month that chance alone raises over the buckets of a detector, tuned so."""
        states = BucketStates(self.database)
        by_bucket = await states.all(project_id, detector)
        months = budget_months(await states.armed(project_id), false_alarms_per_month)
        return await trio.to_thread.run_sync(
            implied_alarms, list(by_bucket.values()), months, tuning, limiter=_listing
        )


def _reports(
    by_bucket: Mapping[Watched, BucketState],
    newest: int | None,
    months: float,
    tuning: Mapping[str, float],
    muted: Collection[str],
) -> list[BucketReported]:
    reports = []
    for bucket, state in sorted(by_bucket.items()):
        # The watermark of the project; a bucket may have been judged past it before the newest went.
        now = state.cursor if newest is None else max(state.cursor, newest - LATENESS_S // SLOT_S)
        report = state.reported(now, months, tuning, muted=bucket.reference in muted)
        if report is not None:
            reports.append(BucketReported(bucket, state.cursor, report))
    return reports
