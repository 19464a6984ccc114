"""What a rule watches, in a sentence: for messages, the command line and the page of notifications."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from svc.domain.alerts.params import (
    BackupParams,
    CaseParams,
    CertificateParams,
    DigestParams,
    DiskParams,
    DownParams,
    FilterValue,
    LettersParams,
    MetricParams,
    RuleParams,
    SilentParams,
)
from svc.domain.quantities import count, counted, setting, writer

#: What is said of a rule without a channel.
NOBODY: Final = "nobody is notified: the rule has no channel"
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_CASE: Final = {
    "case.opened": "a case opens",
    "case.reopened": "a case opens again",
    "case.resolved": "a case is resolved",
}
_FIGURES: Final = {
    "count": "the number of {}",
    "cost": "the cost of {}",
    "error_rate": "the error rate of {}",
    "p95_ms": "the p95 duration of {}",
}
#: The metric whose unit a figure has.
_METRICS: Final = {"count": "count", "cost": "cost", "error_rate": "rate", "p95_ms": "p95_ms"}
_DATASETS: Final = {
    "spans": "spans",
    "tool_calls": "tool calls",
    "classifier_events": "detector firings",
    "traces": "traces",
    "model_calls": "model calls",
    "tools": "tool runs",
}


def sentence_of(kind: str, params: RuleParams) -> str:
    """When it tells, without a capital and a stop."""
    match params:
        case CaseParams(least_severity, detectors):
            detector_phrase = f" by {', '.join(detectors)}" if detectors else ""
            severity_phrase = "" if least_severity == "low" else f", {least_severity} or worse"
            severity_phrase = ", high" if least_severity == "high" else severity_phrase
            return f"{_CASE[kind]}{detector_phrase}{severity_phrase}"
        case DigestParams(every, at, weekday):
            return f"each {'day' if every == 'day' else DAYS[weekday]} at {at} UTC: what happened"
        case DownParams(minutes):
            return f"ingest has been down for {counted(minutes, 'minute')}" if minutes else "ingest is down"
        case LettersParams(spans):
            return f"{'' if spans == 1 else f'at least {count(spans)} '}spans are dead letters"
        case SilentParams(hours, days):
            return f"a service that sent on each of {counted(days, 'day')} is silent for {hours} hours"
        case DiskParams(days):
            return f"the disk budget is nearly used up, or will be within {counted(days, 'day')}"
        case BackupParams(hours):
            return f"a backup fails, or the last good one is older than {counted(hours, 'hour')}"
        case CertificateParams(days):
            return f"the certificate expires within {counted(days, 'day')}"
        case MetricParams():
            return metric_sentence(params)


def metric_sentence(params: MetricParams) -> str:
    """What a metric rule compares with what."""
    dataset = _DATASETS[params.dataset]
    narrowed = [
        f"without {name}" if value is None else f"with {name} {_written(value)}"
        for name, value in params.filters.items()
    ]
    dataset += f" {' and '.join(narrowed)}" if narrowed else ""
    window = "an hour" if params.window_hours == 1 else f"{params.window_hours} hours"
    figure = _FIGURES[params.figure].format(dataset)
    if params.bound in ("above", "below"):
        return f"{figure} over {window} is {params.bound} {threshold(params.figure, params.value)}"
    change = f"{params.bound} by {setting(params.value)} %"
    return f"{figure} over {window} {change} compared with the seven days before"


def _written(value: FilterValue) -> str:
    """The value of a filter as it is typed."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def amount(figure: str, value: float | None) -> str:
    """A figure that was measured, with its unit."""
    return "not known" if value is None else writer(_METRICS[figure])(value)


def threshold(figure: str, value: float) -> str:
    """What somebody set for a figure, with all its digits."""
    match figure:
        case "cost":
            return f"${setting(value)}"
        case "error_rate":
            return f"{setting(Decimal(str(value)) * 100)} %"
        case "p95_ms":
            return f"{setting(value)} ms"
        case _:
            return setting(value)
