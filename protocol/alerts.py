"""What alert rules, the outbox and channels say to each other: kinds, events, messages, deliveries, outcomes.

Shapes and closed lists only. Rules and channels of the domain make and read them, `svc.store.alerts` keeps
them, the actors carry them, `svc.outside` sends what a channel made of a message.

Secrets: a `ChannelSecret` is sealed wherever it is kept, and shown by nobody's repr.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, get_args
from uuid import UUID

import attrs
import msgspec

RuleKind = Literal[
    "case.opened",
    "case.reopened",
    "case.resolved",
    "digest",
    "ingest.down",
    "ingest.dead_letters",
    "ingest.silent",
    "disk.budget",
    "backup.old",
    "certificate.expiring",
    "metric",
]
RULE_KINDS: Final[tuple[RuleKind, ...]] = get_args(RuleKind)
#: Rules that an event notifies, in its own transaction; the other rules check at intervals.
TOLD_KINDS: Final[tuple[RuleKind, ...]] = ("case.opened", "case.reopened", "case.resolved")

ChannelKind = Literal["webhook", "slack", "pagerduty", "ntfy", "email"]
CHANNEL_KINDS: Final[tuple[ChannelKind, ...]] = get_args(ChannelKind)

#: How bad an event is; `info` asks nobody to do anything.
AlertSeverity = Literal["info", "low", "medium", "high"]
#: `told` stands for itself, `firing` goes on until it is `over`.
EventState = Literal["told", "firing", "over"]
DeliveryState = Literal["queued", "sent", "dead"]

#: What follows the last try that a delivery gets.
REST_AFTER_S: Final = (5.0, 60.0, 300.0, 1_800.0, 7_200.0, 28_800.0, 86_400.0)
TRIES: Final = len(REST_AFTER_S) + 1
#: A receiver cannot ask for a longer rest.
AGAIN_MOST_S: Final = 86_400.0
#: A delivery is held for so long; sending one has to end before.
LEASE_S: Final = 30.0
SEND_TIMEOUT_S: Final = 22.0
#: Events of one rule wait this long for others of their kind.
GATHER_S: Final = 5.0
#: A rule makes messages no more often; what happens meanwhile stands in its next one.
MESSAGE_REST_S: Final = 60.0
#: Events that one message stands for at most, and those of them that it names.
EVENTS_A_MESSAGE: Final = 500
ITEMS_NAMED: Final = 20
#: Messages that may wait for one channel; further ones are dead at once.
QUEUED_MAX: Final = 1_000
#: What a project may have.
CHANNELS_MAX: Final = 50
RULES_MAX: Final = 100
#: Rules of them that look into payloads, for an attribute that is no field.
LOOKING_RULES_MAX: Final = 10
MUTE_MAX: Final = timedelta(days=365)
#: An earlier signing secret still signs for so long after a rotation.
BOTH_SECRETS_FOR: Final = timedelta(hours=24)
TITLE_CHARS: Final = 300
TEXT_CHARS: Final = 600
#: Why something was not delivered, as it is kept.
FAILURE_CHARS: Final = 300


class AlertFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one event tells. `path` is below the project's pages, empty where none shows it."""

    title: str
    text: str = ""
    severity: AlertSeverity = "info"
    path: str = ""


class AlertItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a message names."""

    subject: str
    title: str
    text: str
    severity: AlertSeverity
    path: str
    occurred_at: str


class AlertMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent, whatever the channel. `more` counts what `items` leaves out.

    `dedup_key` is the same for everything about one subject, so that what is over closes what was firing.
    """

    kind: RuleKind | Literal["test"]
    rule: str
    org: str
    project: str
    state: EventState
    title: str
    severity: AlertSeverity
    dedup_key: str
    path: str
    occurred_at: str
    items: tuple[AlertItem, ...]
    more: int = 0


class ChannelSecret(msgspec.Struct, frozen=True, kw_only=True):
    """What a channel signs in or signs with; `previous` still signs until then. Secrets: never log one."""

    secret: str
    previous: str | None = None
    previous_until: datetime | None = None

    def __repr__(self) -> str:
        return "ChannelSecret(…)"


@attrs.frozen
class AlertChannel:
    """A channel as it is stored. `sealed` holds a `ChannelSecret`, None where it needs none."""

    project_id: int
    id: UUID
    kind: ChannelKind
    name: str
    params: Mapping[str, Any]
    sealed: str | None = attrs.field(repr=False)
    created_at: datetime
    updated_at: datetime
    failures: int = 0
    rests_until: datetime | None = None
    last_error: str | None = None
    last_sent_at: datetime | None = None
    off_at: datetime | None = None

    @property
    def purpose(self) -> str:
        """What its secret is sealed for."""
        return f"alert channel {self.project_id} {self.id}"


@attrs.frozen
class AlertRule:
    """A rule as it is stored."""

    project_id: int
    id: UUID
    kind: RuleKind
    name: str
    params: Mapping[str, Any]
    channels: tuple[UUID, ...]
    created_at: datetime
    updated_at: datetime
    muted_until: datetime | None = None
    muted_by: str | None = None
    due_at: datetime | None = None
    looked_at: datetime | None = None
    trouble: str | None = None
    told_at: datetime | None = None

    def is_muted(self, now: datetime) -> bool:
        """Whether it keeps still."""
        return self.muted_until is not None and self.muted_until > now


@attrs.frozen
class AlertEvent:
    """One row of the outbox."""

    id: int
    subject: str
    state: EventState
    facts: AlertFacts
    occurred_at: datetime


@attrs.frozen
class AlertPlace:
    """Where a rule stands, as links and messages name it."""

    org: str
    project: str


@attrs.frozen
class CheckResult:
    """What a rule sees at a look: the facts of each subject that is firing.

    `covers` is the one subject that was looked at: others are left as they are; blank is all. `told` are
    things told once, by subject. `next_at` is when to look again. `trouble` says why nothing could be seen,
    which changes nothing of what was.
    """

    next_at: datetime
    firing: Mapping[str, AlertFacts] = attrs.field(factory=dict)
    told: Mapping[str, AlertFacts] = attrs.field(factory=dict)
    covers: str = ""
    trouble: str | None = None


@attrs.frozen
class DeliveryLease:
    """A delivery in hand. Who does not know its token any more changes nothing."""

    project_id: int
    delivery_id: UUID
    token: UUID
    tries: int
    channel: AlertChannel
    message: AlertMessage


@attrs.frozen
class StandingRule:
    """A rule that is told even while the database is away, with all that it takes to do so.

    `told`: that this copy is down stands in the outbox already.
    """

    rule: AlertRule
    place: AlertPlace
    channels: tuple[AlertChannel, ...]
    told: bool


@attrs.frozen
class DirectLetter:
    """What became of a message that was sent while the database was away."""

    delivery_id: UUID
    channel_id: UUID
    message: AlertMessage
    made_at: datetime
    tries: int
    state: DeliveryState
    status: int | None = None
    failure: str | None = None
    #: Of one that is queued: when it is to be tried again.
    again_s: float = 0.0


@attrs.frozen
class ToldDirectly:
    """What a rule told while the database was away, to be written down when it is back."""

    rule: AlertRule
    subject: str
    since: datetime
    facts: AlertFacts
    letters: tuple[DirectLetter, ...]


@attrs.frozen
class Undelivered:
    """Why a message did not arrive. `again_s`: the rest that its receiver wants; `gone`: it wants no more."""

    why: str
    status: int | None = None
    again_s: float | None = None
    gone: bool = False

    @property
    def wanted_rest_s(self) -> float:
        """The rest that its receiver wants, as far as it may."""
        return min(max(self.again_s or 0.0, 0.0), AGAIN_MOST_S)

    def rest_s(self, tries: int) -> float | None:
        """How long to rest after so many tries; None after the last."""
        if self.gone or tries >= TRIES:
            return None
        return max(REST_AFTER_S[tries - 1], self.wanted_rest_s)


@attrs.frozen
class HttpSending:
    """A message as an HTTP request. Secrets: the address or a header may hold one."""

    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)


@attrs.frozen
class MailSending:
    """A message as a mail."""

    to: tuple[str, ...]
    subject: str
    text: str
    message_id: str


Sending = HttpSending | MailSending


class WouldHaveFired(msgspec.Struct, kw_only=True):
    """How often a rule would have fired since then, by what history knows, and when (the newest).

    `judged` is false where nothing is kept to judge it by; `note` says what the figure stands on.
    """

    judged: bool
    fired: int
    instants: list[datetime]
    since: datetime
    note: str
