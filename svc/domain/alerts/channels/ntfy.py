"""ntfy: a topic on ntfy.sh or a server of one's own, published to as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from protocol.alerts import AlertSeverity, ChannelSecret, HttpSending
from svc.domain.alerts.channels.channel import (
    ChannelType,
    Outgoing,
    address_fault,
    host_of,
    plain_text,
)

_PRIORITIES: Final[dict[AlertSeverity, int]] = {"high": 5, "medium": 4, "low": 3, "info": 2}
#: ntfy turns what is longer into an attachment.
_MESSAGE_BYTES: Final = 4_000


class NtfyParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The address of the topic, `https://ntfy.sh/my-topic`."""

    url: Annotated[str, Meta(max_length=500)]


def _fault(params: NtfyParams, secret: str | None) -> str | None:
    fault = address_fault(params.url, "url")
    if fault is not None:
        return fault
    server, _, topic = params.url.rstrip("/").rpartition("/")
    if server.endswith(":/") or "?" in topic or "#" in topic:
        return "url must end with the topic, as https://ntfy.sh/my-topic"
    if secret is not None and not (secret.isascii() and secret.isprintable() and " " not in secret):
        return "the access token must be printable ASCII"
    return None


def _write(params: NtfyParams, secret: ChannelSecret | None, outgoing: Outgoing) -> HttpSending:
    message = outgoing.message
    server, _, topic = params.url.rstrip("/").rpartition("/")
    body: dict[str, Any] = {
        "topic": topic,
        "title": message.title,
        "message": plain_text(outgoing).encode()[:_MESSAGE_BYTES].decode(errors="ignore"),
        "priority": 2 if message.state == "over" else _PRIORITIES[message.severity],
        "tags": ["white_check_mark" if message.state == "over" else "warning"],
        "click": outgoing.link(message.path),
    }
    headers = {"content-type": "application/json"}
    if secret is not None:
        headers["authorization"] = f"Bearer {secret.secret}"
    return HttpSending(server + "/", headers, msgspec.json.encode(body))


CHANNEL: Final = ChannelType(
    kind="ntfy",
    title="ntfy",
    params=NtfyParams,
    credential="optional",
    credential_label="access token",
    keeps_incidents=False,
    leads_to=lambda params: host_of(params.url),
    fault=_fault,
    write=_write,
)
