"""The ids of the traces of each hour, packed: the index behind traces that are asked for by a part of an id.

Owns the table `trace_id_block`, with `svc.store.reads.traces.trace_ids`, which reads it. The cube builder
calls `build_trace_ids` for each hour of traces it builds, in the same transaction, so that it is right
exactly where the cubes are. Hours that an earlier release built have neither blocks nor groups of traces, and
are built anew for both (`svc.store.aggregates.trace_values`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from svc.domain.queries.id_pieces import signature
from svc.store.postgres.database import Connection
from svc.store.postgres.threads import in_thread

#: Ids of a block: its signature is 32 KB then, of which a question reads a byte or two, a few µs a block. Of
#: 512 ids they took as much room and twice the time to ask (measured November 2026).
BLOCK_IDS: Final = 2_048

_COLUMNS: Final = ("project_id", "hour", "place", "first_started_at", "last_started_at", "ids", "pieces")


async def build_trace_ids(connection: Connection, project_id: int, hour: datetime, end: datetime) -> None:
    """Pack the ids of the hour that ends then, in the transaction that builds its cube."""
    await connection.execute(
        "delete from trace_id_block where project_id = $1 and hour = $2", project_id, hour
    )
    # By the index on created_at, cut in the order in which they began.
    blocks = await connection.fetch(
        "select min(started_at) as first_started_at, max(started_at) as last_started_at,"
        " string_agg(trace_id, '' order by n) as ids from (select trace_id, started_at,"
        " row_number() over (order by started_at, trace_id) - 1 as n from trace"
        " where project_id = $1 and created_at >= $2 and created_at < $3) as placed"
        " group by n / $4::bigint order by n / $4::bigint",
        project_id,
        hour,
        end,
        BLOCK_IDS,
    )
    records = []
    for position, block in enumerate(blocks):
        pieces = await in_thread(signature, block["ids"])
        records.append((project_id, hour, position, *block.values(), pieces))
    await connection.copy_records_to_table("trace_id_block", columns=_COLUMNS, records=records)
