"""Detectors: what is watched, why it is quiet, how it is set, and what would have fired.

Forms go through the handlers of the REST API: the same bounds, refusals and audit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from protocol.refusals import Refusal
from protocol.rest.classifiers import (
    BacktestAsked,
    BacktestShown,
    BucketsQuery,
    ClassifierShown,
    EnabledChange,
    TuningChange,
)
from svc.front.api.cases import buckets as bucket_api
from svc.front.api.cases import classifiers as api
from svc.front.api.cases.marks import get_marks
from svc.store.detection.judging.bucket_reports import BucketReports
from svc.web.detectors.detector_text import STATES, TUNABLES, WATCHES, name_of, traces_of, why
from svc.web.shell import words
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit
from svc.web.shell.render import query

BUCKETS_SHOWN: Final = 200
BACKTEST_DAYS: Final = 28


class Switch(msgspec.Struct):
    """On or off."""

    enabled: bool = False


class Tuned(msgspec.Struct):
    """The tunables of all detectors as they were typed; each form holds those of one."""

    rise: str = ""
    w1_floor: str = ""
    share: str = ""


@attrs.frozen
class DetectorRow:
    """One detector of the list."""

    shown: ClassifierShown
    health: Any
    states: Mapping[str, int]
    watches: str


async def detectors(visit: Visit) -> Html | Refusal:
    """The list."""
    classifiers: list[ClassifierShown] = await api.get_classifiers(visit.call)
    health = await api.get_health(visit.call)
    by_id = {classifier.id: classifier for classifier in health.classifiers}
    rows = []
    for classifier in classifiers:
        states: dict[str, int] = {}
        if classifier.state == "running" and by_id[classifier.id].buckets:
            for reported in await BucketReports(visit.means.questions).of(
                visit.project.id,
                classifier.id,
                false_alarms_per_month=visit.means.false_alarms_per_month,
                now=visit.means.now(),
            ):
                name = reported.report.state
                states[name] = states.get(name, 0) + 1
        rows.append(
            DetectorRow(classifier, by_id[classifier.id], states, WATCHES.get(classifier.id, classifier.id))
        )
    running = sum(row.shown.state == "running" for row in rows)
    firing = sum(bool(row.health.live_findings) for row in rows)
    headline = f"{words.counted(running, 'detector')} active, "
    headline += f"{words.count(firing)} with open findings" if firing else "no open findings"
    context = {
        "rows": rows,
        "states": STATES,
        "headline": headline if running else "No detector is switched on",
        "call_sites": (await api.get_call_sites(visit.call)).call_sites,
        "waiting": health.traces_waiting,
        "newest": health.newest_event_at,
        "manages": visit.manages,
        "budget": visit.means.false_alarms_per_month,
    }
    return Html("detectors/detectors", context)


async def detector(visit: Visit) -> Html | Refusal:
    """One detector."""
    return await _page(visit)


async def _page(
    visit: Visit,
    refusal: Refusal | None = None,
    test: BacktestShown | None = None,
    typed: Mapping[str, str] | None = None,
) -> Html | Refusal:
    path = _path(visit)
    classifier = await asked(visit, api.get_classifier, path=path)
    if isinstance(classifier, Refusal):
        return classifier
    tuning = await asked(visit, api.get_tuning, path=path)
    state = visit.query.get("state")
    bucket_query = BucketsQuery(
        state=state if state in STATES else None,  # type: ignore[arg-type] # it is one of the states
        limit=BUCKETS_SHOWN,
        cursor=visit.query.get("cursor"),
    )
    page = await asked(visit, bucket_api.get_buckets, path=path, query=bucket_query)
    unavailable = isinstance(page, Refusal)
    context = {
        "shown": classifier,
        "watches": WATCHES.get(classifier.id, classifier.id),
        "tuning": tuning,
        "labels": TUNABLES,
        "states": STATES,
        "state": bucket_query.state,
        "buckets": []
        if unavailable
        else [
            (bucket, name_of(bucket), why(bucket, visit.means.now(), visit.preferences.zone))
            for bucket in page.buckets
        ],
        "counts": {} if unavailable else page.states,
        "more": None
        if unavailable or page.next_cursor is None
        else query(_address(visit, classifier.id), state=bucket_query.state, cursor=page.next_cursor),
        "here": _address(visit, classifier.id),
        "refusal": refusal,
        "test": test,
        "alarms": [] if test is None else [(alarm, traces_of(visit.base, alarm)) for alarm in test.alarms],
        "typed": typed or {},
        "marks": await get_marks(visit.call) if classifier.id == "marks" else [],
        "manages": visit.manages,
        "days": BACKTEST_DAYS,
    }
    return Html("detectors/detector", context, status=refusal.status if refusal else 200)


def _address(visit: Visit, name: str) -> str:
    return f"{visit.base}/detectors/{name}"


def _path(visit: Visit) -> dict[str, str]:
    return {"classifierId": visit.call.path["name"]}


async def switch(visit: Visit) -> Html | Go | Refusal:
    """Let it run, or keep it from running."""
    fields = {"enabled": visit.form.enabled}
    answer = await asked(visit, api.put_enabled, EnabledChange, fields, path=_path(visit))
    if isinstance(answer, Refusal):
        return answer if answer.status == 404 else await _page(visit, answer)
    return Go(visit.base + "/detectors")


async def tune(visit: Visit) -> Html | Go | Refusal:
    """Keep a tuning; what is blank has its default."""
    answer = await asked(visit, api.put_tuning, TuningChange, {"tuning": _typed(visit)}, path=_path(visit))
    if isinstance(answer, Refusal):
        return answer if answer.status == 404 else await _page(visit, answer, typed=_typed(visit))
    return Go(_address(visit, visit.call.path["name"]))


async def backtest(visit: Visit) -> Html | Refusal:
    """What would have fired with a tuning; nothing is written."""
    fields = {"days": BACKTEST_DAYS, "tuning": _typed(visit)}
    answer = await asked(visit, bucket_api.post_backtest, BacktestAsked, fields, path=_path(visit))
    if isinstance(answer, Refusal):
        return answer if answer.status == 404 else await _page(visit, answer, typed=_typed(visit))
    return await _page(visit, test=answer, typed=_typed(visit))


def _typed(visit: Visit) -> dict[str, str]:
    fields = {name: getattr(visit.form, name).strip() for name in TUNABLES}
    return {name: text for name, text in fields.items() if text}


_DETECTOR: Final = PROJECT + "/detectors/{name}"

PAGES: Final = (
    PageRoute("GET", PROJECT + "/detectors", "ORG_VIEW", detectors),
    PageRoute("GET", _DETECTOR, "ORG_VIEW", detector),
    PageRoute("POST", _DETECTOR + "/switch", "ORG_MANAGE", switch, form=Switch),
    PageRoute("POST", _DETECTOR + "/tuning", "ORG_MANAGE", tune, form=Tuned),
    PageRoute("POST", _DETECTOR + "/backtest", "ORG_MANAGE", backtest, form=Tuned),
)
