"""Forms of alerts as they are typed, and what these ask for.

Pure. What is right or wrong with a form is for the handlers of the REST API to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, Final

import attrs
import msgspec

from protocol.alerts import RULE_KINDS, ChannelKind, RuleKind
from protocol.refusals import Refusal
from protocol.rest.alerts import ChannelShown, ChannelTested, FiredShown, RuleShown
from protocol.sealed import Unlogged
from svc.domain.alerts.params import (
    PARAMS,
    BadParams,
    FilterValue,
    kept_params,
    read_params,
    typed_params,
)
from svc.domain.queries.filter_line import as_line, as_token, can_be_typed, read_line
from svc.web.alerts.alerts_text import (
    CHANNEL_FIELDS,
    CHANNEL_KINDS,
    FILTER_TWICE,
    FOREIGN_FILTERS,
    KINDS,
    NAME,
    NO_FILTER,
    STORED,
    at_field,
)
from svc.web.shell import words


def free_name(usual: str, taken: Iterable[str]) -> str:
    """The usual name, numbered where another has it."""
    names = set(taken)
    numbered = (usual if number == 1 else f"{usual} {number}" for number in count(1))
    return next(name for name in numbered if name not in names)


@attrs.frozen
class ActShown:
    """What an act came to, to be shown on the page."""

    refusal: Refusal | None = None
    #: The signing secret that we made, and of which channel.
    secret: tuple[str, str] | None = None
    tested: tuple[str, ChannelTested] | None = None
    fired: FiredShown | None = None

    @property
    def status(self) -> int:
        """That of the page."""
        return self.refusal.status if self.refusal else 200


class ChannelForm(Unlogged):
    """A channel as it was typed. Secrets: never log one."""

    kind: str = "webhook"
    name: str = ""
    url: str = ""
    base_url: str = ""
    to: str = ""
    secret: str = ""
    id: str = ""
    #: Sent by the first of the two steps to an alert: a test message and the rule follow.
    step: str = ""

    @classmethod
    def new(cls, kind: ChannelKind, channels: Iterable[ChannelShown]) -> ChannelForm:
        """What the form of a new channel begins with."""
        name = free_name(CHANNEL_KINDS[kind], (channel.name for channel in channels))
        return cls(kind, name, step="1")

    @classmethod
    def of(cls, channel: ChannelShown) -> ChannelForm:
        """A channel that is there, without its secret."""
        params = channel.params or {}
        to = " ".join(params.get("to", ()))
        return cls(
            channel.kind, channel.name, params.get("url", ""), params.get("base_url", ""), to, id=channel.id
        )

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


def channel_fields(form: ChannelForm, refusal: Refusal | None = None, *, mails: bool) -> dict[str, Any]:
    """What the form of a channel shows: its fields with what was typed, and which of them is wrong."""
    field, fault = ("", "") if refusal is None else at_field(refusal, form.kind)
    return {
        "form": msgspec.structs.replace(form, secret=""),
        "wrong": {field: fault},
        "name_field": NAME,
        "fields": CHANNEL_FIELDS.get(form.kind, ()),
        "channel_kinds": CHANNEL_KINDS,
        "stored": STORED,
        "mails": mails,
    }


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
    filters: str = ""
    #: Filters whose names cannot be typed, as JSON: set over the API, they stay as they are.
    untyped_filters: str = ""
    window_hours: str = ""
    bound: str = ""
    value: str = ""
    least: str = ""
    id: str = ""

    @classmethod
    def new(cls, kind: RuleKind, channels: list[str], rules: Iterable[RuleShown]) -> RuleForm:
        """What the form of a new rule begins with: the defaults of its kind."""
        params = _METRIC if kind == "metric" else msgspec.to_builtins(PARAMS[kind]())
        return cls._filled(kind, free_name(KINDS[kind], (rule.name for rule in rules)), channels, params)

    @classmethod
    def of(cls, rule: RuleShown) -> RuleForm:
        """A rule that is there."""
        return cls._filled(rule.kind, rule.name, rule.channels, rule.params, id=rule.id)

    @classmethod
    def _filled(
        cls, kind: RuleKind, name: str, channels: list[str], params: Mapping[str, Any], id: str = ""
    ) -> RuleForm:
        fields = {
            field: words.typed(value) if isinstance(value, float) else str(value)
            for field, value in params.items()
            if field not in ("filters", "detectors")
        }
        filters: Mapping[str, FilterValue] = params.get("filters", {})
        untyped = {name: value for name, value in filters.items() if not can_be_typed(name)}
        if untyped:
            fields["untyped_filters"] = msgspec.json.encode(untyped).decode()
        fields["filters"] = as_line({name: filters[name] for name in filters if name not in untyped})
        detectors = " ".join(params.get("detectors", ()))
        return cls(kind, name, channels, detectors=detectors, id=id, **fields)

    def params(self) -> dict[str, Any]:
        """What it asks for; what is blank has its default. Raises `BadParams`."""
        if self.kind not in RULE_KINDS:
            raise BadParams("there is no such kind of rule")
        kind = self.kind
        names = set(PARAMS[kind].__struct_fields__)
        typed = {
            name: getattr(self, name).strip()
            for name in (names & set(RuleForm.__struct_fields__)) - {"filters"}
            if getattr(self, name).strip()
        }
        params = kept_params(typed_params(kind, typed))
        if "filters" in names:
            params["filters"] = {**self._typed_filters(), **self._untyped_filters()}
            params = kept_params(read_params(kind, params))
        return params

    def _typed_filters(self) -> dict[str, FilterValue]:
        """What the line says. Raises `BadParams`."""
        filters: dict[str, FilterValue] = {}
        for token in read_line(self.filters):
            if not token.name:
                raise BadParams(NO_FILTER.format(text=token.text[:100]))
            if token.name in filters:
                raise BadParams(FILTER_TWICE.format(name=token.name[:100]))
            filters[token.name] = token.value
        return filters

    def _untyped_filters(self) -> dict[str, FilterValue]:
        """What the form carries on as it came. Raises `BadParams`."""
        try:
            return msgspec.json.decode(self.untyped_filters or "{}", type=dict[str, FilterValue])
        except msgspec.MsgspecError:
            raise BadParams(FOREIGN_FILTERS) from None

    @property
    def further_filters(self) -> list[str]:
        """The filters that the form does not show, as a line would have them."""
        try:
            return [as_token(name, value) for name, value in self._untyped_filters().items()]
        except BadParams:
            return []


class AlertTarget(msgspec.Struct):
    """Which channel, rule or delivery."""

    id: str


class MuteForm(msgspec.Struct):
    """For how many hours a rule keeps still; 0 lets it speak again."""

    id: str
    hours: int = 0


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
