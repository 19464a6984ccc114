"""Bodies and answers of alerts: channels, rules, what rules would have told, deliveries.

Shapes and plain checks only. Instants are texts in our form (`protocol.rest.query.timestamp`). `params` are
read by their kind where they are kept.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from protocol.alerts import AlertSeverity, ChannelKind, DeliveryState, RuleKind
from protocol.rest.accounts import NAME_MAX, Instant
from protocol.rest.settings import SecretState
from protocol.sealed import Unlogged

Name = Annotated[str, Meta(max_length=NAME_MAX)]
AlertId = Annotated[str, Meta(max_length=64)]
ChannelState = Literal["ready", "resting", "off"]


class ChannelChange(msgspec.Struct, forbid_unknown_fields=True):
    """A channel as a whole. An absent secret keeps the stored one. Secrets: never log one.

    `params` by kind: webhook `{url}`, slack `{}` with the address as its secret, pagerduty `{base_url?}` with
    the integration key, ntfy `{url}` with an access token or none, email `{to}`.
    """

    kind: ChannelKind
    name: Name
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    secret: Annotated[str, Meta(min_length=1, max_length=2_000)] | None = None

    def __repr__(self) -> str:
        return f"ChannelChange({self.kind}, …)"


class ChannelShown(msgspec.Struct, kw_only=True):
    """A channel without its secret. `params` is null for those who may not change it.

    `resting`: it failed and is left alone until then; `off`: its receiver said that it is gone.
    """

    id: str
    kind: ChannelKind
    name: str
    params: dict[str, Any] | None
    leads_to: str
    secret: SecretState
    state: ChannelState
    failures: int
    rests_until: Instant | None
    last_error: str | None
    last_sent_at: Instant | None
    created_at: Instant
    updated_at: Instant


class ChannelMade(Unlogged):
    """A channel, and its signing secret where we made it: shown this once."""

    channel: ChannelShown
    secret: str | None


class ChannelTested(msgspec.Struct):
    """What became of a test message, without what the receiver said."""

    delivered: bool
    status: int | None
    message: str
    took_ms: int


class RuleChange(msgspec.Struct, forbid_unknown_fields=True):
    """A rule as a whole. `params` by kind; those left out have their defaults. `channels` by their ids."""

    kind: RuleKind
    name: Name
    channels: Annotated[list[AlertId], Meta(max_length=50)]
    params: dict[str, Any] = msgspec.field(default_factory=dict)


class RuleShown(msgspec.Struct, kw_only=True):
    """A rule. `says` is what it waits for; `unwatched` why it sees nothing on this service.

    `warning` says that nobody is notified, where the rule has no channel.
    """

    id: str
    kind: RuleKind
    name: str
    says: str
    params: dict[str, Any]
    channels: list[str]
    muted_until: Instant | None
    muted_by: str | None
    looked_at: Instant | None
    told_at: Instant | None
    trouble: str | None
    unwatched: str | None
    warning: str | None
    created_at: Instant
    updated_at: Instant


class MuteChange(msgspec.Struct, forbid_unknown_fields=True):
    """Until when a rule keeps still; null lets it speak again. At most a year."""

    until: Instant | None = None


class RuleBacktest(msgspec.Struct, forbid_unknown_fields=True):
    """What a rule would ask for."""

    kind: RuleKind
    params: dict[str, Any] = msgspec.field(default_factory=dict)


class FiredShown(msgspec.Struct, kw_only=True):
    """How often it would have fired since then and when, newest first. `note`: what that is known by."""

    judged: bool
    fired: int
    instants: list[Instant]
    since: Instant
    note: str


class DeliveriesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which deliveries."""

    state: DeliveryState | None = None
    channel_id: AlertId | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    cursor: str | None = None


class DeliveryShown(msgspec.Struct, kw_only=True):
    """A message to one channel. `path` is that of the page it leads to, below the project's."""

    id: str
    state: DeliveryState
    tries: int
    due_at: Instant | None
    status: int | None
    failure: str | None
    made_at: Instant
    ended_at: Instant | None
    channel_id: str
    channel: str | None
    rule_id: str
    rule: str
    kind: str
    title: str
    severity: AlertSeverity
    path: str


class DeliveryPage(msgspec.Struct):
    """A page of deliveries, newest first."""

    deliveries: list[DeliveryShown]
    next_cursor: str | None


class DeliveryReplayed(msgspec.Struct):
    """It is sent once more, under the id that it had."""

    queued: bool = True
