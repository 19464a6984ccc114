"""Mail, through the server that the operator names in `SVC_SMTP_URL`."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from protocol.alerts import ChannelSecret, MailSending
from svc.domain.alerts.channels.channel import ChannelType, Outgoing, plain_text

_ADDRESS: Final = re.compile(r"[^@\s<>,;:\"\\()\[\]]{1,64}@[A-Za-z0-9.-]{1,250}", re.ASCII)
_SUBJECT_CHARS: Final = 200


class EmailParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Who gets it."""

    to: Annotated[list[Annotated[str, Meta(max_length=320)]], Meta(min_length=1, max_length=20)]


def _fault(params: EmailParams, _secret: str | None) -> str | None:
    fault = next((address for address in params.to if not _ADDRESS.fullmatch(address)), None)
    return None if fault is None else f"'{fault[:100]}' is not an e-mail address"


def _write(params: EmailParams, _secret: ChannelSecret | None, outgoing: Outgoing) -> MailSending:
    message = outgoing.message
    # A line break would begin another header.
    subject = " ".join(f"[{message.project}] {message.title}".split())
    text = f"{message.title}\n\n{plain_text(outgoing)}\n\nRule: {message.rule}\n"
    return MailSending(tuple(params.to), subject[:_SUBJECT_CHARS], text, outgoing.id)


CHANNEL: Final = ChannelType(
    kind="email",
    title="E-mail",
    params=EmailParams,
    credential="none",
    credential_label="",
    keeps_incidents=False,
    leads_to=lambda params: ", ".join(params.to),
    fault=_fault,
    write=_write,
)
