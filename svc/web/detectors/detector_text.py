"""What detectors say of their buckets, for people: states, reasons of silence, how far one learned. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Final

from protocol.rest.classifiers import BacktestAlarm, BucketShown
from protocol.rest.query import timestamp
from svc.domain.detect.detectors.base import path_of, site_of
from svc.domain.traces.agent_path import AGENT_PATH
from svc.store.detection.counting.charts import is_size
from svc.web.shell import words
from svc.web.shell.filters import Token
from svc.web.shell.render import query

#: What a detector watches, as a line names it.
WATCHES: Final[Mapping[str, str]] = {
    "tool_error": "tool errors",
    "model_error": "model errors",
    "duration_drift": "durations",
    "cost_drift": "costs",
    "secret_leak": "secrets",
    "malformed_output": "malformed output",
    "agent_loop": "loops",
    "cut_output": "truncated output",
    "new_signature": "new kinds of failure",
    "model_change": "model changes",
    "marks": "marks of traces",
    "feedback": "ratings",
    "feedback_drift": "scores",
    "frustration": "frustration",
    "groundedness": "groundedness",
}
#: Reasons of silence, in words.
REASONS: Final[Mapping[str, str]] = {
    "no_traffic": "no recent traffic",
    "below_minimum": "not enough traffic to learn a baseline within five weeks",
    "within_bar": "nothing unusual",
    "below_effect_floor": "the change is too small to report",
    "no_schema_and_not_json": "it has no output schema and does not return JSON",
    "unpriced": "its calls are unpriced",
    "encoder_missing": "no encoder is installed",
    "muted": "its case is muted",
    "by_agent": "each calling agent is watched separately",
}
STATES: Final[Mapping[str, tuple[str, str, str]]] = {
    "alarm": ("▲", "bad", "alarm"),
    "learning": ("◔", "soft", "learning"),
    "quiet": ("●", "ok", "quiet"),
    "armed": ("●", "ok", "watching"),
    "stale": ("○", "soft", "stale"),
}
TUNABLES: Final[Mapping[str, str]] = {
    "rise": "Smallest rise to detect, as a multiple of the baseline rate",
    "w1_floor": "Smallest shift to report, as the logarithm of the factor (0.14 is ×1.15)",
    "share": "Smallest share to report",
}


def learned(have: int, need: int, ready: datetime | None, zone: tzinfo) -> str:
    """212 of 500, about Tue 24 Nov; often enough, when only time is missing."""
    progress = "enough traces, but not over a long enough time"
    if have < need:
        progress = f"{words.count(have)} of {words.count(need)}"
    return progress if ready is None else f"{progress}; ready about {words.day(ready, zone)}"


def name_of(bucket: BucketShown) -> str:
    """The own name of a bucket's subject."""
    return bucket.subject.partition(":")[2]


def why(bucket: BucketShown, now: datetime, zone: tzinfo) -> str:
    """Why a bucket is as it is."""
    if bucket.state == "learning":
        ready = None if bucket.eta_days is None else now + timedelta(days=bucket.eta_days)
        return learned(bucket.have or 0, bucket.need or 0, ready, zone)
    if bucket.state == "alarm":
        return (
            f"{words.count(bucket.ratio)} times its threshold"
            if bucket.ratio is not None
            else "above its threshold"
        )
    reason = REASONS.get(bucket.reason or "", "") or (
        "no traffic for a week" if bucket.state == "stale" else ""
    )
    if bucket.ratio is not None and bucket.reason == "within_bar":
        reason += f", at {words.percent(bucket.ratio)} of its threshold"
    if bucket.smallest is not None:
        least = words.times(bucket.smallest) if is_size(bucket.measure) else words.percent(bucket.smallest)
        reason += f"; a week at {least} would have been seen"
    return reason


def traces_of(base: str, alarm: BacktestAlarm) -> str:
    """The traces of an alarm that would have been: from its onset to a while after it fired."""
    call_site, path = site_of(alarm.subject), path_of(alarm.subject)
    first, fired = words.parsed(alarm.onset_at), words.parsed(alarm.fired_at)
    asked_for = "kind:tool" if call_site is None else _calls_of(call_site, path)
    until = timestamp(fired + timedelta(hours=6))
    return query(base + "/traces", q=asked_for, from_=timestamp(first), to=until)


def caller_facts(base: str, subject: object, onset: datetime) -> list[tuple[str, str, str]]:
    """The call site and the agent of a subject that is an agent's: heading, name, and their traces since.

    Empty for any other subject, whose title says it all.
    """
    if not isinstance(subject, str) or (path := path_of(subject)) is None:
        return []
    call_site = site_of(subject) or ""
    return [
        (heading, name, query(base + "/traces", q=asked_for, from_=timestamp(onset)))
        for heading, name, asked_for in (
            ("call site", call_site, _calls_of(call_site, None)),
            ("agent", path, _calls_of(call_site, path)),
        )
    ]


def _calls_of(call_site: str, path: str | None) -> str:
    """The bar that asks for the calls of a call site, or of one agent there."""
    asked_for = str(Token("site", call_site))
    return asked_for if path is None else f"{asked_for} {Token(AGENT_PATH, path)}"
