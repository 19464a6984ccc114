"""Sending an alert: one POST, or one mail; what came of it in words that quote nothing of the other side.

Called by the deliverer and by whoever tests a channel. Follows no redirect, reads no body, waits no longer
than the client's deadline. In the clear it connects to networks alone that the operator has listed.

Secrets: an address or a header may hold one; neither stands in what is returned.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import attrs

from protocol.alerts import HttpSending, MailSending, Sending, Undelivered
from protocol.refusals import ADDRESS_NEAR_FOR_ALERTS, ADDRESS_PRIVATE
from svc.outside.addresses import AddressRule, Network
from svc.outside.http import TIMEOUT_S, HttpAnswer, HttpClient, Unreached
from svc.outside.smtp import MailServer

_MEANINGS = {
    400: "it does not take the message",
    401: "the credentials are refused",
    403: "it is not allowed to send there",
    404: "nobody answers at this path; check the address",
    410: "its receiver is gone",
    429: "it limits our rate",
}


@attrs.frozen
class AlertSender:
    """Sends over HTTP to addresses that the rule lets pass, and mails through the operator's server."""

    networks: tuple[Network, ...]
    mail: MailServer | None
    timeout_s: float = TIMEOUT_S

    async def send(self, sending: Sending) -> int | Undelivered | None:
        """The status of what was taken (None: a mail), or why it was not. Never raises for the other side."""
        match sending:
            case HttpSending():
                return await self._post(sending)
            case MailSending():
                if self.mail is None:
                    return Undelivered("no mail server is set: SVC_SMTP_URL")
                return await self.mail.send(sending)

    async def _post(self, sending: HttpSending) -> int | Undelivered:
        open_too = sending.url.lower().startswith("https:")
        client = HttpClient(AddressRule(self.networks, public=open_too), self.timeout_s)
        try:
            answer = await client.ask(
                "POST", sending.url, headers=sending.headers, body=sending.body, read=False
            )
        except Unreached as unreached:
            why = str(unreached)
            return Undelivered(ADDRESS_NEAR_FOR_ALERTS if why == ADDRESS_PRIVATE else why)
        if 200 <= answer.status < 300:
            return answer.status
        why = f"it answers with a redirect ({answer.status}); give the address that it leads to"
        if not 300 <= answer.status < 400:
            why = _MEANINGS.get(answer.status, "it fails")
            why += f" (status {answer.status})"
        return Undelivered(why, answer.status, _again_s(answer), answer.status == 410)


def _again_s(answer: HttpAnswer) -> float | None:
    """How long the receiver wants to be left alone, by its `Retry-After`."""
    retry_after = answer.headers.get("retry-after", "").strip()[:64]
    if answer.status not in (429, 503) or not retry_after:
        return None
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    try:
        retry_at = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    retry_at = retry_at if retry_at.tzinfo is not None else retry_at.replace(tzinfo=UTC)
    return max((retry_at - datetime.now(UTC)).total_seconds(), 0.0)
