"""`{p}/classifiers/{id}/buckets` and `/backtest`: what each bucket says of itself, and what would have fired.

Both take CPU time that grows with the buckets, so the stores think in threads, and one backtest runs at a
time in a process. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import trio

from protocol.refusals import (
    BACKTEST_RUNNING,
    DETECTOR_UNAVAILABLE,
    NO_BACKTEST,
    NO_SUCH_DETECTOR,
    NOT_TUNABLE,
    Refusal,
)
from protocol.rest.classifiers import (
    BacktestAlarm,
    BacktestAsked,
    BacktestShown,
    BucketPage,
    BucketShown,
    BucketsQuery,
)
from protocol.rest.query import timestamp
from svc.domain.detect.findings.bucket import Watched
from svc.domain.detect.findings.changes import Change
from svc.domain.detect.findings.finding_text import instant
from svc.front.api.cases.classifiers import CLASSIFIER, check_tunables, running
from svc.front.api.routes import Route
from svc.front.auth.calls import Call
from svc.store.detection.judging.backtest import ALARMS, BacktestStore
from svc.store.detection.judging.bucket_reports import BucketReported, BucketReports
from svc.store.detection.judging.detector_settings import DetectorSettingStore, tuned
from svc.store.postgres.keyset import Keyset

_BUCKETS: Final = Keyset("buckets", (("measure", "text"), ("subject", "text")))

_backtesting: Final = trio.CapacityLimiter(1)


async def get_buckets(call: Call[None]) -> BucketPage:
    """What each bucket of a detector says of itself: learning, armed, in alarm, stale, or quiet and why."""
    detector, query = running(call), call.query
    reports = await BucketReports(call.means.questions).of(
        call.project.id,
        detector.name,
        false_alarms_per_month=call.means.false_alarms_per_month,
        now=call.means.now(),
    )
    buckets = [_bucket_view(report) for report in reports]
    counts: dict[str, int] = {}
    for bucket in buckets:
        counts[bucket.state] = counts.get(bucket.state, 0) + 1
    position = _BUCKETS.place(query.cursor)
    matches = [
        bucket
        for bucket in buckets
        if query.state in (None, bucket.state)
        and (position is None or [bucket.measure, bucket.subject] > position)
    ]
    rows = matches[: query.limit]
    has_more = len(matches) > query.limit
    cursor = _BUCKETS.cursor({"measure": rows[-1].measure, "subject": rows[-1].subject}) if has_more else None
    return BucketPage(rows, counts, cursor)


def _bucket_view(reported: BucketReported) -> BucketShown:
    report = reported.report
    return BucketShown(
        reported.bucket.measure,
        reported.bucket.subject,
        report.state,
        report.reason,
        report.have,
        report.need,
        report.eta_days,
        report.ratio,
        report.smallest,
        timestamp(instant(reported.cursor)),
    )


async def post_backtest(call: Call[BacktestAsked]) -> BacktestShown | Refusal:
    """Say what a detector would have raised over the tallies that are kept; nothing is written."""
    detector = running(call)
    if detector.engine == "event":
        return NO_BACKTEST
    if call.body.tuning is not None:
        check_tunables(detector, call.body.tuning)
        tuning: Mapping[str, float] = tuned(detector, call.body.tuning)
    else:
        tuning = (await DetectorSettingStore(call.means.questions).of(call.project.id))[detector.name].tuning
    try:
        _backtesting.acquire_nowait()
    except trio.WouldBlock:
        return BACKTEST_RUNNING
    try:
        backtest = await BacktestStore(call.means.questions).run(
            call.project.id,
            detector,
            tuning,
            days=call.body.days,
            false_alarms_per_month=call.means.false_alarms_per_month,
        )
    finally:
        _backtesting.release()
    return BacktestShown(
        call.body.days,
        dict(tuning),
        backtest.buckets,
        backtest.left_out,
        backtest.implied,
        [_alarm(bucket, change) for bucket, change in backtest.alarms[:ALARMS]],
        len(backtest.alarms) > ALARMS,
    )


def _alarm(bucket: Watched, change: Change) -> BacktestAlarm:
    def at(slot: Any) -> str:
        return timestamp(instant(slot))

    return BacktestAlarm(
        bucket.measure,
        bucket.subject,
        change.direction,
        at(change.fired + 1),
        at(change.onset.median),
        change.confirmed,
        None if change.recovered is None else at(change.recovered),
        change.recurrences,
    )


_REFUSALS: Final[tuple[Refusal, ...]] = (NO_SUCH_DETECTOR, DETECTOR_UNAVAILABLE)

ROUTES: Final = (
    Route(
        "GET", CLASSIFIER + "/buckets", "ORG_VIEW", get_buckets, BucketPage, query=BucketsQuery,
        refusals=_REFUSALS,
    ),
    Route(
        "POST", CLASSIFIER + "/backtest", "ORG_MANAGE", post_backtest, BacktestShown, body=BacktestAsked,
        refusals=(*_REFUSALS, NOT_TUNABLE, NO_BACKTEST, BACKTEST_RUNNING),
    ),
)  # fmt: skip
