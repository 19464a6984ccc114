"""The ratings of traces, as detectors count them.

Called when traces are read for tallying. Whoever writes feedback has its traces counted anew
(`svc.store.feedback.writing`). Bounded: `MOST_RATINGS` of a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from svc.domain.feedback.entries import WATCHED_CATEGORIES, Rating, guessed_better
from svc.store.postgres.database import Connection

MOST_RATINGS: Final = 200

# The newest numbers of each trace, of names without any the categories, and what is known of the names.
_RATINGS: Final = f"""
select f.* from unnest($2::bytea[]) as due (trace_id) cross join lateral (
    select f.trace_id, f.name, f.span_id, f.number, f.category, n.better, n.graded, n.bad,
        n.categories[:{WATCHED_CATEGORIES}] as watched
    from feedback f join feedback_name n on n.project_id = $1 and n.name = f.name
    where f.project_id = $1 and f.trace_id = due.trace_id
    and (f.number is not null or f.category is not null and n.low is null)
    order by f.created_at desc, f.source desc, f.id desc limit {MOST_RATINGS}
) f
"""


async def read_ratings(
    connection: Connection, project_id: int, trace_ids: Sequence[bytes]
) -> dict[bytes, list[Rating]]:
    """What each of these traces was rated, by those that were."""
    ratings: dict[bytes, list[Rating]] = {}
    for row in await connection.fetch(_RATINGS, project_id, list(trace_ids)):
        better = row["better"] or guessed_better(row["name"])
        rating = Rating(row["name"], row["span_id"], row["number"], better, row["graded"])
        if rating.number is None:
            rating = attrs.evolve(
                rating, category=row["category"], watched=row["watched"], bad=frozenset(row["bad"])
            )
        ratings.setdefault(row["trace_id"], []).append(rating)
    return ratings
