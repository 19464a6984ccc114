"""A `Fetch` that gives recorded answers, and what an import makes of a source: spans as rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import msgspec

from protocol.otlp.admission import admit
from protocol.otlp.limits import DEFAULT_LIMITS
from protocol.storage import Batch
from svc.domain.intake.batches import StoredSpan, decoder
from svc.domain.pricing.prices import PriceBook
from svc.importers.source import ImportPage, ImportWindow, Source

RECORDED = Path(__file__).parent / "recorded"
WINDOW = ImportWindow(None, datetime(2026, 12, 1, tzinfo=UTC))


def recorded(name: str) -> bytes:
    """An answer of a real server."""
    return (RECORDED / name).read_bytes()


@attrs.define
class Replies:
    """Answers each question by `reply`, and keeps what was asked. What `reply` returns may be an error."""

    reply: Callable[[str, dict[str, str], Any], bytes | dict[str, Any] | Exception]
    asked: list[tuple[str, dict[str, str], Any]] = attrs.field(factory=list)

    async def __call__(
        self, method: str, path: str, query: tuple[tuple[str, str], ...] = (), body: bytes = b""
    ) -> bytes:
        read = msgspec.json.decode(body) if body else None
        self.asked.append((f"{method} {path}", dict(query), read))
        answer = self.reply(path, dict(query), read)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, bytes) else msgspec.json.encode(answer)


async def every_page(source: Source, window: ImportWindow = WINDOW) -> list[ImportPage]:
    """All pages of a source."""
    pages, cursor = [], None
    while True:
        page = await source.page(window, cursor)
        pages.append(page)
        if page.cursor is None:
            return pages
        cursor = page.cursor


def rows_of(pages: list[ImportPage]) -> dict[bytes, StoredSpan]:
    """The spans of pages as they would be stored, by their identity."""
    decode = decoder(PriceBook())
    found: dict[bytes, StoredSpan] = {}
    for form, body in chain.from_iterable(page.bodies for page in pages):
        clean, screening = admit(body, form, DEFAULT_LIMITS, inline=False)
        assert not screening.rejected, screening.message()
        batch = Batch(1, clean, screening.accepted, WINDOW.high, 0.0)
        for one in chain.from_iterable(decode(batch)):
            found[one.row.trace_id + one.row.span_id] = one
    return found
