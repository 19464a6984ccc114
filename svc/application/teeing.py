"""The tee: what ingest accepted goes to one more endpoint, where the settings name one."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from actors.tee import Tee, TeeTally
from protocol.storage import Batch
from svc.config.table import Settings
from svc.outside.tee import TeeEndpoint

#: The longest that a stop waits for the endpoint, of the time that all of it has.
FLUSH_TIMEOUT_S: Final = 5.0


@attrs.frozen
class Teeing:
    """The tee and where it leads to; without an endpoint it hears nothing."""

    endpoint: TeeEndpoint | None
    tee: Tee

    @classmethod
    def of(cls, settings: Settings) -> Teeing:
        """As the settings say."""
        url, tee = settings.tee_endpoint, Tee(settings.tee_max_bytes)
        return cls(None if url is None else TeeEndpoint(url, dict(settings.tee_headers)), tee)

    def hears(self, batch: Batch) -> None:
        """An accepted batch."""
        if self.endpoint is not None:
            self.tee.offer(batch.body, batch.spans)

    def tally(self) -> TeeTally | None:
        """What became of what it heard; None where there is no endpoint."""
        return None if self.endpoint is None else self.tee.tally

    def health(self) -> dict[str, Any]:
        """Its component of the health report. What is not forwarded is stored all the same, so it is UP."""
        if self.endpoint is None:
            return {}
        host = urlsplit(self.endpoint.url).hostname
        return {"tee": {"status": "UP", "details": {"host": host, **attrs.asdict(self.tee.tally)}}}

    async def flushed(self, left_s: float) -> None:
        """Let what waits arrive at a stop, for a little of the time that is left."""
        if self.endpoint is not None:
            await self.tee.flushed(max(0.0, min(left_s, FLUSH_TIMEOUT_S)))
