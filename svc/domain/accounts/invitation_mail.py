"""The mail to an invited address, with the link that opens the invitation.

Pure; the mailer's wiring calls it. Names of people and organizations are strangers' text: they stand in one
line each, and never in a header.

Secrets: the link holds the secret of the invitation.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from protocol.alerts import MailSending
from svc.domain.accounts.access import OrgRole

SUBJECT: Final = "The link of your invitation"
_TEXT: Final = """{invited_by} invited you to {place}.

Open this link to join. It opens once, until {until}:

{link}

A link that was mailed to you before does not open any more. If you expect no invitation, ignore this mail.
"""


def invitation_mail(
    *,
    email: str,
    org_name: str,
    role: OrgRole,
    invited_by: str,
    expires_at: datetime,
    secret: str,
    origin: str,
    message_id: str,
) -> MailSending:
    """The mail. `origin` is the public one of the pages."""
    org = " ".join(org_name.split())
    text = _TEXT.format(
        invited_by=" ".join(invited_by.split()),
        place=f"projects of {org}" if role == "none" else f"{org} as {role}",
        until=f"{expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        link=f"{origin}/signup?{urlencode({'invitation': secret})}",
    )
    return MailSending((email,), SUBJECT, text, message_id)
