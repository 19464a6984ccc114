"""The agents above the calls of some spans or traces, as tallying wrote them when their trace settled.

Called by what shows spans and traces, for the rows of a page alone. A path is a character of `span.facets`
(`svc.store.detection.counting.path_facets`). Never writes. Raises `Outage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from svc.domain.traces.agent_path import AGENT_PATH, CALLS
from svc.store.postgres.database import READ_TIMEOUT_S, Database
from svc.store.reads.questions.attributes import shown_value

#: Agents of a trace that are named, and calls of it that are looked at for them.
MOST_AGENTS: Final = 8
MOST_CALLS: Final = 500

# Of each span the path, by its key.
_OF_SPANS: Final = f"""
select wanted.trace_id, wanted.span_id, v.value
from unnest($2::bytea[], $3::bytea[], $4::timestamptz[]) as wanted (trace_id, span_id, started_at)
cross join lateral (
    select s.facets from span s where s.project_id = $1 and s.trace_id = wanted.trace_id
        and s.span_id = wanted.span_id and s.started_at = wanted.started_at offset 0
) s
cross join lateral string_to_table(s.facets, null) as c (code)
join attribute_value v on v.project_id = $1 and v.code = c.code and v.field = '{AGENT_PATH}'
"""

# Of each trace the paths of its first calls, within the days of the trace.
_OF_TRACES: Final = f"""
select t.trace_id, array(
    select distinct v.value from (
        select s.facets from span s where s.project_id = $1 and s.trace_id = t.trace_id
            and s.started_at between t.first_started_at and t.last_started_at
            and s.kind = any($3::text[]) and s.facets is not null limit {MOST_CALLS}
    ) calls
    cross join lateral string_to_table(calls.facets, null) as c (code)
    join attribute_value v on v.project_id = $1 and v.code = c.code and v.field = '{AGENT_PATH}'
    order by v.value limit {MOST_AGENTS + 1}
) as paths
from trace t where t.project_id = $1 and t.trace_id = any($2::bytea[])
"""


@attrs.frozen
class TraceAgents:
    """The paths of some agents of a trace, in the order of their names, and whether it has more."""

    paths: Sequence[str]
    has_more: bool


@attrs.frozen
class AgentPathReads:
    """Reads the paths of one project at a time."""

    database: Database

    async def add_to(self, project_id: int, spans: Iterable[dict[str, Any]]) -> None:
        """Give each of these shown spans that has a path its `agent_path`."""
        calls = {
            (bytes.fromhex(span["trace_id"]), bytes.fromhex(span["span_id"])): span
            for span in spans
            if span["kind"] in CALLS
        }
        if not calls:
            return
        rows = await self.database.fetch(
            _OF_SPANS,
            project_id,
            [trace_id for trace_id, _ in calls],
            [span_id for _, span_id in calls],
            [datetime.fromisoformat(span["started_at"]) for span in calls.values()],
            timeout_s=READ_TIMEOUT_S,
        )
        for row in rows:
            calls[row["trace_id"], row["span_id"]][AGENT_PATH] = shown_value(row["value"])

    async def of_traces(self, project_id: int, trace_ids: Sequence[bytes]) -> dict[bytes, TraceAgents]:
        """The agents of each of these traces that has any."""
        if not trace_ids:
            return {}
        rows = await self.database.fetch(
            _OF_TRACES, project_id, list(trace_ids), sorted(CALLS), timeout_s=READ_TIMEOUT_S
        )
        return {
            row["trace_id"]: TraceAgents(
                [shown_value(path) or "" for path in row["paths"][:MOST_AGENTS]],
                len(row["paths"]) > MOST_AGENTS,
            )
            for row in rows
            if row["paths"]
        }
