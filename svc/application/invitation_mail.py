"""The mails with links of invitations: the alerts' mail server, the store, and a bounded mailbox.

The front asks for a mail, the mailer works the mailbox off. The link leads to the origin that the operator
has set, never to one that a request names: whoever asks for a mail to somebody else must not choose where its
secret goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import attrs
import trio

from actors.invitations import MAILBOX_BOUND, InvitationMailer, InvitationMailTally
from actors.supervision import Vitals
from protocol.alerts import MailSending, Undelivered
from svc.application.addresses import public_origin
from svc.application.alert_dispatcher import AlertDispatcher
from svc.domain.accounts.invitation_mail import invitation_mail
from svc.store.accounts.invitations import InvitationStore
from svc.store.postgres.database import Database


@attrs.define(eq=False)
class SmtpInvitationMail:
    """Implements the port `InvitationMail`. `receive` is lent to the mailer."""

    store: InvitationStore
    dispatcher: AlertDispatcher
    tally: InvitationMailTally
    send: trio.MemorySendChannel[str]
    receive: trio.MemoryReceiveChannel[str]

    @classmethod
    def of(cls, database: Database, dispatcher: AlertDispatcher) -> SmtpInvitationMail:
        """With an empty mailbox."""
        send, receive = trio.open_memory_channel[str](MAILBOX_BOUND)
        return cls(InvitationStore(database), dispatcher, InvitationMailTally(), send, receive)

    async def can_send(self) -> bool:
        """Whether mail can be sent: there is a mail server, and an alert channel that uses it."""
        return self.dispatcher.mails and await self.store.can_mail()

    def counts(self) -> Mapping[str, int]:
        """Links mailed, failed and refused, for metrics."""
        return {
            "links_mailed": self.tally.mailed,
            "links_failed": self.tally.failed,
            "links_refused_full": self.tally.refused_full,
        }

    def ask(self, email_key: str) -> None:
        """Mail the link to an address if it is invited, some time soon."""
        try:
            self.send.send_nowait(email_key)
        except trio.WouldBlock:
            self.tally.refused_full += 1

    def mailer(self, vitals: Vitals) -> InvitationMailer:
        """The actor that works the mailbox off."""
        return InvitationMailer(self.receive, self._compose, self._mail, self.tally, vitals)

    async def _compose(self, email_key: str) -> MailSending | None:
        link = await self.store.mailed(email_key)
        if link is None:
            return None
        origin = public_origin(self.dispatcher.settings, self.dispatcher.port)
        return invitation_mail(**attrs.asdict(link), origin=origin, message_id=str(uuid4()))

    async def _mail(self, mail: MailSending) -> Undelivered | None:
        server = self.dispatcher.sender.mail
        return (
            Undelivered("no mail server is set: SVC_SMTP_URL") if server is None else await server.send(mail)
        )
