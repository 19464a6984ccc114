"""The table of rounds: what the detecting process does again and again, each kept for itself.

Owns: `ROUNDS` and `RoundMeans`, what a round may use. A new one is a function here, or in a file beside, and
one line in the table. A round is `async () -> seconds to rest`: an `Outage` is waited out, any other error
rests it, longer each time, while the others go on. What it counts goes up in `counts`; health shows it by its
name, metrics may ask the service's `Detecting` for its counts. Work that needs the processor for longer than
a second leaves it to the others in between, or runs in a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import attrs

from actors.folder import TraceFolder
from svc.store.detection.folding import FoldStore
from svc.store.postgres.database import Database

#: Does a piece of work and says for how many seconds to rest.
Work = Callable[[], Awaitable[float]]


@attrs.frozen(eq=False)
class RoundMeans:
    """What rounds work with: the database, the key of secrets' marks, whether ingest needs the machine."""

    database: Database
    secret_key: bytes = attrs.field(repr=False)
    busy: Callable[[], bool]


@attrs.frozen
class Round:
    """A name and how its work is built; it is built anew after each crash."""

    name: str
    build: Callable[[RoundMeans, Counter[str]], Work]


def _trace_folder(means: RoundMeans, counts: Counter[str]) -> Work:
    shelf = FoldStore(means.database, secret_key=means.secret_key)
    return TraceFolder(shelf=shelf, busy=means.busy, counts=counts).round


ROUNDS: Final = (Round("trace-folder", _trace_folder),)
