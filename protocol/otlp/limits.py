"""What one body may hold, whatever its bytes: the limits of ingest, and how one that is passed is told.

The settings fill `Limits` (`svc.config.table`), the readers count, the doors answer 413 with the name of the
limit and of its setting. A span above a limit refuses its whole body, not itself alone: to find out how many
spans share the fault, all of it would have to be read, which is what the limits forbid; and a partial success
would tell the exporter that the rest was worth sending so.

The defaults are far above what honest exporters send: OpenInference flattens a conversation into thousands of
attributes, and a batch may resend one history a hundred times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import attrs

Limit = Literal["spans", "groups", "entries", "attributes", "events", "links", "values", "depth"]


@attrs.frozen
class Limits:
    """How many of each. `spans`, `groups` and `entries` hold for a body, all others for one span."""

    spans: int = 65_536
    #: `resource_spans` and `scope_spans` together.
    groups: int = 65_536
    #: Attributes, events and links of all spans together, and what is nested in spans of 256 KiB and more.
    entries: int = 2_000_000
    #: Of a span, an event, a link, a resource or a scope.
    attributes: int = 20_000
    events: int = 2_000
    links: int = 2_000
    #: Attributes, events, links and whatever is nested in them.
    values: int = 500_000
    #: Arrays and maps around a value.
    depth: int = 64
    #: Why a span of this trace and name is refused though it could be stored; None where nobody bounds that.
    quota: Callable[[bytes, str], str | None] | None = None


@attrs.frozen
class QuotaUse:
    """A quota of a project, by its setting, and the most that is used of it; `size` 0 is none."""

    setting: str
    size: int
    used: int


#: By how much U+FFFD may lengthen all texts of a body that are not UTF-8.
MENDED_EXTRA_BYTES: Final = 1024 * 1024

#: What a body is measured by when nobody says otherwise.
DEFAULT_LIMITS: Final = Limits()


class OverLimit(Exception):
    """The body holds more than the limit of this name allows."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(f"too many {limit}")
        self.limit: Limit = limit


@attrs.define(eq=False)
class BodyCount:
    """What a body holds so far. Its verbs raise `OverLimit` for what is above the limits."""

    limits: Limits
    groups: int = 0
    items: int = 0
    entries: int = 0

    def group(self) -> None:
        """One group more."""
        self.groups += 1
        if self.groups > self.limits.groups:
            raise OverLimit("groups")

    def item(self) -> None:
        """One span more, or what another signal has in its place."""
        self.items += 1
        if self.items > self.limits.spans:
            raise OverLimit("spans")

    def add_entries(self, entries: int) -> None:
        """So many entries more."""
        self.entries += entries
        if self.entries > self.limits.entries:
            raise OverLimit("entries")
