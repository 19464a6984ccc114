"""What rows beside columns come to: the stretches of arrival that no column serves, and the cut hours.

Called by `answers` and `traces` under the snapshot of the columns. One statement for all measures, as far as
they are split alike; each group of it becomes a cell. Never reads more than `MOST_PARTS` parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from svc.domain.columns.encoding import TOKENS
from svc.domain.columns.scan import DISTINCT, DURATIONS
from svc.domain.columns.totals import Cell, DistinctIds, Key, cost_units, text_hash, trace_hash
from svc.domain.queries.measures import MeasureName
from svc.store.aggregates.span_columns import DURATION_BIN, TRACE_SQL
from svc.store.postgres.database import Connection
from svc.store.reads.questions.columns.asked import AskedColumns, hours_since_epoch
from svc.store.reads.questions.columns.segments import Cover

#: Parts of an answer that are read from rows at most.
MOST_PARTS: Final = 200_000

_OWN: Final = "usage_repeats is null"
#: What is read of rows for a measure, in parts that add up, and what parts each is split by beside the
#: groups.
_PARTS: Final[Mapping[MeasureName, Mapping[str, str]]] = {
    "errors": {"errors": "count(*) filter (where status = 'error')"},
    "error_rate": {"errors": "count(*) filter (where status = 'error')"},
    "cost": {
        "cost": f"sum(total_cost) filter (where {_OWN})",
        "priced": f"count(total_cost) filter (where {_OWN})",
        "unpriced": f"count(*) filter (where {_OWN}"
        " and span_priced_by(cost_source, total_cost, price_book) = 'unpriced')",
    },
    "tokens": {name: f"sum({name}) filter (where {_OWN})" for name in TOKENS},
}
_SPLIT: Final[Mapping[MeasureName, str]] = {
    **{name: TRACE_SQL if name == "traces" else column for name, column in DISTINCT.items()},
    **{name: f"case when ended_at is not null then {DURATION_BIN} end" for name in DURATIONS},
}


def read_alike(measures: Sequence[MeasureName]) -> list[list[MeasureName]]:
    """The measures in groups that one statement answers each: sums go with whatever else there is."""
    splits = list(dict.fromkeys(_SPLIT[name] for name in measures if name in _SPLIT))
    summed = [name for name in measures if name not in _SPLIT]
    apart = [[name for name in measures if _SPLIT.get(name) == split] for split in splits]
    return [summed + (apart[0] if apart else []), *apart[1:]]


async def read_rows(connection: Connection, asked: AskedColumns, cover: Cover) -> Sequence[Any] | None:
    """The groups of the rows that columns do not cover; None where they have more than `MOST_PARTS` parts.

    A row has its `bucket` and `value`, `n` spans, the sums of its measures, and what these are split by as
    `splits`, each with how many spans have it as `counts`.
    """
    question = asked.question
    # Measures that are read alike have one of these at most.
    split = next((_SPLIT[measure] for measure in asked.measures if measure in _SPLIT), "null")
    where = question.where()
    raw = (
        f"unnest({where.value([low for low, _ in cover.raw])}::timestamptz[],"
        f" {where.value([high for _, high in cover.raw])}::timestamptz[]) as stretch (low, high)"
    )
    interval = asked.grouping.interval
    bucket = "null" if interval is None else f"date_trunc('{interval}', {question.time_column}, 'UTC')"
    columns = (
        f"{bucket}::timestamptz as bucket, {asked.group or 'null'}::text as value, ({split})::text as split"
    )
    # Rows of each uncovered stretch by the index on when they arrived.
    lists = [
        f"select beside.* from {raw} cross join lateral (select * from span where {where.sql()}"
        " and created_at >= stretch.low and created_at < stretch.high order by created_at) as beside"
    ]
    if question.by_event_time:
        # Those of the hours that the range cuts; what arrived in the stretches above is counted there.
        for low, high in asked.edges:
            lists.append(
                f"select * from span where {where.sql()} and started_at >= {where.value(low)}"
                f" and started_at < {where.value(high)} and not exists (select from {raw}"
                " where created_at >= stretch.low and created_at < stretch.high)"
            )
    parts = {name: sql for measure in asked.measures for name, sql in _PARTS.get(measure, {}).items()}
    sums = "".join(f", {sql} as {name}" for name, sql in parts.items())
    # From parts, their group. Tokens as texts: a sum of them may have any number of digits.
    added = "".join(f", sum({name}){'::text' if name in TOKENS else ''} as {name}" for name in parts)
    rows = await connection.fetch(
        "select bucket, value, sum(n)::bigint as n, count(*) as parts, array_agg(split) filter (where split"
        f" is not null) as splits, array_agg(n) filter (where split is not null) as counts{added} from ("
        f"select {columns}, count(*) as n{sums} from ({' union all '.join(lists)}) as span"
        f" group by 1, 2, 3 limit {MOST_PARTS + 1}) as part group by 1, 2",
        *where.values,
    )
    return rows if sum(row["parts"] for row in rows) <= MOST_PARTS else None


def row_cells(asked: AskedColumns, rows: Sequence[Any]) -> dict[Key, Cell]:
    """The cells of groups of rows."""
    cells: dict[Key, Cell] = {}
    for row in rows:
        bucket_hour = None if row["bucket"] is None else hours_since_epoch(row["bucket"])
        for value in asked.groups_of(row["value"]):
            cells.setdefault((bucket_hour, value), Cell()).add(_row_cell(row, asked.measures))
    return cells


def _row_cell(row: Any, measures: Sequence[MeasureName]) -> Cell:
    cell = Cell(spans=row["n"])
    if "errors" in measures or "error_rate" in measures:
        cell.errors = int(row["errors"])
    if "cost" in measures:
        cell.cost = cost_units(row["cost"]) if row["priced"] else 0
        cell.priced, cell.unpriced = int(row["priced"]), int(row["unpriced"])
    if "tokens" in measures:
        cell.tokens = [None if row[name] is None else int(row[name]) for name in TOKENS]
    if (splits := row["splits"]) is None:
        return cell
    if DURATIONS.isdisjoint(measures):
        hash_of = trace_hash if "traces" in measures else text_hash
        cell.distinct = DistinctIds({hash_of(split) for split in splits})
    else:
        cell.durations = dict(zip(map(int, splits), row["counts"], strict=True))
    return cell
