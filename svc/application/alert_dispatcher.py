"""What sends alerts: a channel's opened secret, what it writes, and the clients of other systems.

`AlertDispatcher` is what deliverers send with, and what the front tests a channel with.

Secrets: a channel's secret is opened for one message and handed to one request.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final
from uuid import UUID

import attrs
import msgspec

from protocol.alerts import (
    AlertChannel,
    AlertMessage,
    ChannelSecret,
    DeliveryLease,
    RuleKind,
    Undelivered,
)
from protocol.sealed import Lost
from svc.application.addresses import alert_networks, public_origin
from svc.config.table import Settings
from svc.domain.alerts.channels.table import written
from svc.outside.alerts import AlertSender
from svc.outside.smtp import MailServer
from svc.secrets.sealing import Sealer

_UNWATCHED: Final[dict[RuleKind, str]] = {
    "disk.budget": "there is no disk budget: SVC_DISK_BUDGET_BYTES",
    "backup.old": "there is no nightly backup: SVC_BACKUP_DIR",
    "certificate.expiring": "this service does no TLS of its own: SITE_DOMAIN",
}


@attrs.define(eq=False)
class AlertDispatcher:
    """Writes and sends messages. `port` is that of the front, once it is bound."""

    settings: Settings
    sender: AlertSender
    seals: Sealer = attrs.field(repr=False)
    now: Callable[[], datetime]
    port: int

    @classmethod
    def of(cls, settings: Settings, now: Callable[[], datetime]) -> AlertDispatcher:
        """By the settings of this instance."""
        sender = AlertSender(alert_networks(settings), mail_server(settings))
        return cls(settings, sender, Sealer.of(settings), now, settings.http_bind[1])

    @property
    def mails(self) -> bool:
        """Whether a mail server is set."""
        return self.sender.mail is not None

    async def send(self, lease: DeliveryLease) -> int | Undelivered | None:
        """Send what a deliverer holds."""
        return await self.try_channel(lease.channel, lease.message, lease.delivery_id)

    async def try_channel(
        self, channel: AlertChannel, message: AlertMessage, delivery_id: UUID
    ) -> int | Undelivered | None:
        """Send a message over a channel, once. Never raises for what the other side does."""
        secret = None
        if channel.sealed is not None:
            opened = self.seals.open(channel.sealed, channel.purpose)
            if isinstance(opened, Lost):
                return Undelivered(opened.reason)
            secret = msgspec.json.decode(opened, type=ChannelSecret)
        origin = public_origin(self.settings, self.port)
        sending = written(channel.kind, channel.params, secret, message, delivery_id, self.now(), origin)
        return await self.sender.send(sending)

    def unwatched(self, kind: RuleKind) -> str | None:
        """Why rules of this kind see nothing here; None: they are watched."""
        watched = {
            "disk.budget": bool(self.settings.disk_budget_bytes),
            "backup.old": self.settings.backup_dir is not None,
            "certificate.expiring": self.settings.does_tls,
        }
        return None if watched.get(kind, True) else _UNWATCHED[kind]


def mail_server(settings: Settings) -> MailServer | None:
    """The operator's mail server, if one is set."""
    if settings.smtp_url is None:
        return None
    return MailServer.of(settings.smtp_url, settings.smtp_from, settings.smtp_ca_file)
