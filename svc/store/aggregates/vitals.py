"""How call sites, agents, models and tools did in each hour: what is added up for people.

Owns the tables `vital_cube` and, of the hour under way, `vital_slice`, with `svc.store.reads.usage.vitals`,
which reads them. Whoever builds an hour or a slice calls `build_vitals` in the same transaction: for hours of
`traces` the call sites, for those of `spans` and their slices agents, models and tools. So they are right
exactly where the cubes and the slices are.

An hour is that of `created_at`, as of all cubes, but its rows are told apart by the hour in which they began:
what arrives late counts where it belongs. Bounded: of each the busiest `MOST_SUBJECTS` are kept.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import attrs

from svc.domain.detect.engine.axis import BINS, LN_RATIO
from svc.domain.queries.datasets import SPANS, Dataset
from svc.domain.spans.span import MODEL_KINDS, TOOL_KINDS
from svc.domain.traces.agent_path import AGENT_PATH
from svc.store.postgres.database import Connection

What = Literal["sites", "agents", "models", "tools"]

#: Of an hour, by how often they ran: a subject that is new with each call shall not fill the cube.
MOST_SUBJECTS: Final = 1_000

#: Traces as rows that are counted by the hour; nobody asks for them by this name.
TRACES: Final = Dataset(
    name="traces",
    table="trace",
    fields=(),
    searched=(),
    time_column="created_at",
    counted_as="count",
    identity=("trace_id",),
    shown=(),
)


@attrs.frozen
class VitalSource:
    """Which rows tell of a kind of subject, what it is called in them, and in whose hours they are built."""

    dataset: Dataset
    subject: str
    condition: str


def _said(field: str) -> str:
    """What a span says of a field, by keys; null where it says nothing."""
    return (
        "(select v.value from string_to_table(facets, null) as c (code) join attribute_value v"
        f" on v.project_id = $1 and v.code = c.code where v.field = '{field}' limit 1)"
    )


#: A call that repeats another's usage is none; one whose agent is not known is in no group.
SOURCES: Final[dict[What, VitalSource]] = {
    "sites": VitalSource(TRACES, "coalesce(call_site_id, '')", "true"),
    "agents": VitalSource(
        SPANS, _said(AGENT_PATH), "kind = 'llm' and usage_repeats is null and facets is not null"
    ),
    "models": VitalSource(
        SPANS,
        "coalesce(model_id, provided_model_name, '')",
        f"kind in {MODEL_KINDS!r} and usage_repeats is null",
    ),
    # Many libraries call the spans of all tools alike.
    "tools": VitalSource(
        SPANS, f"coalesce(nullif({_said('tool')}, ''), name, '')", f"kind in {TOOL_KINDS!r}"
    ),
}

#: The bin of a row's duration, as `bin_of` has it; null while it has not ended.
BIN: Final = (
    f"least({BINS - 1}, floor(ln(greatest(date_part('epoch', ended_at - started_at) * 1000, 1))"
    f" / {LN_RATIO!r} + 1e-9))::smallint"
)


#: The tables that keep what is added up of an hour and of a slice are called so.
Stretch = Literal["hour", "slice"]
TABLES: Final[dict[Stretch, str]] = {"hour": "cube", "slice": "slice"}


async def build_vitals(
    connection: Connection,
    dataset: Dataset,
    project_id: int,
    low: datetime,
    high: datetime,
    stretch: Stretch = "hour",
) -> None:
    """Count an hour or a slice, in the transaction that builds its cube or its columns."""
    table = f"vital_{TABLES[stretch]}"
    for vital, source in SOURCES.items():
        if source.dataset is not dataset:
            continue
        await connection.execute(
            f"delete from {table} where project_id = $1 and what = $2 and {stretch} = $3",
            project_id,
            vital,
            low,
        )
        # One pass by the index on created_at; subjects beyond the busiest are left out.
        await connection.execute(
            f"with told as materialized (select {source.subject} as subject,"
            f" date_trunc('hour', started_at, 'UTC') as began, status, total_cost, {BIN} as bin"
            f" from {dataset.table} where project_id = $1 and created_at >= $3 and created_at < $4"
            f" and {source.condition}),"
            " busiest as (select subject from told group by 1 order by count(*) desc, 1 limit $5),"
            " cells as (select subject, began, bin, count(*) as n,"
            " count(*) filter (where status = 'error') as failed, sum(total_cost) as cost,"
            " count(total_cost) as priced from told join busiest using (subject) group by 1, 2, 3)"
            f" insert into {table} (project_id, what, {stretch}, began, subject, n, failed, cost, priced,"
            " bins, counts) select $1, $2, $3, began, subject, sum(n), sum(failed), sum(cost), sum(priced),"
            " coalesce(array_agg(bin order by bin) filter (where bin is not null), '{}'),"
            " coalesce(array_agg(n order by bin) filter (where bin is not null), '{}')"
            " from cells group by subject, began",
            project_id,
            vital,
            low,
            high,
            MOST_SUBJECTS,
        )
