"""The table of channels, and what all of them share: reading their fields, writing a message."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from protocol.alerts import AlertMessage, ChannelKind, ChannelSecret, Sending
from protocol.validation import validation_text
from svc.domain.alerts.channels import email, ntfy, pagerduty, slack, webhook
from svc.domain.alerts.channels.channel import ChannelType, Outgoing
from svc.domain.alerts.params import BadParams

CHANNELS: Final[dict[ChannelKind, ChannelType]] = {
    channel.kind: channel
    for channel in (webhook.CHANNEL, slack.CHANNEL, pagerduty.CHANNEL, ntfy.CHANNEL, email.CHANNEL)
}


def read_fields(kind: ChannelKind, fields: Mapping[str, Any]) -> Any:
    """The fields of a channel. Raises `BadParams`."""
    try:
        return msgspec.convert(dict(fields), CHANNELS[kind].params)
    except msgspec.ValidationError as error:
        text = validation_text(error, CHANNELS[kind].params)
        raise BadParams(f"params of {kind}: {text}"[:300]) from None


def fault_of(kind: ChannelKind, fields: Any, secret: str | None, *, kept: bool, mails: bool) -> str | None:
    """What is wrong with a channel of these fields, in words. `kept`: it has a secret already."""
    type_ = CHANNELS[kind]
    fault = type_.fault(fields, secret)
    if fault is None and type_.credential == "none" and secret is not None:
        fault = f"{kind} has no secret"
    if fault is None and type_.credential == "given" and secret is None and not kept:
        fault = f"{kind} needs its {type_.credential_label}"
    if fault is None and kind == "email" and not mails:
        fault = "no mail server is set: SVC_SMTP_URL"
    return fault


def name_of(delivery_id: UUID) -> str:
    """The id of a message, as receivers know it."""
    return f"msg_{delivery_id.hex}"


def written(
    kind: ChannelKind,
    params: Mapping[str, Any],
    secret: ChannelSecret | None,
    message: AlertMessage,
    delivery_id: UUID,
    now: datetime,
    origin: str,
) -> Sending:
    """A message as its channel sends it."""
    outgoing = Outgoing(message, name_of(delivery_id), now, origin)
    return CHANNELS[kind].write(read_fields(kind, params), secret, outgoing)
