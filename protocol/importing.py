"""What an importer says to whoever fetches for it, and to the store: questions, answers, and two noes.

Shapes only. The client (`svc.outside.history`) speaks HTTP and knows no product, the importers
(`svc.importers`) know the products and no HTTP, and neither knows the store.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from protocol.storage import Outage


class PageTooLarge(Exception):
    """The answer is larger than one may be: ask for less at once."""


class NotThere(Exception):
    """The other side knows no such thing, or has no such route."""


class FailedQuestion(Outage):
    """The other side fails at this very question, each time that it is asked. Others it may answer."""


@attrs.frozen
class StoredSums:
    """Of spans that were asked for, those that are stored: how many, of how many traces, what they used.

    `tokens` are all that spans told; `again` those of them that repeat what another span told, which no sum
    counts. `last_trace` is the last trace among them, for whoever counts on.
    """

    spans: int = 0
    traces: int = 0
    tokens: int = 0
    again: int = 0
    unpriced: int = 0
    last_trace: bytes = b""


class Fetch(Protocol):
    """Asks the other product once, patiently.

    Raises `PageTooLarge`, `NotThere`, `OperatorError` for a no that waiting does not mend, `FailedQuestion`
    for one that the other side fails at, and `Outage` when patience is at its end.
    """

    async def __call__(
        self, method: str, path: str, query: tuple[tuple[str, str], ...] = (), body: bytes = b""
    ) -> bytes: ...
