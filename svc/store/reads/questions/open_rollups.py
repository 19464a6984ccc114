"""Metric roll-ups up to now: what is closed as it stands, and what is not closed as it is so far.

Called by the query API for `metric_rollups`, in place of the table. The builder is half an hour behind its
hour, so that somebody who has just begun would be told of nothing. Writes nothing; counts at most
`OPEN_REACH` back, which bounds what a builder that is far behind leaves to be counted.
"""

from __future__ import annotations

from typing import Final

#: As an interval of SQL: an earlier hour that is not rolled up is left to the builder.
OPEN_REACH: Final = "26 hours"

_METRICS: Final = "('ingested_spans', 'ingested_traces', 'l1_evals')"
#: Where the closed hours of project `$1` end.
_CLOSED_UNTIL: Final = (
    "(select greatest(date_trunc('hour', clock_timestamp(), 'UTC') - interval '" + OPEN_REACH + "',"
    " (select built_until from metric_rollup_progress where project_id = $1)))"
)
_HOUR: Final = "date_trunc('hour', created_at, 'UTC')"
#: What each hour holds that is not closed. Each part is a range of an index.
_OPEN_HOURS: Final = (
    f"select 'ingested_spans' as metric, {_HOUR} as bucket_start, count(*)::numeric as value from span"
    f" where project_id = $1 and created_at >= {_CLOSED_UNTIL} group by 2"
    f" union all select 'ingested_traces', {_HOUR}, count(*) from trace"
    f" where project_id = $1 and created_at >= {_CLOSED_UNTIL} group by 2"
    f" union all select 'l1_evals', hour, sum(n) from l1_eval"
    f" where project_id = $1 and hour >= {_CLOSED_UNTIL} group by 2"
)
#: The rows of what is not closed: each hour, and each day as the sum of its hours.
OPEN_ROWS: Final = (
    f"(with open_hour as materialized ({_OPEN_HOURS})"
    " select $1::bigint as project_id, metric, 'hour' as granularity, bucket_start, value from open_hour"
    " union all select $1, metric, 'day', date_trunc('day', bucket_start, 'UTC'), sum(value) from ("
    " select metric, bucket_start, value from open_hour"
    " union all select metric, bucket_start, value from metric_rollup where project_id = $1"
    f" and granularity = 'hour' and metric in {_METRICS}"
    f" and bucket_start >= date_trunc('day', {_CLOSED_UNTIL}, 'UTC') and bucket_start < {_CLOSED_UNTIL}"
    ") as hours group by metric, 4)"
)
#: All rows, in the place of the table.
ALL_ROWS: Final = (
    "(select project_id, metric, granularity, bucket_start, value from metric_rollup where project_id = $1"
    f" union all select * from {OPEN_ROWS} as open_rows) as metric_rollup"
)
#: Of what is not closed, where it begins.
NOT_CLOSED: Final = "select min(bucket_start) as since from {rows} as metric_rollup where {where}"
