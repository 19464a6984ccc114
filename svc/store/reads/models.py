"""Which models a project calls: by the name that was sent, how often, and what of it has a price."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import attrs

from svc.store.postgres.database import Database

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


@attrs.define(eq=False)
class ModelReads:
    """Reads one project at a time."""

    database: Database

    async def used(self, project_id: int, since: datetime, timeout_s: float) -> Sequence[ModelUse]:
        """Models called since then. Raises `Slow` when it takes longer."""
        tokens = (
            "coalesce(input_tokens, 0) + coalesce(output_tokens, 0) + coalesce(cache_read_tokens, 0)"
            " + coalesce(cache_write_tokens, 0) + coalesce(reasoning_tokens, 0)"
        )
        rows = await self.database.fetch(
            # Calls since then by the index on created_at; what repeats another's usage is none.
            "select provider, provided_model_name as name, model_id, count(*) as calls,"
            f" count(*) filter (where total_cost is null and {tokens} > 0) as unpriced,"
            " count(*) filter (where cost_source = 'provided') as given,"
            f" coalesce(sum({tokens}), 0)::bigint as tokens, sum(total_cost)::float8 as cost from span"
            " where project_id = $1 and created_at >= $2 and started_at >= $3"
            " and provided_model_name is not null and usage_repeats is null"
            f" group by 1, 2, 3 order by calls desc, name limit {SHOWN_MODELS}",
            project_id,
            since,
            since,
            timeout_s=timeout_s,
        )
        return [ModelUse(**dict(row.items())) for row in rows]
