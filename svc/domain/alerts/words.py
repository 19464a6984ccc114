"""What a rule watches, in a sentence: for messages, the command line and the page of notifications."""

from __future__ import annotations

from typing import Final

from svc.domain.alerts.params import (
    BackupParams,
    CaseParams,
    CertificateParams,
    DigestParams,
    DiskParams,
    DownParams,
    LettersParams,
    MetricParams,
    RuleParams,
    SilentParams,
)

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
            of = f" by {', '.join(detectors)}" if detectors else ""
            least = "" if least_severity == "low" else f", {least_severity} or worse"
            least = ", high" if least_severity == "high" else least
            return f"{_CASE[kind]}{of}{least}"
        case DigestParams(every, at, weekday):
            return f"each {'day' if every == 'day' else DAYS[weekday]} at {at} UTC: what happened"
        case DownParams(minutes):
            return f"ingest has been down for {_counted(minutes, 'minute')}" if minutes else "ingest is down"
        case LettersParams(spans):
            return f"{'' if spans == 1 else f'at least {spans:,} '}spans wait as dead letters"
        case SilentParams(hours, days):
            return f"a service that sent on each of {_counted(days, 'day')} is silent for {hours} hours"
        case DiskParams(days):
            return f"the disk budget is nearly used up, or will be within {_counted(days, 'day')}"
        case BackupParams(hours):
            return f"a backup fails, or the last good one is older than {_counted(hours, 'hour')}"
        case CertificateParams(days):
            return f"the certificate ends within {_counted(days, 'day')}"
        case MetricParams():
            return metric_sentence(params)


def metric_sentence(params: MetricParams) -> str:
    """What a metric rule compares with what."""
    of = _DATASETS[params.dataset]
    for name, value in params.filters.items():
        of += f" with {name} {value}"
    window = "an hour" if params.window_hours == 1 else f"{params.window_hours} hours"
    figure = _FIGURES[params.figure].format(of)
    if params.bound in ("above", "below"):
        return f"{figure} over {window} is {params.bound} {amount(params.figure, params.value)}"
    return f"{figure} over {window} {params.bound} by {params.value:g} % against the seven days before"


def amount(figure: str, value: float | None) -> str:
    """A figure with its measure."""
    if value is None:
        return "not known"
    match figure:
        case "cost":
            return f"${value:,.4f}".rstrip("0").rstrip(".")
        case "error_rate":
            return f"{value * 100:.3g} %"
        case "p95_ms":
            return f"{value:,.0f} ms"
        case _:
            return f"{value:,.0f}"


def _counted(number: int, one: str) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {one}s"
