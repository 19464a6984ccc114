"""Standard Webhooks: a JSON body, an id that is the same over retries, a signature over both and the time.

Secrets: `whsec_` and base64 of 24 to 64 bytes. For a day after a rotation both secrets sign.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from protocol.alerts import ChannelSecret, HttpSending
from svc.domain.alerts.channels.channel import ChannelType, Outgoing, address_fault, host_of

PREFIX: Final = "whsec_"
#: What the Standard Webhooks allow.
LEAST_BYTES, MOST_BYTES = 24, 64


class WebhookParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where it is sent."""

    url: Annotated[str, Meta(max_length=500)]


def secret_of(raw: bytes) -> str:
    """Random bytes as a signing secret."""
    return PREFIX + b64encode(raw).decode()


def _key(secret: str) -> bytes | None:
    try:
        key = b64decode(secret.removeprefix(PREFIX), validate=True)
    except (Base64Error, ValueError):
        return None
    return key if secret.startswith(PREFIX) and LEAST_BYTES <= len(key) <= MOST_BYTES else None


def _fault(params: WebhookParams, secret: str | None) -> str | None:
    if secret is not None and _key(secret) is None:
        return f"the secret must be {PREFIX} and base64 of {LEAST_BYTES} to {MOST_BYTES} bytes"
    return address_fault(params.url, "url")


def signature(secret: str, id_: str, moment: datetime, body: bytes) -> str:
    """`v1,` and the base64 of an HMAC-SHA256 over id, seconds since 1970 and body."""
    key = _key(secret)
    assert key is not None, "a secret is checked when it is kept"
    signed = f"{id_}.{int(moment.timestamp())}.".encode() + body
    return "v1," + b64encode(hmac.digest(key, signed, "sha256")).decode()


def _write(params: WebhookParams, secret: ChannelSecret | None, outgoing: Outgoing) -> HttpSending:
    message = outgoing.message
    data = {
        **msgspec.to_builtins(message),
        "link": outgoing.link(message.path),
        "items": [{**msgspec.to_builtins(item), "link": outgoing.link(item.path)} for item in message.items],
    }
    body = msgspec.json.encode({"type": message.kind, "timestamp": message.occurred_at, "data": data})
    headers = {
        "content-type": "application/json",
        "webhook-id": outgoing.id,
        "webhook-timestamp": str(int(outgoing.now.timestamp())),
    }
    if secret is not None:
        signing = [secret.secret]
        if secret.previous is not None and secret.previous_until is not None:
            signing += [secret.previous] if outgoing.now < secret.previous_until else []
        headers["webhook-signature"] = " ".join(
            signature(key, outgoing.id, outgoing.now, body) for key in signing
        )
    return HttpSending(params.url, headers, body)


CHANNEL: Final = ChannelType(
    kind="webhook",
    title="Webhook",
    params=WebhookParams,
    credential="made",
    credential_label="signing secret",
    keeps_incidents=False,
    leads_to=lambda params: host_of(params.url),
    fault=_fault,
    write=_write,
)
