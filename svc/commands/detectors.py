"""`trace-svc detectors list | backtest`: what watches a project, and what would have fired.

Works beside a running server and writes nothing.
"""

from __future__ import annotations

import argparse
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from protocol.operator import OperatorError
from protocol.refusals import DETECTOR_UNAVAILABLE, NO_BACKTEST, NO_SUCH_DETECTOR
from protocol.rest.query import timestamp
from svc.application.bounds import installed
from svc.application.open_store import open_store
from svc.commands.target import name_project, named_project
from svc.commands.terminal import lists_bare, minute, offer_json, print_columns, print_json
from svc.config.table import Settings
from svc.domain.detect.detectors.base import Detector
from svc.domain.detect.detectors.table import DETECTORS, lacking
from svc.domain.detect.findings.finding_text import instant
from svc.domain.quantities import count
from svc.store.detection.judging.backtest import BacktestStore
from svc.store.detection.judging.bucket_reports import BucketReports
from svc.store.detection.judging.detector_settings import DetectorSettingStore
from svc.store.postgres.database import Database

#: Nobody else waits for a command.
BACKTEST_TIME_S = 300.0


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs and their arguments."""
    verbs = parser.add_subparsers(dest="verb", metavar="verb")
    listing = verbs.add_parser("list", help="list the detectors and the state of their data")
    backtest = verbs.add_parser("backtest", help="show what would have been reported in the past")
    backtest.add_argument("--days", type=int, default=28, help="over how many days (default: %(default)s)")
    backtest.add_argument("--detector", help="only this one (default: all that watch rates or sizes)")
    for verb in (listing, backtest):
        name_project(verb)
        offer_json(verb)
    lists_bare(parser, listing)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Run one verb. Raises `OperatorError` for a detector or a project that cannot be."""
    if arguments.verb == "backtest":
        if not 1 <= arguments.days <= 35:
            raise OperatorError("--days must be from 1 to 35: detailed counts are not kept any longer")
        chosen = _judging(arguments.detector, settings)
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        if arguments.verb == "list":
            rows = await _listed(store.database, project.id, settings)
            print_json(rows) if arguments.json else _print_list(rows)
            return
        tests = [
            await _backtested(store.database, project.id, detector, arguments.days, settings)
            for detector in chosen
        ]
    print_json(tests) if arguments.json else _print_backtests(tests, arguments.days)


def _judging(name: str | None, settings: Settings) -> list[Detector]:
    if name is None:
        return [detector for detector in DETECTORS.values() if detector.engine != "event"]
    detector = DETECTORS.get(name)
    if detector is None:
        raise OperatorError(f"{NO_SUCH_DETECTOR.message}; there are {', '.join(DETECTORS)}")
    if (reason := lacking(detector, installed(settings))) is not None:
        raise OperatorError(DETECTOR_UNAVAILABLE.message.format(reason=reason))
    if detector.engine == "event":
        raise OperatorError(NO_BACKTEST.message)
    return [detector]


async def _listed(database: Database, project_id: int, settings: Settings) -> list[dict[str, Any]]:
    own = await DetectorSettingStore(database).of(project_id)
    rows = []
    for name, detector in DETECTORS.items():
        reason = lacking(detector, installed(settings))
        reports = await BucketReports(database).of(
            project_id,
            name,
            false_alarms_per_month=settings.false_alarms_per_month,
            now=datetime.now(UTC),
        )
        rows.append(
            {
                "id": name,
                "state": "unavailable" if reason else "running" if own[name].enabled else "disabled",
                "reason": reason,
                "mode": own[name].mode,
                "tuning": dict(own[name].tuning),
                "buckets": dict(Counter(bucket.report.state for bucket in reports)),
                "description": detector.sentence,
            }
        )
    return rows


def _print_list(rows: list[dict[str, Any]]) -> None:
    lines = [("DETECTOR", "STATE", "MODE", "BUCKETS", "WHAT IT FINDS")]
    for row in rows:
        states = ", ".join(f"{n} {state}" for state, n in sorted(row["buckets"].items()))
        description = row["description"] if row["reason"] is None else f"it {row['reason']}"
        lines.append((row["id"], row["state"], row["mode"], states or "-", description))
    print_columns(lines)


async def _backtested(
    database: Database, project_id: int, detector: Detector, days: int, settings: Settings
) -> dict[str, Any]:
    tuning = (await DetectorSettingStore(database).of(project_id))[detector.name].tuning
    backtest = await BacktestStore(database).run(
        project_id,
        detector,
        tuning,
        days=days,
        false_alarms_per_month=settings.false_alarms_per_month,
        time_s=BACKTEST_TIME_S,
    )
    return {
        "id": detector.name,
        "buckets": backtest.buckets,
        "left_out": backtest.left_out,
        "implied_false_alarm_rate": backtest.implied,
        "alarms": [
            {
                "measure": bucket.measure,
                "subject": bucket.subject,
                "direction": change.direction,
                "fired_at": timestamp(instant(change.fired + 1)),
                "onset_at": timestamp(instant(change.onset.median)),
                "confirmed": change.confirmed,
                "recovered_at": None if change.recovered is None else timestamp(instant(change.recovered)),
                "recurrences": change.recurrences,
            }
            for bucket, change in backtest.alarms
        ],
    }


def _print_backtests(tests: list[dict[str, Any]], days: int) -> None:
    for test in tests:
        left_out = f", {test['left_out']} left out" if test["left_out"] else ""
        print(
            f"{test['id']}: {len(test['alarms'])} alarms in {days} days over {test['buckets']} series"
            f"{left_out}; chance alone raises {count(test['implied_false_alarm_rate'])} a month"
        )
        if test["alarms"]:
            rows = [("FIRED", "SINCE", "OVER", "WAY", "CONFIRMED", "BUCKET")]
            rows += [
                (
                    minute(alarm["fired_at"]),
                    minute(alarm["onset_at"]),
                    minute(alarm["recovered_at"]),
                    alarm["direction"],
                    "yes" if alarm["confirmed"] else "no",
                    f"{alarm['measure']} {alarm['subject']}",
                )
                for alarm in test["alarms"]
            ]
            print_columns(rows)
