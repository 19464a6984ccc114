"""What is left out of an answer of a tool, and where the whole of it is to be had.

The stores say which payloads had no room (`payload_truncated`); here each learns the route that serves it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from protocol.refusals import ANSWER_TOO_LARGE
from svc.front.api.traces.spans import PAYLOAD_PATH
from svc.front.mcp.given import ToolError
from svc.store.reads.payloads import answer_bytes

#: Room kept for these texts: a few hundred bytes for each of 201 spans.
KEPT_BYTES: Final = 256 * 1024
_MIB: Final = 1024 * 1024


def encoded(answer: dict[str, Any] | msgspec.Struct, room_bytes: int) -> bytes:
    """An answer as JSON. Raises `ToolError` when it has no room."""
    raw = msgspec.json.encode(answer)
    if answer_bytes(raw) > room_bytes:
        raise ToolError(ANSWER_TOO_LARGE.format(most_mib=max(1, room_bytes // _MIB)))
    return raw


async def with_places(
    spans: Iterable[dict[str, Any]], slugs: Callable[[], Awaitable[tuple[str, str] | None]]
) -> None:
    """Add `whole` to every `payload_truncated`: GET it with the same key. `slugs`: organization, project."""
    cut = [span for span in spans if "payload_truncated" in span]
    project_slugs = await slugs() if cut else None
    if project_slugs is None:
        return
    for span in cut:
        span["payload_truncated"]["whole"] = PAYLOAD_PATH.format(
            orgSlug=project_slugs[0],
            projectSlug=project_slugs[1],
            trace_id=span["trace_id"],
            span_id=span["span_id"],
        )
