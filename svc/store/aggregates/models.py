"""Which models were called in each hour: by the name that was sent, how often, and what of it has a price.

Owns the tables `model_cube` and, of the hour under way, `model_slice`, with `svc.store.reads.usage.models`,
which reads them. Whoever builds an hour of spans or a slice calls `build_models` in the same transaction, so
that they are right exactly where the cubes and the slices are. As in `vitals`, an hour is that of
`created_at` and its rows are told apart by the hour in which they began. Bounded: of each the `MOST_SUBJECTS`
most called are kept.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from svc.store.aggregates.vitals import MOST_SUBJECTS, TABLES, Stretch
from svc.store.postgres.database import Connection

TOKENS: Final = (
    "coalesce(input_tokens, 0) + coalesce(output_tokens, 0) + coalesce(cache_read_tokens, 0)"
    " + coalesce(cache_write_tokens, 0) + coalesce(reasoning_tokens, 0)"
)
#: Spans that are calls of a model; what repeats another's usage is none.
CALLS: Final = "provided_model_name is not null and usage_repeats is null"
#: What is added up, by the names of the cube's columns. An agent may name the model that its calls name too.
FIGURES: Final = (
    f"count(*) filter (where kind <> 'agent' or total_cost is not null or {TOKENS} > 0) as calls,"
    f" count(*) filter (where total_cost is null and {TOKENS} > 0) as unpriced,"
    " count(*) filter (where cost_source = 'provided') as given,"
    f" coalesce(sum({TOKENS}), 0)::bigint as tokens, sum(total_cost) as cost"
)


async def build_models(
    connection: Connection, project_id: int, low: datetime, high: datetime, stretch: Stretch = "hour"
) -> None:
    """Count an hour or a slice, in the transaction that builds its cube or its columns."""
    table = f"model_{TABLES[stretch]}"
    await connection.execute(f"delete from {table} where project_id = $1 and {stretch} = $2", project_id, low)
    # One pass by the index on created_at; models beyond the most called are left out.
    await connection.execute(
        "with told as materialized (select provider, provided_model_name as name, model_id,"
        f" date_trunc('hour', started_at, 'UTC') as began, {FIGURES} from span"
        f" where project_id = $1 and created_at >= $2 and created_at < $3 and {CALLS} group by 1, 2, 3, 4),"
        " busiest as (select provider, name, model_id from told group by 1, 2, 3"
        " order by sum(calls) desc, 2 limit $4)"
        f" insert into {table} (project_id, {stretch}, began, provider, name, model_id, calls, unpriced,"
        " given, tokens, cost)"
        " select $1, $2, t.began, t.provider, t.name, t.model_id, t.calls, t.unpriced, t.given,"
        " t.tokens, t.cost from told t join busiest b on b.name = t.name"
        " and b.provider is not distinct from t.provider and b.model_id is not distinct from t.model_id",
        project_id,
        low,
        high,
        MOST_SUBJECTS,
    )
