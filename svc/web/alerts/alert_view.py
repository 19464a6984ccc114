"""Alerts as their page shows them: kinds in groups, forms as they are typed, and what these ask for.

Pure. What is right or wrong with a form is for the handlers of the REST API to say.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec

from protocol.alerts import RULE_KINDS, ChannelKind, RuleKind
from svc.domain.alerts.params import PARAMS, BadParams, kept_params, typed_params

#: What each kind is called, in the order of the page, by what it is about.
GROUPS: Final[dict[str, dict[RuleKind, str]]] = {
    "Cases": {
        "case.opened": "A case opens",
        "case.reopened": "A case opens again",
        "case.resolved": "A case is resolved",
    },
    "A figure": {"metric": "A figure is beyond its bound"},
    "Ingest": {
        "ingest.silent": "A service has fallen silent",
        "ingest.dead_letters": "Spans became dead letters",
        "ingest.down": "Ingest is down",
    },
    "This service": {
        "disk.budget": "The disk budget is nearly used up",
        "backup.old": "A backup failed or is late",
        "certificate.expiring": "The certificate expires soon",
    },
    "A digest": {"digest": "A digest of a day or a week"},
}
KINDS: Final = {kind: says for kinds in GROUPS.values() for kind, says in kinds.items()}
CHANNEL_KINDS: Final[dict[ChannelKind, str]] = {
    "webhook": "Webhook",
    "slack": "Slack",
    "pagerduty": "PagerDuty",
    "ntfy": "ntfy",
    "email": "E-mail",
}
DATASETS: Final = {
    "traces": "traces",
    "model_calls": "model calls",
    "tools": "tool runs",
    "spans": "spans",
    "tool_calls": "tool calls (count and error rate)",
    "classifier_events": "detector firings (count alone)",
}
FIGURES: Final = {
    "count": "how many",
    "error_rate": "error rate (0 to 1)",
    "cost": "cost (USD)",
    "p95_ms": "p95 duration (ms)",
}
BOUNDS: Final = {
    "above": "is above",
    "below": "is below",
    "rises": "rises by (%)",
    "falls": "falls by (%)",
}
#: How long a rule can be muted on the page, in hours.
MUTES: Final = {1: "an hour", 8: "8 hours", 24: "a day", 168: "a week"}


class ChannelForm(msgspec.Struct):
    """A channel as it was typed. Secrets: never log one."""

    kind: str = "webhook"
    name: str = ""
    url: str = ""
    base_url: str = ""
    to: str = ""
    secret: str = ""
    id: str = ""

    def __repr__(self) -> str:
        return "ChannelForm(…)"

    def fields(self) -> dict[str, Any]:
        """The body that it asks for."""
        params: dict[str, Any] = {}
        match self.kind:
            case "webhook" | "ntfy":
                params["url"] = self.url.strip()
            case "pagerduty" if self.base_url.strip():
                params["base_url"] = self.base_url.strip()
            case "email":
                params["to"] = self.to.replace(",", " ").split()
            case _:
                pass
        secret = self.secret.strip() or None
        return {"kind": self.kind, "name": self.name, "params": params, "secret": secret}


class RuleForm(msgspec.Struct):
    """A rule as it was typed: what a kind does not ask for stays blank."""

    kind: str = ""
    name: str = ""
    channels: list[str] = []
    least_severity: str = ""
    detectors: str = ""
    every: str = ""
    at: str = ""
    weekday: str = ""
    minutes: str = ""
    spans: str = ""
    hours: str = ""
    days: str = ""
    forecast_days: str = ""
    dataset: str = ""
    figure: str = ""
    filter_field: str = ""
    filter_value: str = ""
    window_hours: str = ""
    bound: str = ""
    value: str = ""
    least: str = ""
    id: str = ""

    def params(self) -> dict[str, Any]:
        """What it asks for; what is blank has its default. Raises `BadParams`."""
        if self.kind not in RULE_KINDS:
            raise BadParams("there is no such kind of rule")
        kind = self.kind
        names = set(PARAMS[kind].__struct_fields__)
        typed = {
            name: getattr(self, name).strip()
            for name in names & set(RuleForm.__struct_fields__)
            if getattr(self, name).strip()
        }
        if "filters" in names and self.filter_field.strip():
            typed[f"filters.{self.filter_field.strip()}"] = self.filter_value.strip()
        return kept_params(typed_params(kind, typed))


class AlertTarget(msgspec.Struct):
    """Which channel, rule or delivery."""

    id: str


class MuteForm(msgspec.Struct):
    """For how many hours a rule keeps still; 0 lets it speak again."""

    id: str
    hours: int = 0


@attrs.frozen
class Fields:
    """What a form begins with: the fields of a rule that is there, or the defaults of its kind."""

    kind: str
    params: dict[str, Any]

    @classmethod
    def of(cls, kind: RuleKind) -> Fields:
        """The defaults."""
        if kind == "metric":
            return cls(kind, _METRIC)
        return cls(kind, msgspec.to_builtins(PARAMS[kind]()))


#: What is asked for most.
_METRIC: Final[dict[str, Any]] = {
    "dataset": "traces",
    "figure": "error_rate",
    "filters": {},
    "window_hours": 1,
    "bound": "above",
    "value": 0.1,
    "least": 20,
}
