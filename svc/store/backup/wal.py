"""What the server is asked to have its WAL copied as it is written: a hold on it, and an end to a segment.

Called by `svc.backup.wal_copying`, which owns where the copies lie. The hold is a replication slot that
nobody connects to: until it is moved on, the server keeps every segment, through restarts too. So whoever
stops copying must let go of it, or the disk fills up.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import attrs

from svc.store.postgres.database import Database

_SLOT: Final = "trace_svc_wal"

_HOLD: Final = """
select pg_create_physical_replication_slot($1, true)
where not exists (select from pg_replication_slots where slot_name = $1)
"""

_LET_GO: Final = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1"

_MOVE_ON: Final = """
select pg_replication_slot_advance(slot_name, $2::text::pg_lsn) from pg_replication_slots where slot_name = $1
"""

# Which segment is written, which is the first that is kept for us, how much that is, and who writes now.
_PLACE: Final = """
select clock_timestamp() as moment, (select system_identifier::text from pg_control_system()) as system_id,
    pg_walfile_name(s.restart_lsn) as first_segment,
    (pg_current_wal_lsn() - s.restart_lsn)::bigint as waiting_bytes,
    pg_snapshot_xmin(x.now)::text::bigint as oldest_xid, pg_snapshot_xmax(x.now)::text::bigint as next_xid
from pg_replication_slots s, pg_current_snapshot() as x (now) where s.slot_name = $1
"""

# The commit of this transaction is in the segment and later than the moment: whoever replays up to the moment
# meets a commit after it, and so knows that it is there.
_MARK: Final = "select clock_timestamp() as moment, pg_current_xact_id()::text::bigint as xid"

# The place that it answers belongs to the segment that was ended.
_END: Final = "select pg_walfile_name(pg_switch_wal())"


@attrs.frozen
class WalPlace:
    """How far the WAL has got; the transactions that nobody has begun, or not ended, by then."""

    moment: datetime
    system_id: str
    first_segment: str
    waiting_bytes: int
    oldest_xid: int
    next_xid: int


@attrs.frozen
class EndedSegment:
    """The segment that was ended, and a moment up to which everything is in it and in those before."""

    name: str
    moment: datetime
    #: The transaction that stands at its end.
    xid: int


class WalHold:
    """The hold on the WAL of one database. All verbs raise `Outage`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def place(self) -> WalPlace:
        """How far it has got; held from now on, if it was not."""
        await self._database.fetch(_HOLD, _SLOT)
        (row,) = await self._database.fetch(_PLACE, _SLOT)
        return WalPlace(**dict(row))

    async def end_segment(self) -> EndedSegment:
        """End the segment that is being written."""
        (mark,) = await self._database.fetch(_MARK)
        (row,) = await self._database.fetch(_END)
        return EndedSegment(row[0], mark["moment"], mark["xid"])

    async def move_on(self, lsn: str) -> None:
        """Let go of what is before this place."""
        await self._database.run(
            lambda connection: connection.execute(_MOVE_ON, _SLOT, lsn), transaction=False
        )

    async def let_go(self) -> None:
        """Let go of all of it, if it was held."""
        await self._database.fetch(_LET_GO, _SLOT)
