"""The words of the pages of alerts: kinds in groups, the fields that each asks for, refusals. Pure."""

from __future__ import annotations

import re
from typing import Final

import attrs

from protocol.alerts import ChannelKind, RuleKind
from protocol.refusals import BLANK_NAME, CHANNEL_TAKEN, RULE_TAKEN, UNKNOWN_FIELD, Refusal
from svc.domain.alerts.words import DAYS

#: What each kind is called, in the order of the page, by what it is about.
GROUPS: Final[dict[str, dict[RuleKind, str]]] = {
    "Cases": {
        "case.opened": "A case opens",
        "case.reopened": "A case opens again",
        "case.resolved": "A case is resolved",
    },
    "A figure": {"metric": "A metric crosses its threshold"},
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
#: The kind that the form of a new channel begins with.
FIRST_KIND: Final[ChannelKind] = "webhook"
DELIVERY_STATES: Final = {"queued": "waiting", "sent": "sent", "dead": "failed"}
#: How long a rule can be muted on the page, in hours.
MUTES: Final = {1: "an hour", 8: "8 hours", 24: "a day", 168: "a week"}

_DATASETS: Final = {
    "traces": "traces",
    "model_calls": "model calls",
    "tools": "tool runs",
    "spans": "spans",
    "tool_calls": "tool calls (count and error rate)",
    "classifier_events": "detector firings (count only)",
}
_FIGURES: Final = {
    "count": "count",
    "error_rate": "error rate (0 to 1)",
    "cost": "cost (USD)",
    "p95_ms": "p95 duration (ms)",
}
_BOUNDS: Final = {
    "above": "is above",
    "below": "is below",
    "rises": "rises by (%)",
    "falls": "falls by (%)",
}
_SEVERITIES: Final = {"low": "any", "medium": "medium or high", "high": "high only"}


@attrs.frozen
class AlertField:
    """One field of a form. With `options` it is a choice; a `secret` is never shown again."""

    name: str
    label: str
    hint: str = ""
    type: str = "text"
    inputmode: str = ""
    maxlength: int = 0
    options: dict[str, str] = attrs.field(factory=dict)
    required: bool = True
    secret: bool = False


def _number(name: str, label: str, hint: str = "", inputmode: str = "numeric") -> AlertField:
    return AlertField(name, label, hint, inputmode=inputmode, maxlength=20)


NAME: Final = AlertField("name", "Name", maxlength=100)
#: What each kind of channel asks for; the first field says where it leads.
CHANNEL_FIELDS: Final[dict[str, tuple[AlertField, ...]]] = {
    "webhook": (
        AlertField(
            "url", "Address", "Gets a JSON body, signed as Standard Webhooks describes.", "url", maxlength=500
        ),
    ),
    "slack": (
        AlertField(
            "secret", "Address of the incoming webhook", "Stored encrypted and never shown again.",
            "password", maxlength=2000, secret=True,
        ),
    ),
    "pagerduty": (
        AlertField(
            "secret", "Integration key (Events API v2)",
            "Each case is one incident and is resolved with it. Stored encrypted and never shown again.",
            "password", maxlength=2000, secret=True,
        ),
        AlertField(
            "base_url", "Address of PagerDuty",
            "Blank: https://events.pagerduty.com. In Europe: https://events.eu.pagerduty.com.",
            "url", maxlength=500, required=False,
        ),
    ),
    "ntfy": (
        AlertField(
            "url", "Address of the topic", "For example https://ntfy.sh/my-topic, or a server of your own.",
            "url", maxlength=500,
        ),
        AlertField(
            "secret", "Access token", "Blank: no token, for a public topic. It is never shown again.",
            "password", maxlength=2000, required=False, secret=True,
        ),
    ),
    "email": (AlertField("to", "Addresses", "Separated by spaces, at most 20.", maxlength=4000),),
}  # fmt: skip
#: Why a line of filters cannot be read.
NO_FILTER: Final = "filters are fields with their values, such as status:error; “{text}” is none"
FILTER_TWICE: Final = "the filter {name} appears twice"
FOREIGN_FILTERS: Final = "the filters of the rule were sent in another form than the page has them"
#: The hint of a secret that is stored already.
STORED: Final = "Blank: keep the stored one."

_CASES: Final = (
    AlertField("least_severity", "Severity", options=_SEVERITIES),
    AlertField("detectors", "Detectors", "Blank: all of them. Otherwise separated by spaces", required=False),
)
#: What each kind of rule asks for.
RULE_FIELDS: Final[dict[RuleKind, tuple[AlertField, ...]]] = {
    "case.opened": _CASES,
    "case.reopened": _CASES,
    "case.resolved": _CASES,
    "digest": (
        AlertField("every", "Every", options={"day": "day", "week": "week"}),
        AlertField("at", "Time (UTC)", "For example 08:00.", maxlength=5),
        AlertField(
            "weekday", "Day of a weekly digest", options={str(number): day for number, day in enumerate(DAYS)}
        ),
    ),
    "metric": (
        AlertField("dataset", "Dataset", options=_DATASETS),
        AlertField("figure", "Figure", options=_FIGURES),
        AlertField(
            "filters", "Filter",
            "Blank: all of them. Otherwise fields with their values, such as status:error"
            " attr.tenant.id:acme; null stands for no value. Any attribute is a filter.",
            maxlength=12_000, required=False,
        ),
        _number("window_hours", "Window in hours", "From 1 to 24."),
        AlertField("bound", "Alert when the figure", options=_BOUNDS),
        _number(
            "value", "Bound", "A change is in percent, against the same hours of the seven days before.",
            "decimal",
        ),
        _number("least", "Minimum rows in a window", "Windows with fewer are skipped."),
    ),
    "ingest.silent": (
        _number("hours", "Hours of silence", "From 6 to 168."),
        _number("days", "Days with spans before that", "From 2 to 14, without a gap."),
    ),
    "ingest.dead_letters": (_number("spans", "Spans in dead letters"),),
    "ingest.down": (_number("minutes", "Minutes that ingest is down"),),
    "disk.budget": (_number("forecast_days", "Days until the budget is used up", "At the current growth."),),
    "backup.old": (_number("hours", "Hours since the last good backup"),),
    "certificate.expiring": (_number("days", "Days until the certificate expires"),),
}  # fmt: skip

_PARAMS: Final = re.compile(r"params of [a-z_.]+: (.*?)(?: - at `\$(?:\.(\w+))?.*`)?", re.DOTALL)
#: Types as their checker calls them, for people.
_TYPES: Final = {
    "`str` matching regex '^([01][0-9]|2[0-3]):[0-5][0-9]$'": "a time such as 08:00",
    "`array` of length >= 1": "at least one address",
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "a text",
    ">=": "of at least",
    "<=": "of at most",
}


def at_field(refusal: Refusal, kind: str) -> tuple[str, str]:
    """Which field of a form a refusal is about, blank where it is about none, and the refusal for people."""
    text = refusal.message
    if refusal in (BLANK_NAME, CHANNEL_TAKEN, RULE_TAKEN):
        return "name", text
    if matched := _PARAMS.fullmatch(text):
        text, name = matched[1], matched[2] or ""
        for spelled, plain in _TYPES.items():
            text = text.replace(spelled, plain)
        return name, text
    if kind in CHANNEL_FIELDS and refusal.code == "BAD_REQUEST":
        for name in ("base_url", "url"):
            if text.startswith(name + " "):
                return name, "the address" + text.removeprefix(name)
        if "mail server" not in text:
            return CHANNEL_FIELDS[kind][-1 if "token" in text else 0].name, text
    if text.startswith("unknown detector "):
        return "detectors", text
    if kind == "metric" and (refusal.code == UNKNOWN_FIELD.code or " filter" in f" {text}"):
        return "filters", text
    if text.startswith("an error_rate is"):
        return "value", "an error rate is a number from 0 to 1"
    if text.startswith("no figure ") or text.startswith("no error_rate "):
        return "value", text.replace("error_rate", "error rate")
    return "", text
