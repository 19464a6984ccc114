"""What each reviewer answered to each entry of a set.

Called by pages. An answer is the thumb that a person gave on the pages to exactly what the entry is: the
trace, or the span of it. Read only; bounded by `MOST_ANSWERS`.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import attrs

from svc.domain.feedback.entries import THUMB
from svc.domain.feedback.reviews import Review
from svc.store.feedback.sets import entry_key
from svc.store.postgres.database import READ_TIMEOUT_S, Database

MOST_ANSWERS: Final = 20_000

# By the index on traces, entry by entry.
_ANSWERS: Final = f"""
select e.trace_id, e.span_id, f.author, f.number from trace_set_entry e
join feedback f on f.project_id = e.project_id and f.trace_id = e.trace_id and f.trace_id is not null
where e.project_id = $1 and e.set_id = $2 and coalesce(f.span_id, '') = e.span_id and f.source = 'page'
    and f.name = '{THUMB}' and f.author is not null and f.number is not null
order by f.author, e.added_at, e.trace_id, e.span_id limit {MOST_ANSWERS}
"""


@attrs.define(eq=False)
class ReviewReads:
    """Raises `Outage`."""

    database: Database

    async def of_set(self, project_id: int, set_id: UUID) -> list[Review]:
        """All answers, reviewer by reviewer in the order of the set."""
        rows = await self.database.fetch(_ANSWERS, project_id, set_id, timeout_s=READ_TIMEOUT_S)
        return [
            Review(entry_key(row["trace_id"], row["span_id"] or None), row["author"], row["number"] >= 0.5)
            for row in rows
        ]
