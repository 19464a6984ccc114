"""PagerDuty's Events API v2: a trigger opens an incident, a resolve with the same key closes it."""

from __future__ import annotations

import re
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

_KEY: Final = re.compile(r"[A-Za-z0-9_-]{20,64}", re.ASCII)
_SEVERITIES: Final[dict[AlertSeverity, str]] = {
    "high": "critical",
    "medium": "error",
    "low": "warning",
    "info": "info",
}
#: PagerDuty cuts what is longer.
_SUMMARY_CHARS: Final = 1_024


class PagerDutyParams(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Which of its regions; `https://events.eu.pagerduty.com` is the other one."""

    base_url: Annotated[str, Meta(max_length=500)] = "https://events.pagerduty.com"


def _fault(params: PagerDutyParams, secret: str | None) -> str | None:
    if secret is not None and not _KEY.fullmatch(secret):
        return "the integration key is 32 letters and digits"
    return address_fault(params.base_url, "base_url")


def _write(params: PagerDutyParams, secret: ChannelSecret | None, outgoing: Outgoing) -> HttpSending:
    assert secret is not None, "without its key there is no channel"
    message = outgoing.message
    link = outgoing.link(message.path)
    event: dict[str, Any] = {"routing_key": secret.secret, "dedup_key": message.dedup_key}
    if message.state == "over" or message.kind == "case.resolved":
        event["event_action"] = "resolve"
    else:
        event |= {
            "event_action": "trigger",
            "client": "trace-svc",
            "client_url": link,
            "links": [{"href": link, "text": "Open"}],
            "payload": {
                "summary": message.title[:_SUMMARY_CHARS],
                "source": f"{message.org}/{message.project}",
                "severity": _SEVERITIES[message.severity],
                "timestamp": message.occurred_at,
                "component": message.rule,
                "custom_details": {"text": plain_text(outgoing)},
            },
        }
    return HttpSending(
        params.base_url.rstrip("/") + "/v2/enqueue",
        {"content-type": "application/json"},
        msgspec.json.encode(event),
    )


CHANNEL: Final = ChannelType(
    kind="pagerduty",
    title="PagerDuty",
    params=PagerDutyParams,
    credential="given",
    credential_label="integration key",
    keeps_incidents=True,
    leads_to=lambda params: host_of(params.base_url),
    fault=_fault,
    write=_write,
)
