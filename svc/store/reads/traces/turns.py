"""Which spans say what a trace was asked and what it answered, where its root says neither.

Called by what shows whole traces as one question and one answer. Chosen as the previews of a trace are whose
root shows none (`svc.domain.traces.rollup.roll_up`): the first and the last call of a model before others,
among its first spans. Never reads a payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from svc.store.postgres.database import Database

#: Spans of one trace that are looked at, from its beginning.
_LOOKED_AT: Final = 1_000

# Calls of models before others; of a tool nobody takes what it gave back for an answer.
_TURNS: Final = f"""
with early as materialized (
    select s.* from trace t cross join lateral (
        select trace_id, span_id, kind, started_at, input_preview is not null as asks,
            output_preview is not null as answers
        from span where project_id = $1 and trace_id = t.trace_id
            and started_at between t.first_started_at and t.last_started_at
        order by started_at, span_id limit {_LOOKED_AT}
    ) s where t.project_id = $1 and t.trace_id = any($2::bytea[])
)
select trace_id,
    (array_agg(span_id order by kind = 'llm' desc, started_at, span_id) filter (where asks))[1] as asked,
    (array_agg(span_id order by kind = 'llm' desc, started_at desc, span_id desc)
        filter (where answers and kind not in ('tool', 'mcp')))[1] as answered
from early group by trace_id
"""


class Turn(NamedTuple):
    """The spans that say what a trace was asked and what it answered; None where none does."""

    asked: bytes | None
    answered: bytes | None


async def turns_of(database: Database, project_id: int, trace_ids: Sequence[bytes]) -> dict[bytes, Turn]:
    """Of each of these traces. Raises `Outage`."""
    if not trace_ids:
        return {}
    rows = await database.fetch(_TURNS, project_id, trace_ids)
    return {row["trace_id"]: Turn(row["asked"], row["answered"]) for row in rows}
