"""What each kind of rule can be asked for: one shape a kind, with its bounds and defaults.

Owns the shapes, their reading, and which words say what a rule watches. A new kind is a shape and a line of
`PARAMS`. Whether a dataset or a field is known is for the query API to say, when the rule is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from protocol.alerts import RuleKind
from protocol.detection import Severity
from protocol.validation import validation_text

FilterValue = str | int | float | bool | None

Hours = Annotated[int, Meta(ge=1, le=24)]

#: What windows are measured of: rows of the query API, or what vitals count by the hour.
VITAL_DATASETS: Final = {"traces": "sites", "model_calls": "models", "tools": "tools"}
#: By which one field vitals are kept apart; narrowed by anything else, the rows are counted.
VITAL_FIELDS: Final = {"traces": "call_site_id", "model_calls": "model_id", "tools": "tool"}
#: Which figures are known of rows that the query API counts.
COUNTED_FIGURES: Final = {
    "spans": ("count", "cost", "error_rate", "p95_ms"),
    "tool_calls": ("count", "error_rate"),
    "classifier_events": ("count",),
}


class BadParams(ValueError):
    """What a rule asks for cannot be read; the text names the offender."""


class CaseParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Cases of at least this severity, of these detectors; none named is all of them."""

    least_severity: Severity = "low"
    detectors: Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(max_length=50)] = (
        msgspec.field(default_factory=list)
    )


class DigestParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """When a digest is made, in UTC; a weekly one on `weekday`, 0 is Monday."""

    every: Literal["day", "week"] = "day"
    at: Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")] = "08:00"
    weekday: Annotated[int, Meta(ge=0, le=6)] = 0


class DownParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Ingest of a copy of the service has been down for so long."""

    minutes: Annotated[int, Meta(ge=0, le=1_440)] = 2


class LettersParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """So many spans wait as dead letters."""

    spans: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1


class SilentParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A service that sent something on each of the last `days` days has been silent for so long."""

    hours: Annotated[int, Meta(ge=6, le=168)] = 26
    days: Annotated[int, Meta(ge=2, le=14)] = 7


class DiskParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The disk budget is nearly used up, or will be within so many days by present growth."""

    forecast_days: Annotated[int, Meta(ge=0, le=365)] = 7


class BackupParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The last good nightly backup is older than this, or the last one failed."""

    hours: Annotated[int, Meta(ge=1, le=720)] = 26


class CertificateParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The certificate that is served ends within so many days."""

    days: Annotated[int, Meta(ge=1, le=90)] = 14


class MetricParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A figure over a window against a bound, or against the same window of the seven days before.

    `spans`, `tool_calls` and `classifier_events` take the filters of the query API and know the figures of
    `COUNTED_FIGURES`. Of `traces`, `model_calls` and `tools` every figure is known. The last two are spans
    and take their filters; a trace is narrowed by its own `call_site_id` and by what one of its spans has.
    Any attribute is a filter, whether or not it is a field of the project.
    `value` is in the figure's own measure (rows, USD, a share from 0 to 1, milliseconds); of a change it is
    in percent. Windows with less than `least` rows are not judged, but where a count falls.
    """

    dataset: Literal["spans", "tool_calls", "classifier_events", "traces", "model_calls", "tools"]
    figure: Literal["count", "cost", "error_rate", "p95_ms"] = "count"
    filters: dict[str, FilterValue] = msgspec.field(default_factory=dict)
    window_hours: Hours = 1
    bound: Literal["above", "below", "rises", "falls"] = "above"
    value: Annotated[float, Meta(ge=0, le=1e15)]
    least: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 20


RuleParams = (
    CaseParams
    | DigestParams
    | DownParams
    | LettersParams
    | SilentParams
    | DiskParams
    | BackupParams
    | CertificateParams
    | MetricParams
)

PARAMS: Final[dict[RuleKind, type[Any]]] = {
    "case.opened": CaseParams,
    "case.reopened": CaseParams,
    "case.resolved": CaseParams,
    "digest": DigestParams,
    "ingest.down": DownParams,
    "ingest.dead_letters": LettersParams,
    "ingest.silent": SilentParams,
    "disk.budget": DiskParams,
    "backup.old": BackupParams,
    "certificate.expiring": CertificateParams,
    "metric": MetricParams,
}

_MOST_FILTERS: Final = 10
_VALUE_CHARS: Final = 500


def read_params(kind: RuleKind, fields: Mapping[str, Any]) -> RuleParams:
    """What a rule of this kind asks for. Raises `BadParams`."""
    try:
        params: RuleParams = msgspec.convert(dict(fields), PARAMS[kind])
    except msgspec.ValidationError as error:
        raise BadParams(f"params of {kind}: {validation_text(error, PARAMS[kind])}"[:300]) from None
    if isinstance(params, MetricParams):
        _check_metric(params)
    return params


def typed_params(kind: RuleKind, typed: Mapping[str, str]) -> RuleParams:
    """What was typed as texts: numbers are read, `detectors` is a list, `filters.NAME` is a filter.

    Raises `BadParams`.
    """
    fields: dict[str, Any] = {}
    for name, text in typed.items():
        if name.startswith("filters."):
            fields.setdefault("filters", {})[name.removeprefix("filters.")] = text
        else:
            fields[name] = text.replace(",", " ").split() if name == "detectors" else text
    try:
        params = msgspec.convert(fields, PARAMS[kind], strict=False)
    except msgspec.ValidationError as error:
        raise BadParams(f"params of {kind}: {validation_text(error, PARAMS[kind])}"[:300]) from None
    return read_params(kind, msgspec.to_builtins(params))


def kept_params(params: RuleParams) -> dict[str, Any]:
    """All of them as they are stored, defaults included."""
    stored: dict[str, Any] = msgspec.to_builtins(params)
    return stored


def is_vital(params: MetricParams) -> bool:
    """Whether vitals, which are kept by the hour, tell its figures."""
    field = VITAL_FIELDS.get(params.dataset)
    return field is not None and all(
        name == field and isinstance(value, str) for name, value in params.filters.items()
    )


def _check_metric(params: MetricParams) -> None:
    figures = COUNTED_FIGURES.get(params.dataset)
    if figures is not None and params.figure not in figures:
        *first_names, last_name = figures
        names = f"{', '.join(first_names)} and {last_name}" if first_names else last_name
        verb = "are" if first_names else "is"
        raise BadParams(f"of {params.dataset} only {names} {verb} known; ask traces, model_calls or tools")
    if params.figure == "error_rate" and params.bound in ("above", "below") and params.value > 1:
        raise BadParams("an error_rate is a share from 0 to 1")
    if len(params.filters) > _MOST_FILTERS:
        raise BadParams(f"at most {_MOST_FILTERS} filters")
    if any(isinstance(value, str) and len(value) > _VALUE_CHARS for value in params.filters.values()):
        raise BadParams(f"a filter is longer than {_VALUE_CHARS} characters")
