"""Call sites: one row for each place in an application that makes spans.

Registered on first sight, within the write that stores the span. Owns a bounded memory of the ones it has
seen, so that a known call site costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import attrs

from svc.domain.intake.batches import StoredSpan
from svc.store.postgres.database import Connection

_KNOWN_BOUND: Final = 50_000

#: Its project and its id.
CallSite = tuple[int, str]


@attrs.define(eq=False)
class CallSites:
    """The register. Shared by all drainers of a process."""

    _known: set[CallSite] = attrs.field(factory=set)

    async def insert_new(
        self, connection: Connection, spans: Iterable[StoredSpan], now: datetime
    ) -> list[CallSite]:
        """Register the call sites that this process has not stored yet. Returns them."""
        new: dict[CallSite, StoredSpan] = {}
        for span in spans:
            key = (span.project_id, span.row.call_site_id)
            if key not in self._known and (key not in new or new[key].row.provided_model_name is None):
                new[key] = span
        if not new:
            return []
        keys = sorted(new)
        # First sight wins; another replica may have seen it earlier.
        await connection.execute(
            "insert into call_site (project_id, id, tagged, model, provider, first_seen_at)"
            " select p, i, t, m, v, $6"
            " from unnest($1::bigint[], $2::text[], $3::boolean[], $4::text[], $5::text[])"
            " as seen (p, i, t, m, v) on conflict do nothing",
            [project_id for project_id, _ in keys],
            [call_site_id for _, call_site_id in keys],
            [new[key].row.tagged for key in keys],
            [new[key].row.provided_model_name for key in keys],
            [new[key].row.provider for key in keys],
            now,
        )
        return keys

    def forget(self) -> None:
        """What was stored may be so no longer."""
        self._known.clear()

    def remember(self, new: Iterable[CallSite]) -> None:
        """The write is committed: these need no look any more."""
        if len(self._known) > _KNOWN_BOUND:
            self._known.clear()
        self._known.update(new)
