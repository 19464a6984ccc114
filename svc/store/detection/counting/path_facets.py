"""The agent paths of settled traces, as a field of their calls.

Owns: the characters of `agent_path` in `span.facets`. Tallying reads what the spans of its traces say of
agents, and has the paths made and written before it counts. A span that has its path already is left alone:
most were stored with it, and a trace that settles again is written once. Never reads a payload.

Ordering: the traces are locked in the order of their keys, before characters are given out and any span is
changed, as whoever reworks spans does it; a span that somebody changed meanwhile is left, its trace settles
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

import attrs

from svc.domain.queries.datasets import SPANS
from svc.domain.traces.agent_path import AGENT, AGENT_PATH, CALLS, PathSpan, agent_paths
from svc.store.aggregates.closed_hours import mark_dirty
from svc.store.aggregates.vitals import TRACES
from svc.store.postgres.clock import server_clock
from svc.store.postgres.database import Connection, Database
from svc.store.spans.attribute_codes import codes_within

# What these characters stand for, where they stand for an agent or a path.
_NAMES: Final = """
select code, field, value from attribute_value
where project_id = $1 and code = any($2::text[]) and field = any($3::text[])
"""

# Held until the end of the transaction; one that has gone meanwhile has no spans either.
_LOCK: Final = """
select trace_id, created_at from trace where project_id = $1 and trace_id = any($2::bytea[]) order by trace_id
for update
"""

# Those that are as they were read; the bounds let the planner skip all other days.
_WRITE: Final = """
update span s set facets = n.facets
from unnest($4::bytea[], $5::bytea[], $6::timestamptz[], $7::text[], $8::text[])
    as n (trace_id, span_id, started_at, earlier, facets)
where s.project_id = $1 and s.started_at between $2 and $3 and s.trace_id = n.trace_id
  and s.span_id = n.span_id and s.started_at = n.started_at and s.facets is not distinct from n.earlier
returning s.created_at
"""


class FacetSpan(PathSpan, Protocol):
    """What is read of a span here."""

    trace_id: bytes
    started_at: datetime
    facets: str | None


#: The paths of calls, by trace and span.
TracePaths = Mapping[bytes, Mapping[bytes, str]]


@attrs.frozen(eq=False)
class PathFacets:
    """What characters of a project stand for: the names of agents, and paths."""

    agents: Mapping[str, str]
    paths: Mapping[str, str]

    @classmethod
    async def read(
        cls, connection: Connection, project_id: int, traces: Iterable[Sequence[FacetSpan]]
    ) -> PathFacets:
        """Those that the spans of these traces have."""
        characters: set[str] = set()
        for rows in traces:
            for row in rows:
                if row.facets and (row.kind == "agent" or row.kind in CALLS):
                    characters.update(row.facets)
        if not characters:
            return cls({}, {})
        records = await connection.fetch(_NAMES, project_id, list(characters), [AGENT, AGENT_PATH])
        return cls(
            {record["code"]: record["value"] for record in records if record["field"] == AGENT},
            {record["code"]: record["value"] for record in records if record["field"] == AGENT_PATH},
        )

    def paths_of(self, rows: Sequence[FacetSpan]) -> Mapping[bytes, str]:
        """The paths of the calls of a trace, by span."""
        facets = {row.span_id: row.facets for row in rows if row.kind == "agent"}

        def agent_of(row: PathSpan) -> str | None:
            return next(
                (self.agents[code] for code in facets[row.span_id] or "" if code in self.agents), None
            )

        return agent_paths(rows, agent_of)

    def changes(
        self, rows: Sequence[FacetSpan], paths: Mapping[bytes, str]
    ) -> list[tuple[FacetSpan, str | None]]:
        """The calls of a trace that do not have their path, and no other, each with the path."""
        return [
            (row, path)
            for row in rows
            if row.kind in CALLS
            and ((path := paths.get(row.span_id)) is not None or row.facets)
            and [self.paths[code] for code in row.facets or "" if code in self.paths]
            != ([] if path is None else [path])
        ]


async def path_calls(
    database: Database, project_id: int, facets: PathFacets, traces: Mapping[bytes, Sequence[FacetSpan]]
) -> TracePaths:
    """The paths of the calls of these traces; spans that did not have theirs have it from now on."""
    paths = {trace_id: facets.paths_of(rows) for trace_id, rows in traces.items()}
    changes = [
        change for trace_id, rows in traces.items() for change in facets.changes(rows, paths[trace_id])
    ]
    if changes:
        await database.run(lambda connection: _write(connection, project_id, facets, changes))
    return paths


async def _write(
    connection: Connection,
    project_id: int,
    facets: PathFacets,
    changes: Sequence[tuple[FacetSpan, str | None]],
) -> None:
    """Give spans the path beside them in place of any other."""
    traces = await connection.fetch(_LOCK, project_id, sorted({row.trace_id for row, _ in changes}))
    codes = await codes_within(connection, project_id, AGENT_PATH, {path for _, path in changes if path})
    rows: list[FacetSpan] = []
    written: list[str | None] = []
    for row, path in changes:
        own_codes = "".join(code for code in row.facets or "" if code not in facets.paths)
        text = own_codes + codes.get(path or "", "") or None
        if text != row.facets:
            rows.append(row)
            written.append(text)
    if not rows:
        return
    moments = [row.started_at for row in rows]
    changed = await connection.fetch(
        _WRITE,
        project_id,
        min(moments),
        max(moments),
        [row.trace_id for row in rows],
        [row.span_id for row in rows],
        moments,
        [row.facets for row in rows],
        written,
    )
    now = await server_clock(connection)
    await mark_dirty(connection, [(project_id, record["created_at"]) for record in changed], SPANS, now)
    # A trace holds what its spans have.
    changed_ids = {row.trace_id for row in rows}
    arrivals = [trace["created_at"] for trace in traces if trace["trace_id"] in changed_ids]
    await mark_dirty(connection, [(project_id, moment) for moment in arrivals], TRACES, now)
