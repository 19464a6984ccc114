"""`{p}/classifiers/events`, `/metrics`, `/tool-error-rates`: what detectors fired, and what was measured.

Firings come through the mode of their detector: in `tracking` those of low confidence are left out. Nothing
here is judged anew. Days are days in UTC, today included; measures go by event time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from protocol.refusals import DETECTOR_UNAVAILABLE, NO_SUCH_DETECTOR, NO_TOOL_RATES, Refusal
from protocol.rest.classifiers import (
    ClassifierMetrics,
    DailyMetrics,
    DailyQuery,
    EventPage,
    EventsQuery,
    MeasureQuery,
    RatesQuery,
    ToolErrorRates,
)
from svc.domain.detect.detectors.base import MEASURES, MeasureName
from svc.domain.detect.detectors.table import DETECTORS
from svc.domain.detect.engine.axis import UNIT_MS
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, day_start, slot_at
from svc.domain.spans.values import identifier
from svc.front.api.cases.classifiers import CLASSIFIER, CLASSIFIERS, running
from svc.front.api.routes import Route
from svc.front.auth.calls import Call
from svc.store.detection.cases.firing_reads import FiringFilter, FiringReads
from svc.store.detection.counting.tally_sums import TallySums
from svc.store.detection.judging.detector_settings import DetectorSettingStore


async def get_daily(call: Call[None]) -> dict[str, Any]:
    """Firings and what was looked at, by day."""
    query: DailyQuery = call.query
    today = call.means.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - timedelta(days=query.days - 1)
    reads = FiringReads(call.means.questions)
    return {"days": await reads.daily(call.project.id, first, query.days, await _tracking(call))}


async def get_events(call: Call[None]) -> dict[str, Any]:
    """Firings of all detectors, newest first."""
    return await _events(call, None)


async def get_classifier_events(call: Call[None]) -> dict[str, Any]:
    """Firings of one detector, newest first; `mode` takes the place of the one that is set."""
    return await _events(call, running(call).name)


async def _events(call: Call[None], detector: str | None) -> dict[str, Any]:
    query: EventsQuery = call.query
    if query.mode is None:
        tracking = await _tracking(call)
    else:
        tracking = list(DETECTORS) if query.mode == "tracking" else []
    filter_ = FiringFilter(
        detector=detector,
        severity=query.severity,
        call_site_id=named(query.call_site_id),
        session_id=named(query.session_id),
        tracking=tracking,
    )
    reads = FiringReads(call.means.questions)
    return await reads.page(call.project.id, filter_, limit=query.limit, cursor=query.cursor)


def named(value: str | None) -> str | None:
    """An id as it is stored: whoever has a long one from elsewhere has it whole."""
    return None if value is None else identifier(value)


async def _tracking(call: Call[None]) -> list[str]:
    settings = await DetectorSettingStore(call.means.questions).of(call.project.id)
    return [name for name, setting in settings.items() if setting.mode == "tracking"]


def last_days(now: datetime, days: int) -> tuple[int, int]:
    """The slots of so many days, today included: the first, and the end of today."""
    today = day_start(slot_at(now.timestamp()))
    return today - (days - 1) * SLOTS_PER_DAY, today + SLOTS_PER_DAY


async def get_metrics(call: Call[None]) -> dict[str, Any]:
    """What a detector measured by day: units and failures, or quantiles of a size."""
    detector = running(call)
    query: MeasureQuery = call.query
    first, end = last_days(call.means.now(), query.days)
    subject = named(query.subject)
    sums = TallySums(call.means.questions)
    return {
        "subject": subject,
        "measures": [
            {**_kind(measure), "days": await sums.by_day(call.project.id, measure, subject, first, end)}
            for measure in detector.measures
        ],
    }


def _kind(measure: MeasureName) -> dict[str, Any]:
    unit = MEASURES[measure].unit
    if unit is not None:
        return {"measure": measure, "kind": "size", "unit": "ms" if unit == UNIT_MS else "usd"}
    return {"measure": measure, "kind": "seen" if MEASURES[measure].details else "rate", "unit": None}


async def get_tool_error_rates(call: Call[None]) -> dict[str, Any] | Refusal:
    """Tools that fail in most of the traces that call them, each with the 95 % interval of its share."""
    if running(call).name != "tool_error":
        return NO_TOOL_RATES
    query: RatesQuery = call.query
    first, end = last_days(call.means.now(), query.days)
    sums = TallySums(call.means.questions)
    return {"tools": await sums.tool_error_rates(call.project.id, first, end, query.limit)}


_REFUSALS: Final[tuple[Refusal, ...]] = (NO_SUCH_DETECTOR, DETECTOR_UNAVAILABLE)

ROUTES: Final = (
    Route("GET", CLASSIFIERS + "/metrics/daily", "ORG_VIEW", get_daily, DailyMetrics, query=DailyQuery),
    Route("GET", CLASSIFIERS + "/events", "ORG_VIEW", get_events, EventPage, query=EventsQuery),
    Route(
        "GET", CLASSIFIER + "/events", "ORG_VIEW", get_classifier_events, EventPage, query=EventsQuery,
        refusals=_REFUSALS,
    ),
    Route(
        "GET", CLASSIFIER + "/metrics", "ORG_VIEW", get_metrics, ClassifierMetrics, query=MeasureQuery,
        refusals=_REFUSALS,
    ),
    Route(
        "GET", CLASSIFIER + "/tool-error-rates", "ORG_VIEW", get_tool_error_rates, ToolErrorRates,
        query=RatesQuery, refusals=(*_REFUSALS, NO_TOOL_RATES),
    ),
)  # fmt: skip
