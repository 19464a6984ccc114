"""Reading what an application publishes about itself, at the address that is its client id.

Called by the consent page. Anybody who is signed in can name an address, so the client's rule for outside
addresses holds; no redirect is followed.
"""

from __future__ import annotations

from typing import Final

import attrs

from svc.outside.http import HttpClient, Unreached

DOCUMENT_BYTES: Final = 16 * 1024
DOCUMENT_TIMEOUT_S: Final = 5.0


@attrs.frozen
class HttpClientDocuments:
    """Implements the front's `ClientDocuments` over a client, whose bounds are narrowed."""

    client: HttpClient

    async def read(self, url: str) -> bytes | None:
        """The document at an address, None where there is none to be had."""
        client = attrs.evolve(self.client, timeout_s=DOCUMENT_TIMEOUT_S, answer_bytes=DOCUMENT_BYTES)
        try:
            answer = await client.ask("GET", url, headers={"accept": "application/json"})
        except Unreached:
            return None
        return answer.body if answer.status == 200 else None
