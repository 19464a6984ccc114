"""Where traces lie whose id has a part that somebody remembers: its end, its beginning, any piece of it.

Reads the table `trace_id_block` of `svc.store.aggregates.trace_ids`, for
`svc.store.reads.traces.trace_search`. It never lies: what the cubes do not cover, and hours of an earlier
release, is looked through row by row.

Bounded: a block costs a look at a byte or two of it, 3 ms for a million traces, and only those that may have
the part are read. A part of less than five characters stands in so many ids that walking finds a page of it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime, timedelta
from itertools import chain, repeat
from typing import Any, Final

import attrs

from svc.domain.calendar import BEGINNING, after
from svc.domain.queries.id_pieces import ID_BYTES, MARKS, PIECE, having, marks
from svc.store.aggregates.covered import FAR, Covered
from svc.store.postgres.database import Connection
from svc.store.reads.traces.trace_groups import grouped_hours

PART_OF_AN_ID: Final = re.compile(r"[0-9a-fA-F]{1,32}", re.ASCII)

#: With more hours to be looked through, or with the builder so far behind, it is quicker to walk.
_MOST_HOURS: Final = 24
_MOST_BEHIND: Final = timedelta(hours=4)
#: Blocks that are read at once: a few, then more, of 32 KB each.
_BLOCKS: Final = (4, 16, 64)

# That a block has these marks; each is one byte of what is not compressed, and so one chunk of it.
_BIT: Final = "(${mark}::integer & (octet_length(pieces) * 8 - 1))"
_BYTE: Final = f"get_byte(substring(pieces from ({_BIT} >> 3) + 1 for 1), 0)"
_MARKED: Final = " and ".join(
    f"{_BYTE} & (1 << ({_BIT} & 7)) <> 0".format(mark=number) for number in range(6, 6 + MARKS)
)


@attrs.frozen
class IdPart:
    """A part of an id, in lower case, and between which starts of traces it is looked for."""

    said: str
    low: datetime | None
    high: datetime | None


async def packed(connection: Connection, project_id: int, part: str, cubed: datetime) -> Covered | None:
    """Which hours have blocks that tell of the part; None when too many have none. `cubed`: how far the cubes
    of spans go.
    """
    # They tell nothing of what is too short, and the index is quicker at a whole id.
    if not PIECE <= len(part) < 2 * ID_BYTES:
        return None
    # Hours of a release that packed no ids have no groups either.
    built = await grouped_hours(connection, project_id)
    if built is None or after(built.until, _MOST_BEHIND) < cubed or len(built.dirty) > _MOST_HOURS:
        return None
    return built


async def ids_in_rows(connection: Connection, project_id: int, part: IdPart, built: Covered) -> set[bytes]:
    """The ids with the part in stretches that have no blocks, by the index on created_at."""
    rows = await connection.fetch(
        "select trace_id from unnest($2::timestamptz[], $3::timestamptz[]) as stretch (low, high)"
        " cross join lateral (select trace_id from trace where project_id = $1 and created_at >= stretch.low"
        " and created_at < stretch.high and encode(trace_id, 'hex') like $4 offset 0) as named",
        project_id,
        [low for low, _ in built.raw],
        [high for _, high in built.raw],
        f"%{part.said}%",
    )
    return {row["trace_id"] for row in rows}


async def ids_in_blocks(
    connection: Connection, project_id: int, part: IdPart, built: Covered
) -> AsyncGenerator[tuple[datetime, set[bytes]], None]:
    """Block by block, those first whose last trace began latest: when it began, and the ids with the part.

    No trace of a later block began later.
    """
    position: list[Any] = [FAR, FAR, 0]
    for most in chain(_BLOCKS, repeat(_BLOCKS[-1])):
        # Behind the last one, by the index on when the last trace of a block began.
        blocks = await connection.fetch(
            "select last_started_at, hour, place, ids from trace_id_block where project_id = $1"
            " and last_started_at >= $2 and first_started_at <= $3 and hour < $4"
            f" and (last_started_at, hour, place) < ($10, $11, $12) and hour <> all($5::timestamptz[])"
            f" and {_MARKED} order by last_started_at desc, hour desc, place desc limit $13",
            project_id,
            part.low or BEGINNING,
            part.high or FAR,
            built.until,
            list(built.dirty),
            *marks(part.said),
            *position,
            most,
        )
        for block in blocks:
            yield block["last_started_at"], set(having(block["ids"], part.said))
        if len(blocks) < most:
            return
        position = [blocks[-1][name] for name in ("last_started_at", "hour", "place")]


async def named_ids(
    connection: Connection, project_id: int, part: str, cubed: datetime, most: int
) -> set[bytes]:
    """At most about so many ids of traces with the part; `cubed`: how far the cubes of spans go."""
    built = await packed(connection, project_id, part, cubed)
    if built is None:
        # In the index of all traces alone.
        rows = await connection.fetch(
            "select trace_id from trace where project_id = $1 and encode(trace_id, 'hex') like $2 limit $3",
            project_id,
            f"%{part}%",
            most,
        )
        return {row["trace_id"] for row in rows}
    id_part = IdPart(part, None, None)
    ids = await ids_in_rows(connection, project_id, id_part, built)
    async with aclosing(ids_in_blocks(connection, project_id, id_part, built)) as blocks:
        async for _, batch in blocks:
            if len(ids) >= most:
                break
            ids |= batch
    return ids
