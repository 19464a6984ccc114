"""The mailer of invitations: sends the link of an invitation to the address that is invited.

Owns nothing but the rhythm: whoever asks leaves an address in the mailbox, which the wiring lends, and hears
nothing of what comes of it. Never answers a client: neither its answer nor its time may tell who is invited.

Secrets: a link is made for one mail and kept nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from actors.supervision import Vitals
from protocol.alerts import MailSending, Undelivered
from protocol.storage import Outage

log = logging.getLogger(__name__)

#: Addresses that wait; beyond it a request is counted and dropped, and the person asks again.
MAILBOX_BOUND: Final = 32


@attrs.define
class InvitationMailTally:
    """What became of requests for a link since the start of this process."""

    mailed: int = 0
    failed: int = 0
    refused_full: int = 0


@attrs.define(eq=False)
class InvitationMailer:
    """Works the mailbox off. `compose` is the mail for an address, or None when none is to be sent."""

    mailbox: trio.MemoryReceiveChannel[str]
    compose: Callable[[str], Awaitable[MailSending | None]]
    send: Callable[[MailSending], Awaitable[Undelivered | None]]
    tally: InvitationMailTally
    vitals: Vitals

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        self.vitals.works()
        async for email_key in self.mailbox:
            try:
                mail = await self.compose(email_key)
            except Outage as outage:
                self.tally.failed += 1
                self.vitals.waits(str(outage))
                continue
            self.vitals.works()
            if mail is not None:
                await self._send(mail)

    async def _send(self, mail: MailSending) -> None:
        undelivered = await self.send(mail)
        if undelivered is None:
            self.tally.mailed += 1
        else:
            self.tally.failed += 1
            log.warning("an invitation was not mailed: %s", undelivered.why)
