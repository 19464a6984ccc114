"""What a kind of channel is: its fields, what it needs of secrets, and how it writes a message."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs

from protocol.alerts import AlertMessage, ChannelKind, ChannelSecret, Sending
from svc.domain.quantities import count


@attrs.frozen
class Outgoing:
    """A message on its way: its id, which is the same over all tries, the moment, and our public origin."""

    message: AlertMessage
    id: str
    now: datetime
    origin: str

    def link(self, path: str) -> str:
        """The address of a page of the project."""
        return f"{self.origin}/orgs/{self.message.org}/projects/{self.message.project}{path}"


@attrs.frozen
class ChannelType:
    """One kind. `made`: we make its secret; `given`: whoever adds it brings it."""

    kind: ChannelKind
    title: str
    params: type[Any]
    credential: Literal["made", "given", "optional", "none"]
    #: What the secret is called where it is asked for.
    credential_label: str
    #: Whether its receiver keeps an incident open until it is told that it is over.
    keeps_incidents: bool
    #: Where it leads, as it may be shown.
    leads_to: Callable[[Any], str]
    #: What is wrong with its fields or its secret, in words; None: nothing.
    fault: Callable[[Any, str | None], str | None]
    write: Callable[[Any, ChannelSecret | None, Outgoing], Sending]


def address_fault(url: str, subject: str) -> str | None:
    """What is wrong with an address that messages are sent to."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    plain = url.isascii() and url.isprintable() and " " not in url
    if not host or parts.scheme not in ("http", "https") or "@" in parts.netloc or not plain:
        return (
            f"{subject} must be an https address without credentials, or an http address within"
            " SVC_ALERT_ALLOWED_NETWORKS"
        )
    return None


def host_of(url: str) -> str:
    """The host of an address and its port, which may be shown where the rest may not."""
    return urlsplit(url).netloc


def plain_text(outgoing: Outgoing) -> str:
    """The message as lines of text, the link last."""
    message = outgoing.message
    lines: list[str] = []
    for item in message.items:
        # What the title says already is not said twice.
        if len(message.items) > 1:
            lines.append(f"- {item.subject}: {item.title}")
        if item.text:
            lines.append(item.text)
    if message.more:
        lines.append(f"and {count(message.more)} more")
    lines.append(outgoing.link(message.path))
    return "\n".join(lines)
