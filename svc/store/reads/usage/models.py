"""Which models a project calls: by the name that was sent, how often, and what of it has a price.

Added up from the hourly cubes and the slices of the hour under way (`svc.store.aggregates.models`); what
these do not cover is counted from spans under the same snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from svc.domain.calendar import hour_of
from svc.domain.queries.datasets import SPANS
from svc.store.aggregates.covered import covered_since
from svc.store.aggregates.models import CALLS, FIGURES
from svc.store.postgres.database import Connection, Database
from svc.store.reads.usage.vitals import SKEW

#: Models told at most, the most called first.
SHOWN_MODELS: Final = 200


@attrs.frozen
class ModelUse:
    """One model as it was named. `unpriced`: calls with usage and no cost; `given`: with the exporter's."""

    provider: str | None
    name: str
    model_id: str | None
    calls: int
    unpriced: int
    given: int
    tokens: int
    cost: float | None


# Rows of the cube and of slices that began since then, and calls that these do not cover, by the index on
# created_at.
_USED: Final = f"""
with told as materialized (
    select provider, name, model_id, calls, unpriced, given, tokens, cost from model_cube
    where project_id = $1 and began >= $2 and hour < $3 and hour <> all($4)
    union all
    select provider, name, model_id, calls, unpriced, given, tokens, cost from model_slice
    where project_id = $1 and began >= $2 and slice = any($7)
    union all
    select provider, provided_model_name, model_id, {FIGURES}
    from unnest($5::timestamptz[], $6::timestamptz[]) as stretch (low, high)
    cross join lateral (select * from span where project_id = $1 and created_at >= stretch.low
        and created_at < stretch.high and started_at >= $2 and {CALLS} offset 0) as raw
    group by 1, 2, 3)
select provider, name, model_id, sum(calls)::bigint as calls, sum(unpriced)::bigint as unpriced,
    sum(given)::bigint as given, sum(tokens)::bigint as tokens, sum(cost)::float8 as cost
from told group by 1, 2, 3 order by calls desc, name limit {SHOWN_MODELS}
"""


@attrs.define(eq=False)
class ModelReads:
    """Reads one project at a time."""

    database: Database

    async def used(self, project_id: int, since: datetime, timeout_s: float) -> Sequence[ModelUse]:
        """Models called since the full hour that holds this moment. Raises `Slow` when it takes longer."""
        since = hour_of(since)
        first = since - SKEW

        async def work(connection: Connection) -> list[Any]:
            built = await covered_since(connection, project_id, SPANS, first)
            return await connection.fetch(
                _USED,
                project_id,
                since,
                built.until,
                built.dirty,
                [low for low, _ in built.raw],
                [high for _, high in built.raw],
                built.slices,
            )

        rows = await self.database.run(work, readonly=True, snapshot=True, timeout_s=timeout_s)
        return [ModelUse(**dict(row.items())) for row in rows]
