"""The heartbeat host: one POST of one small JSON message, no redirects, no cookies, a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import httpx2
import trio

TIMEOUT_S: Final = 10.0


@attrs.frozen
class HeartbeatHost:
    """Implements the `Deliver` port. The host is resolved when a message is delivered, and never before."""

    url: str

    async def deliver(self, message: Mapping[str, Any]) -> str | None:
        """Deliver a message. Returns None, or why it was not delivered; never raises for the other side."""
        try:
            with trio.fail_after(TIMEOUT_S):
                async with httpx2.AsyncClient(follow_redirects=False, timeout=TIMEOUT_S) as client:
                    response = await client.post(
                        self.url, json=dict(message), headers={"user-agent": "trace-svc"}
                    )
        except trio.TooSlowError:
            return f"no answer within {TIMEOUT_S:g} s"
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            return type(error).__name__
        return None if response.is_success else f"status {response.status_code}"
