"""The heartbeat host: one POST of one small JSON message, no redirects, no cookies, a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from svc.outside.http import HttpClient, Unreached


@attrs.frozen
class HeartbeatHost:
    """How a heartbeat is delivered. The host is resolved when a message is delivered, and never before."""

    url: str
    client: HttpClient = attrs.field(factory=HttpClient)

    async def deliver(self, message: Mapping[str, Any]) -> str | None:
        """Deliver a message. Returns None, or why it was not delivered; never raises for the other side."""
        body = msgspec.json.encode(message)
        try:
            answer = await self.client.ask(
                "POST", self.url, headers={"content-type": "application/json"}, body=body, read=False
            )
        except Unreached as unreached:
            return str(unreached)
        return None if 200 <= answer.status < 300 else f"status {answer.status}"
