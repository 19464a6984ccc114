"""Slack's incoming webhooks: a text for notices and blocks for the channel. The address is the secret."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.alerts import ChannelSecret, HttpSending
from svc.domain.alerts.channels.channel import ChannelType, Outgoing, address_fault
from svc.domain.quantities import count

#: Slack refuses longer ones.
_HEADER_CHARS: Final = 150
_SECTION_CHARS: Final = 2_900
_MARKS: Final = {"high": ":red_circle:", "medium": ":large_orange_circle:", "low": ":large_yellow_circle:"}


class SlackParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Nothing that may be shown."""


def _escaped(text: str) -> str:
    """As Slack's mrkdwn wants it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _fault(_params: SlackParams, secret: str | None) -> str | None:
    return None if secret is None else address_fault(secret, "the address of the incoming webhook")


def _write(_params: SlackParams, secret: ChannelSecret | None, outgoing: Outgoing) -> HttpSending:
    assert secret is not None, "without its address there is no channel"
    message = outgoing.message
    mark = ":white_check_mark:" if message.state == "over" else _MARKS.get(message.severity, ":bell:")
    header = {"type": "plain_text", "text": f"{mark} {message.title}"[:_HEADER_CHARS], "emoji": True}
    blocks: list[dict[str, Any]] = [{"type": "header", "text": header}]
    for item in message.items:
        linked = f"*<{outgoing.link(item.path)}|{_escaped(item.subject)}>* {_escaped(item.title)}"
        text = linked + (f"\n{_escaped(item.text)}" if item.text else "")
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": text[:_SECTION_CHARS]}})
    omitted = f"and {count(message.more)} more · " if message.more else ""
    about = (
        f"{omitted}{message.org}/{message.project} · {message.rule} · <{outgoing.link(message.path)}|Open>"
    )
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": about[:_SECTION_CHARS]}]})
    body = msgspec.json.encode({"text": _escaped(message.title), "blocks": blocks})
    return HttpSending(secret.secret, {"content-type": "application/json"}, body)


CHANNEL: Final = ChannelType(
    kind="slack",
    title="Slack",
    params=SlackParams,
    credential="given",
    credential_label="address of the incoming webhook",
    keeps_incidents=False,
    leads_to=lambda _params: "an incoming webhook",
    fault=_fault,
    write=_write,
)
