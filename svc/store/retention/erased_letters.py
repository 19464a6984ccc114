"""Dead letters without the spans that are erased; also those that come later, from a topic or a spool.

Called by `svc.store.retention.erasing` for the letters that are there. A letter is written anew with its
other spans, or deleted when none is left. One that cannot be read at all is deleted when it names the
subject.
"""

from __future__ import annotations

from typing import Final

from svc.store.postgres.tombstones import erased_among, hold
from svc.store.retention.erasure_step import ErasureStep, StepOutcome
from svc.store.spans.dead_letter_erasing import Remains, named_in, remains_of
from svc.store.spans.loop_turn import LoopTurn

LETTERS: Final = 20


async def clean_letters(step: ErasureStep) -> StepOutcome:
    """The next letters of the project."""
    connection, project_id = step.connection, step.erasure.project_id
    rows = await connection.fetch(
        "select id, body from dead_letter where project_id = $1 and id > $2 order by id limit $3 for update",
        *(project_id, int(step.place[0]) if step.place else 0, LETTERS),
    )
    if not rows:
        return StepOutcome(over=True)
    state = await hold(connection, [project_id])
    needle = bytes.fromhex(step.subject) if step.erasure.kind == "trace" else step.subject.encode()
    turn = LoopTurn()
    spans = 0
    for row in rows:
        await turn.rest()
        mentions = named_in(row["body"])
        if mentions is None:
            remains = Remains(b"", 0, 1) if needle in row["body"] else None
        else:
            erased = await erased_among(connection, state, ((project_id, *ids[:3]) for ids in mentions))
            remains = None if erased is None else remains_of(project_id, row["body"], erased)
        if remains is None:
            continue
        spans += remains.dropped
        if remains.spans:
            await connection.execute(
                "update dead_letter set body = $2, spans = $3 where id = $1",
                *(row["id"], remains.body, remains.spans),
            )
        else:
            await connection.execute("delete from dead_letter where id = $1", row["id"])
    return StepOutcome((str(rows[-1]["id"]),), counts={"letter_spans": spans})
