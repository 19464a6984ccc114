"""Bodies and answers of `{p}/classifiers`: what watches a project, how it is set, and what it measured.

Shapes and plain checks only. Instants are texts in our form (`protocol.rest.query.timestamp`). A classifier
and a detector are one thing under two names: the paths say the first, everything else the second.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from protocol.detection import DetectorMode, SiteGrain
from protocol.rest.accounts import Instant

#: Tunables of a detector that one body may name.
TUNABLES_MAX = 20
#: Tallies of five minutes are kept so many days; older ones stand in hours.
TALLY_DAYS = 35

EventDays = Annotated[int, Meta(ge=1, le=90)]
TallyDays = Annotated[int, Meta(ge=1, le=TALLY_DAYS)]
SomeRows = Annotated[int, Meta(ge=1, le=1_000)]
Name = Annotated[str, Meta(max_length=500)]

ClassifierState = Literal["running", "disabled", "unavailable"]


class TunableShown(msgspec.Struct):
    """One thing that can be set: what it is without that, and between which bounds it stays."""

    default: float
    low: float
    high: float


class ClassifierShown(msgspec.Struct):
    """A detector in a project. `reason` says what is missing when it is unavailable."""

    id: str
    description: str
    grain: Literal["trace", "span", "session"]
    engine: Literal["rate", "drift", "event"]
    measures: list[str]
    state: ClassifierState
    reason: str | None
    enabled: bool
    mode: DetectorMode
    tuning: dict[str, float]
    tunables: dict[str, TunableShown]


class ClassifierHealth(msgspec.Struct):
    """How a detector is doing. `judged_until` is the event time up to which it has judged."""

    id: str
    state: ClassifierState | Literal["failing"]
    reason: str | None
    buckets: int
    live_findings: int
    events_last_day: int
    last_event_at: Instant | None
    judged_at: Instant | None
    judged_until: Instant | None


class ClassifiersHealth(msgspec.Struct):
    """How detection is doing: traces that wait to be counted (at most 100,000 are told), the newest event
    time that was counted, and each detector.
    """

    traces_waiting: int
    newest_event_at: Instant | None
    classifiers: list[ClassifierHealth]


class DailyQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many days back, today included."""

    days: EventDays = 7


class DayOfEvents(msgspec.Struct):
    """One UTC day: subjects that were looked at, and firings by detector and severity."""

    day: Instant
    evaluated: int
    events: int
    by_classifier: dict[str, int]
    by_severity: dict[str, int]


class DailyMetrics(msgspec.Struct):
    """The days, oldest first, those without anything with 0."""

    days: list[DayOfEvents]


class EventsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which firings. Ids of sessions and call sites may hold any character, so they stand here."""

    severity: Literal["low", "medium", "high"] | None = None
    call_site_id: Name | None = None
    session_id: Name | None = None
    mode: DetectorMode | None = None
    limit: SomeRows = 100
    cursor: str | None = None


class EventShown(msgspec.Struct):
    """One firing: which detector, about what, how sure, and why."""

    id: str
    classifier_id: str
    severity: str
    confidence: str | None
    subject_kind: str
    subject_session_id: str | None
    subject_trace_id: str | None
    subject_span_id: str | None
    call_site_id: str | None
    summary: str
    created_at: Instant


class EventPage(msgspec.Struct):
    """Firings, newest first."""

    events: list[EventShown]
    next_cursor: str | None


class MeasureQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many days of event time back, and of which subject (`tool:search`, `site:reply`), else of all."""

    days: TallyDays = 7
    subject: Name | None = None


class MeasuredDay(msgspec.Struct, omit_defaults=True):
    """One UTC day of a measure. Rates have failures, sizes quantiles in milliseconds or US dollars."""

    day: Instant
    units: int
    failures: int | None = None
    rate: float | None = None
    p50: float | None = None
    p95: float | None = None


class MeasureShown(msgspec.Struct):
    """One measure by day, oldest first; days without anything are left out."""

    measure: str
    kind: Literal["rate", "size", "seen"]
    unit: Literal["ms", "usd"] | None
    days: list[MeasuredDay]


class ClassifierMetrics(msgspec.Struct):
    """What a detector measured."""

    subject: str | None
    measures: list[MeasureShown]


class RatesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many days of event time back, and how many tools."""

    days: TallyDays = 7
    limit: SomeRows = 100


class ToolErrorRate(msgspec.Struct):
    """A tool: traces that call it, those in which it failed, the share with its 95 % interval."""

    tool: str
    traces: int
    failures: int
    rate: float
    low: float
    high: float
    last_called_at: Instant


class ToolErrorRates(msgspec.Struct):
    """Tools by failures, most first."""

    tools: list[ToolErrorRate]


class EnabledChange(msgspec.Struct, forbid_unknown_fields=True):
    """Whether a detector runs in the project."""

    enabled: bool


class ModeChange(msgspec.Struct, forbid_unknown_fields=True):
    """Which firings are shown: all of them (`discovery`), or those that are sure (`tracking`)."""

    mode: DetectorMode


class CallSitesChange(msgspec.Struct, forbid_unknown_fields=True):
    """Whether agents that share a call site are told apart."""

    by_agent: bool


class CallSitesShown(msgspec.Struct):
    """What detectors take for a call site: what was `sent`; each `agent` that calls there; or `both`, while
    agents have no baseline of their own yet.
    """

    call_sites: SiteGrain


class TuningChange(msgspec.Struct, forbid_unknown_fields=True):
    """The tuning as a whole; what is not named has its default again, what is out of bounds is clamped."""

    tuning: Annotated[dict[str, float], Meta(max_length=TUNABLES_MAX)]


class TuningShown(msgspec.Struct):
    """The tuning in force. `implied_false_alarm_rate` is how many alarms a month chance alone raises over the
    detector's buckets; null where no chance is in it.
    """

    tuning: dict[str, float]
    tunables: dict[str, TunableShown]
    implied_false_alarm_rate: float | None


class BucketsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Buckets of one state, or all; a page of them in the order of their names."""

    state: Literal["learning", "armed", "alarm", "stale", "quiet"] | None = None
    limit: SomeRows = 100
    cursor: str | None = None


class BucketShown(msgspec.Struct):
    """What a bucket says of itself; silence always has a reason.

    While learning `have` of `need` units and the days until it is armed. `ratio` is the statistic over its
    bar, `smallest` the smallest change that a week would have shown: a share for rates, a ratio for sizes.
    """

    measure: str
    subject: str
    state: Literal["learning", "armed", "alarm", "stale", "quiet"]
    reason: str | None
    have: int | None
    need: int | None
    eta_days: float | None
    ratio: float | None
    smallest: float | None
    judged_until: Instant


class BucketPage(msgspec.Struct):
    """Buckets by name, and how many there are in each state."""

    buckets: list[BucketShown]
    states: dict[str, int]
    next_cursor: str | None


class BacktestAsked(msgspec.Struct, forbid_unknown_fields=True):
    """How many days back, and with which tuning in place of the one in force."""

    days: TallyDays = 28
    tuning: Annotated[dict[str, float], Meta(max_length=TUNABLES_MAX)] | None = None


class BacktestAlarm(msgspec.Struct):
    """An alarm that would have been raised. `confirmed`: it became ten times rarer than an alarm has to be;
    `recovered_at` is null while it would still be live.
    """

    measure: str
    subject: str
    direction: Literal["up", "down"]
    fired_at: Instant
    onset_at: Instant
    confirmed: bool
    recovered_at: Instant | None
    recurrences: int


class BacktestShown(msgspec.Struct):
    """What a detector would have said of what was counted. `left_out`: buckets there was no time for, the
    quietest ones; `implied_false_alarm_rate`: alarms a month that chance raises over the others.
    """

    days: int
    tuning: dict[str, float]
    buckets: int
    left_out: int
    implied_false_alarm_rate: float
    alarms: list[BacktestAlarm]
    alarms_truncated: bool
