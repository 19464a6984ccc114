"""Why the inbox is empty, by the step a project is on: connected or not, learning, or watching and quiet.

Asked for only when nothing needs anybody. What a bucket says of itself is worked out by the store, in a
thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import attrs

from svc.domain.detect.detectors.table import DETECTORS, lacking
from svc.domain.detect.findings.finding_text import subject_of
from svc.store.detection.judging.bucket_reports import BucketReports
from svc.store.detection.judging.detector_health import DetectorHealthStore
from svc.store.detection.judging.detector_settings import DetectorSettingStore
from svc.store.reads.onboarding import OnboardingReads
from svc.web.shell.page import Visit

Step = Literal["connect", "listening", "off", "learning", "watching"]
#: Subjects that are named while they are learned.
NAMED: Final = 5


@attrs.frozen
class Learning:
    """One subject that is learned: so many of so many, and when about that is enough."""

    detector: str
    name: str
    have: int
    need: int
    ready_at: datetime | None


@attrs.frozen
class EmptyInbox:
    """The step, and what there is to tell of it."""

    step: Step
    judged_at: datetime | None = None
    armed: int = 0
    learning: Sequence[Learning] = ()
    learning_count: int = 0


async def empty_inbox_of(visit: Visit) -> EmptyInbox:
    """The step of the visit's project."""
    steps = await OnboardingReads(visit.means.database).steps(visit.project.id)
    if steps.trace is None:
        return EmptyInbox("listening" if steps.keys and steps.used_at is not None else "connect")
    database, now = visit.means.questions, visit.means.now()
    settings = await DetectorSettingStore(database).of(visit.project.id)
    running = [
        name
        for name, detector in DETECTORS.items()
        if settings[name].enabled and lacking(detector, visit.means.installed) is None
    ]
    if not running:
        return EmptyInbox("off")
    health = await DetectorHealthStore(database).of(visit.project.id, now)
    judged = [detector.judged_at for detector in health.detectors.values() if detector.judged_at is not None]
    armed, learning = 0, []
    for name in running:
        if (
            not health.detectors
            or not (detector_health := health.detectors.get(name))
            or not detector_health.buckets
        ):
            continue
        for bucket_report in await BucketReports(database).of(
            visit.project.id,
            name,
            false_alarms_per_month=visit.means.false_alarms_per_month,
            now=now,
        ):
            report = bucket_report.report
            if report.state == "learning" and report.need is not None:
                eta = None if report.eta_days is None else now + timedelta(days=report.eta_days)
                learning.append(
                    Learning(name, subject_of(bucket_report.bucket)[1], report.have or 0, report.need, eta)
                )
            elif report.state in ("armed", "alarm", "quiet"):
                armed += 1
    learning.sort(key=lambda one: (one.ready_at is None, one.ready_at or now, one.name))
    return EmptyInbox(
        "watching" if armed else "learning",
        max(judged, default=None),
        armed,
        learning[:NAMED],
        len(learning),
    )
