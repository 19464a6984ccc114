"""What several traces share and nobody has any more: messages of a day, and values of attributes.

Called by `svc.store.retention.erasing`, once every writer knows what is being erased: who stores one of them
meanwhile takes it out of `erasing_message` or `erasing_value`. What is left of those when all that is stored
was looked through is nobody's. It is deleted while no writer is at work, and the epoch moves, so that no
process believes it stored.

Bounded: a step opens so many frames of a day, and deletes so many messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from svc.domain.queries.datasets import SPANS
from svc.store.postgres.database import Connection
from svc.store.postgres.tombstones import hold_alone, move_epoch
from svc.store.retention.erasure_step import ErasureStep, StepOutcome
from svc.store.spans.loop_turn import LoopTurn
from svc.store.spans.payloads import opened_frame

FRAMES: Final = 200
MESSAGES: Final = 2_000
VALUES: Final = 200

# The next frames of a day, by key.
_FRAMES: Final = """
select trace_id, frame, body from span_payload
where project_id = $1 and started_at = $2 and (trace_id, frame) > ($3, $4) order by trace_id, frame limit $5
"""

# Messages of a day that nobody has, with their notes; their bytes.
_MESSAGES: Final = """
with chosen as materialized (
    select hash from erasing_message where project_id = $1 and started_at = $2 order by hash limit $3
), noted as (
    delete from erasing_message e using chosen c
    where e.project_id = $1 and e.started_at = $2 and e.hash = c.hash
), gone as (
    delete from span_message m using chosen c
    where m.project_id = $1 and m.started_at = $2 and m.hash = c.hash returning m.hash
)
select (select count(*) from chosen) as seen, (select count(*) from gone) as gone
"""

# Which of these values somebody has: by the hours that are counted, else by the rows of the others.
_USED: Final = f"""
    select e.code from erasing_value e join attribute_value v using (project_id, code) where e.project_id = $1
    and e.code = any($2::text[]) and exists (select from search_value p where p.project_id = $1 and p.dataset
    = '{SPANS.name}' and p.field = v.field and p.value = v.value) union select c.code from ( select s.facets
    from span s where s.project_id = $1 and s.facets is not null and s.created_at >= coalesce(( select
    built_until from cube_progress where project_id = $1 and dataset = '{SPANS.name}'), '-infinity') union all
    select s.facets from cube_dirty d join span s on s.project_id = $1 and s.facets is not null and
    s.created_at >= d.hour and s.created_at < d.hour + interval '1 hour' where d.project_id = $1 and d.dataset
    = '{SPANS.name}' ) s cross join lateral string_to_table(s.facets, null) as c (code) where c.code =
    any($2::text[])
"""

_FIRST: Final = ("", "-1")


async def drop_messages(step: ErasureStep) -> StepOutcome:
    """Look through the next frames of a day, and after the last of them drop what nobody has."""
    connection, project_id = step.connection, step.erasure.project_id
    day: datetime | None
    if step.place:
        day, reached = datetime.fromisoformat(step.place[0]), step.place[1:]
    else:
        day = await connection.fetchval(
            "select min(started_at) from erasing_message where project_id = $1", project_id
        )
        reached = _FIRST
    if day is None:
        return StepOutcome(over=True)
    cursor = bytes.fromhex(reached[0]), int(reached[1])
    rows = await connection.fetch(_FRAMES, project_id, day, *cursor, FRAMES)
    await _keep(connection, project_id, day, rows)
    if len(rows) == FRAMES:
        trace_id, frame, _ = rows[-1]
        return StepOutcome((day.isoformat(), trace_id.hex(), str(frame)))
    await hold_alone(connection, project_id)
    row: Any = await connection.fetchrow(_MESSAGES, project_id, day, MESSAGES)
    await move_epoch(connection)
    counts = {"messages": row["gone"]}
    if row["seen"] == MESSAGES:
        # The same stretch of frames again: writers were let in meanwhile, and took out what is theirs.
        return StepOutcome((day.isoformat(), *reached), counts=counts)
    return StepOutcome(counts=counts)


async def _keep(connection: Connection, project_id: int, day: datetime, rows: Sequence[Any]) -> None:
    """What these frames name is somebody's."""
    turn = LoopTurn()
    digests: set[bytes] = set()
    for row in rows:
        await turn.rest()
        frame = opened_frame(row["body"])
        if frame is not None:
            digests |= frame.needed()
    await connection.execute(
        "delete from erasing_message where project_id = $1 and started_at = $2 and hash = any($3::bytea[])",
        *(project_id, day, sorted(digests)),
    )


async def drop_values(step: ErasureStep) -> StepOutcome:
    """Drop those of the next values that no span has."""
    connection, project_id = step.connection, step.erasure.project_id
    rows = await connection.fetch(
        "select code from erasing_value where project_id = $1 order by code limit $2", project_id, VALUES
    )
    if not rows:
        return StepOutcome(over=True)
    codes = [row["code"] for row in rows]
    in_use = await connection.fetch(_USED, project_id, codes)
    await connection.execute(
        "delete from erasing_value where project_id = $1 and code = any($2::text[])",
        *(project_id, [row["code"] for row in in_use]),
    )
    await hold_alone(connection, project_id)
    dropped_rows = await connection.fetch(
        "with chosen as (delete from erasing_value where project_id = $1 and code = any($2::text[])"
        " returning code) delete from attribute_value v using chosen c"
        " where v.project_id = $1 and v.code = c.code returning v.code",
        *(project_id, codes),
    )
    await move_epoch(connection)
    return StepOutcome(counts={"values": len(dropped_rows)})
