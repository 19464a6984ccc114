"""The ratings of traces, as detectors count them.

Called when traces are read for tallying. Whoever writes feedback has its traces counted anew
(`svc.store.feedback.writing`). Bounded: `MOST_RATINGS` of a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from svc.domain.feedback.entries import Rating, guessed_better
from svc.store.postgres.database import Connection

MOST_RATINGS: Final = 200

# The newest numbers of each trace, and what is known of their names.
_RATINGS: Final = f"""
select f.trace_id, f.name, f.span_id, f.number, n.better, n.graded
from unnest($2::bytea[]) as due (trace_id) cross join lateral (
    select trace_id, name, span_id, number from feedback
    where project_id = $1 and trace_id = due.trace_id and number is not null
    order by created_at desc, source desc, id desc limit {MOST_RATINGS}
) f join feedback_name n on n.project_id = $1 and n.name = f.name
"""


async def read_ratings(
    connection: Connection, project_id: int, trace_ids: Sequence[bytes]
) -> dict[bytes, list[Rating]]:
    """What each of these traces was rated, by those that were."""
    ratings: dict[bytes, list[Rating]] = {}
    for row in await connection.fetch(_RATINGS, project_id, list(trace_ids)):
        better = row["better"] or guessed_better(row["name"])
        rating = Rating(row["name"], row["span_id"], row["number"], better, row["graded"])
        ratings.setdefault(row["trace_id"], []).append(rating)
    return ratings
