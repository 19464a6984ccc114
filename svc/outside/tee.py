"""The endpoint of the tee: accepted OTLP sent on, one request at a time, to whom the operator names.

Called by `actors.tee`. OTLP over HTTP in protobuf, whatever door it came by. Reads no answer but its status
and what it asks to be left alone for.

Secrets: the headers hold the other product's key, and payloads leave the house here; neither is ever logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from protocol.tee import Delivered, Never, NotNow, Outcome
from svc.outside.http import HttpClient, Unreached

TIMEOUT_S: Final = 10.0
#: What OTLP's rules call worth another try.
_AGAIN: Final = frozenset({408, 429, 502, 503, 504})


@attrs.frozen
class TeeEndpoint:
    """Where it goes and with which headers."""

    url: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    http: HttpClient = attrs.field(factory=lambda: HttpClient(timeout_s=TIMEOUT_S))

    async def send(self, body: bytes) -> Outcome:
        """What became of one request."""
        headers = {"content-type": "application/x-protobuf", **self.headers}
        try:
            answer = await self.http.ask("POST", self.url, headers=headers, body=body, read=False)
        except Unreached as error:
            return NotNow(str(error))
        if 200 <= answer.status < 300:
            return Delivered()
        text = answer.headers.get("retry-after", "").strip()
        after_s = float(text) if text.isdecimal() and len(text) < 9 else None
        if answer.status in _AGAIN:
            return NotNow(f"answers {answer.status}", after_s)
        return Never(f"answers {answer.status}")
