"""What each detector knows of each subject: the state of its engine, and checkpoints of it.

Owns the tables `bucket_state` and `bucket_checkpoint`. The judge reads and writes them; whoever lists buckets
reads. Never judges. A state is of whole numbers, floats and tuples of them, stored as MessagePack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from svc.domain.detect.engine.slots import SLOTS_PER_DAY
from svc.domain.detect.findings.bucket import BucketState, Watched
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

#: Buckets of a detector that one question brings at most, in the order of their names.
STATES_READ: Final = 20_000
#: Midnights of which a checkpoint is kept, counted back from the newest; of older ones the Mondays.
CHECKPOINT_DAYS: Final = 10
#: Behind every slot there is.
NEWEST: Final = 2**31 - 1

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(BucketState).decode

# The state, if it was judged no further than the slot, else the newest checkpoint that was not.
_FROM: Final = """
select body from (
    (select cursor, body from bucket_state
     where project_id = $1 and detector = $2 and measure = $3 and subject = $4 and cursor <= $5)
    union all
    (select cursor, body from bucket_checkpoint
     where project_id = $1 and detector = $2 and measure = $3 and subject = $4 and cursor <= $5
     order by cursor desc limit 1)
) s order by cursor desc limit 1
"""

# The oldest checkpoint.
_OLDEST: Final = """
select body from bucket_checkpoint where project_id = $1 and detector = $2 and measure = $3 and subject = $4
order by cursor limit 1
"""

_PUT: Final = """
insert into bucket_state (project_id, detector, measure, subject, cursor, body)
values ($1, $2, $3, $4, $5, $6)
on conflict (project_id, detector, measure, subject) do update
set cursor = excluded.cursor, body = excluded.body
"""

# What was judged from a slot on is no longer so.
_FORGET: Final = """
delete from bucket_checkpoint
where project_id = $1 and detector = $2 and measure = $3 and subject = $4 and cursor > $5
"""

# Midnights; judged again, the later judgement counts.
_CHECKPOINT: Final = """
insert into bucket_checkpoint (project_id, detector, measure, subject, cursor, body)
select $1, $2, $3, $4, * from unnest($5::integer[], $6::bytea[])
on conflict (project_id, detector, measure, subject, cursor) do update set body = excluded.body
"""

# Of old midnights only Mondays stay.
_THIN: Final = f"""
delete from bucket_checkpoint
where project_id = $1 and detector = $2 and measure = $3 and subject = $4 and cursor < $5
and (cursor / {SLOTS_PER_DAY} + 3) % 7 <> 0
"""


async def write_state(
    connection: Connection,
    project_id: int,
    detector: str,
    bucket: Watched,
    state: BucketState,
    *,
    since: int,
    checkpoints: Sequence[BucketState],
) -> None:
    """Keep a state and the midnights on the way to it, judged anew from slot `since` on."""
    key = (project_id, detector, bucket.measure, bucket.subject)
    await connection.execute(_FORGET, *key, since)
    if checkpoints:
        await connection.execute(
            _CHECKPOINT,
            *key,
            [checkpoint.cursor for checkpoint in checkpoints],
            [_encode(checkpoint) for checkpoint in checkpoints],
        )
        await connection.execute(_THIN, *key, state.cursor - CHECKPOINT_DAYS * SLOTS_PER_DAY)
    await connection.execute(_PUT, *key, state.cursor, _encode(state))


@attrs.define(eq=False)
class BucketStates:
    """Reads. All verbs raise `Outage`."""

    database: Database

    async def before(self, project_id: int, detector: str, bucket: Watched, slot: int) -> BucketState | None:
        """The newest state that holds nothing of this slot or later; None when there is none."""
        key = (project_id, detector, bucket.measure, bucket.subject)
        rows = await self.database.fetch(_FROM, *key, slot, timeout_s=READ_TIMEOUT_S)
        return _decode(rows[0]["body"]) if rows else None

    async def oldest(self, project_id: int, detector: str, bucket: Watched) -> BucketState | None:
        """The oldest checkpoint, for a change that came later than any can answer for."""
        key = (project_id, detector, bucket.measure, bucket.subject)
        rows = await self.database.fetch(_OLDEST, *key, timeout_s=READ_TIMEOUT_S)
        return _decode(rows[0]["body"]) if rows else None

    async def all(
        self, project_id: int, detector: str, limit: int = STATES_READ
    ) -> Mapping[Watched, BucketState]:
        """The state of every subject of a detector, at most `limit` of them, by name."""
        rows = await self.database.fetch(
            "select measure, subject, body from bucket_state where project_id = $1 and detector = $2"
            " order by measure, subject limit $3",
            project_id,
            detector,
            limit,
            timeout_s=READ_TIMEOUT_S,
        )
        return {Watched(row["measure"], row["subject"]): _decode(row["body"]) for row in rows}

    async def armed(self, project_id: int) -> int:
        """How many subjects have been judged, over all detectors."""
        rows: list[Any] = await self.database.fetch(
            "select count(*) as n from bucket_state where project_id = $1", project_id
        )
        return int(rows[0]["n"])
